package lane

import (
	"testing"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReceiverRefuses(t *testing.T) {
	r := newReceiver(Ring{Addr: 0x1000, Size: 256})
	requireViolation(t, ProtocolError{RuleOverflow, 0, 257, 256}, r.data(257))
	require.NoError(t, r.data(200))
	requireViolation(t, ProtocolError{RuleOverflow, 0, 57, 56}, r.data(57))
	require.ErrorIs(t, r.consume(201), ring.ErrConfig)
	require.ErrorIs(t, r.consume(-1), ring.ErrConfig)
	require.NoError(t, r.consume(200))
	requireViolation(t, ProtocolError{RuleStraddle, 0, 57, 56}, r.data(57))
	requireViolation(t, ProtocolError{RuleMove, 0, 0, 0}, r.moved())
	require.ErrorIs(t, r.offer(Ring{Size: 100}), ring.ErrConfig)
	require.NoError(t, r.offer(Ring{Addr: 0x2000, Size: 512}))
	require.ErrorIs(t, r.offer(Ring{Addr: 0x3000, Size: 512}), ring.ErrGrowing)
	require.NoError(t, r.moved())
	require.ErrorIs(t, r.moved(), RuleMove)
}

// A ring is too small for a reader that does not come, and for a sender that gets through
// most of it before a credit tells it of more.
func TestReceiverWantsRing(t *testing.T) {
	r := newReceiver(Ring{Size: 256})
	require.NoError(t, r.data(127))
	assert.False(t, r.WantsRing())
	require.NoError(t, r.data(1))
	assert.True(t, r.WantsRing(), "half of it is unread")
	require.NoError(t, r.consume(128))
	assert.False(t, r.WantsRing())
	require.NoError(t, r.data(64))
	require.NoError(t, r.consume(64))
	assert.True(t, r.WantsRing(), "three quarters were used, although all is read")
	require.EqualValues(t, 3, r.creditSent())
	assert.False(t, r.WantsRing())
}

func TestReceiverFull(t *testing.T) {
	r := newReceiver(Ring{Size: 1 << 10})
	require.NoError(t, r.data(921))
	assert.False(t, r.Full(), "more than a tenth is left")
	require.NoError(t, r.data(1))
	assert.True(t, r.Full())
	require.NoError(t, r.consume(922))
	assert.True(t, r.Full(), "the sender does not know")
	r.creditSent()
	assert.False(t, r.Full())
}

// The bytes of rings that were left come out before those of the next, and each ring is
// given back when it is empty.
func TestReceiverChain(t *testing.T) {
	r := newReceiver(Ring{Addr: 0, Size: 256})
	require.NoError(t, r.data(256))
	assert.True(t, r.WantsRing())
	for i := range uint32(MaxRings - 1) {
		require.NoError(t, r.offer(Ring{RKey: i + 1, Size: 256}))
		assert.False(t, r.WantsRing())
		require.NoError(t, r.moved())
		require.NoError(t, r.data(100))
		require.NoError(t, r.data(156))
	}
	require.ErrorIs(t, r.offer(Ring{Size: 256}), ring.ErrGrowing, "there is an end to it")
	require.ErrorIs(t, r.data(1), RuleOverflow)
	for i := range uint32(MaxRings) {
		require.Equal(t, Span{Ring{RKey: i, Size: 256}, 0, 256}, r.Readable())
		require.NoError(t, r.consume(200))
		_, ok := r.Reclaim()
		require.False(t, ok, "it has unread bytes")
		require.Equal(t, Span{Ring{RKey: i, Size: 256}, 200, 56}, r.Readable())
		require.NoError(t, r.consume(56))
		old, ok := r.Reclaim()
		require.Equal(t, i < MaxRings-1, ok, "the last one stays")
		if ok {
			require.Equal(t, i, old.RKey)
		}
	}
	assert.Zero(t, r.Buffered())
	assert.Zero(t, r.Readable().Len)
}

func TestReceiverCreditOfMuch(t *testing.T) {
	r := newReceiver(Ring{Size: MaxRing})
	for range MaxRing / MaxMessage {
		require.NoError(t, r.data(MaxMessage))
	}
	assert.False(t, r.creditDue(), "nothing to tell")
	require.NoError(t, r.consume(MaxRing))
	var told uint64
	for r.creditDue() {
		told += uint64(r.creditSent()) * Granule
	}
	assert.Greater(t, told, uint64(MaxRing/2))
	assert.EqualValues(t, maxGranules, r.creditSent())
}
