//go:build linux && (amd64 || arm64)

package soft

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestRNRTimers(t *testing.T) {
	require.Equal(t, 655360*time.Microsecond, rnrDelay(0))
	require.Equal(t, 10*time.Microsecond, rnrDelay(1))
	require.Equal(t, 640*time.Microsecond, rnrDelay(12))
	require.Equal(t, 491520*time.Microsecond, rnrDelay(31))
}

func TestAckTimeout(t *testing.T) {
	require.Zero(t, ackTimeout(&verbs.QPAttr{Timeout: 0, RetryCnt: 7}))
	require.Equal(t, 4096*8*time.Nanosecond*3, ackTimeout(&verbs.QPAttr{Timeout: 3, RetryCnt: 2}))
	require.Positive(t, ackTimeout(&verbs.QPAttr{Timeout: 31, RetryCnt: 7}))
}

func TestRNRRetriesRunOut(t *testing.T) {
	c := defaults()
	c.rnrRetry = 3
	a, b := newConnected(t, c)
	wr := writeImm(b, 0, []byte("not written"), 1)
	wr.WRID = 1
	a.post(wr)
	a.post(write(b, 100, []byte("nor this")))
	wc := a.next()
	require.EqualValues(t, 1, wc.WRID)
	require.Equal(t, verbs.WCRNRRetryExcErr, wc.Status)
	require.Equal(t, verbs.WCWRFlushErr, a.next().Status)
	require.Equal(t, verbs.QPErr, a.qp.State())
	require.EqualValues(t, 4, a.qp.QPStats().RNRNaks, "one attempt and three retries")
	require.Equal(t, make([]byte, 200), b.bytes(0, 200))
	// The responder knows nothing of it.
	require.Equal(t, verbs.QPRTS, b.qp.State())
}

// TestRNRKeepsOrder: requests behind one that waits wait too.
func TestRNRKeepsOrder(t *testing.T) {
	a, b := newConnected(t, defaults())
	for i := range 20 {
		wr := writeImm(b, 0, []byte{byte(i)}, uint32(i))
		if i == 19 {
			wr.Flags |= verbs.SendSignaled
		}
		a.post(wr)
	}
	for i := range 20 {
		b.postRecv(1, 0)
		require.EqualValues(t, i, b.next().ImmData)
	}
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	require.EqualValues(t, 19, b.bytes(0, 1)[0])
	require.NotZero(t, a.qp.QPStats().RNRNaks)
}

// TestPostBeforePeerIsUp: what is posted before the other end is up waits for it.
func TestPostBeforePeerIsUp(t *testing.T) {
	c := defaults()
	a, b := newSide(t, c), newSide(t, c)
	sa, sb, err := control.SocketPair()
	require.NoError(t, err)
	a.offerTo(sa)
	b.offerTo(sb)
	require.NoError(t, a.attachFrom(sa))
	attr := verbs.QPAttr{AccessFlags: c.access, PathMTU: verbs.MTU4096, RNRRetry: 7, RetryCnt: 7, Timeout: 0}
	require.NoError(t, a.qp.toRTS(attr))
	wr := writeImm(b, 0, []byte("early"), 9)
	wr.Flags |= verbs.SendSignaled
	a.post(wr)
	a.none()
	b.postRecv(1, 0)
	require.NoError(t, b.attachFrom(sb))
	a.none()
	require.NoError(t, b.qp.toRTS(attr))
	require.EqualValues(t, 9, b.next().ImmData)
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	require.Equal(t, "early", string(b.bytes(0, 5)))
}

// TestQueueFull: slots come back when a later signalled completion is polled.
func TestQueueFull(t *testing.T) {
	c := defaults()
	c.depth = 4
	a, b := newConnected(t, c)
	wr := write(b, 0, nil)
	for range 3 {
		a.post(wr)
	}
	wr.Flags |= verbs.SendSignaled
	a.post(wr)
	n, err := a.qp.PostSend([]verbs.SendWR{wr, wr})
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Zero(t, n)
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	n, err = a.qp.PostSend([]verbs.SendWR{wr, wr, wr, wr, wr})
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Equal(t, 4, n)
}

// TestLocalInvWaits: a LOCAL_INV that waits for the peer goes on waiting when that answers what it was asked before.
func TestLocalInvWaits(t *testing.T) {
	a, b := newConnected(t, defaults())
	data := bytes.Repeat([]byte("long"), 100<<10) // more than the bounce area holds
	_, err := b.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGList: []verbs.SGE{b.sge(0, len(data))}}})
	require.NoError(t, err)
	a.post(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: data})
	a.post(verbs.SendWR{Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, ImmData: a.mr.RKey()})
	require.Equal(t, verbs.WCSuccess, b.next().Status)
	require.Equal(t, verbs.WCSuccess, a.next().Status)
}
