package lane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSender(t *testing.T) {
	at := Ring{Addr: 0x1000, RKey: 1, Size: 256}
	s := newSender(at)
	send := func(n int, off, want uint32) {
		t.Helper()
		p := s.Next(n)
		require.Equal(t, Span{s.Ring(), off, want}, p)
		s.wrote(p)
	}
	requireViolation(t, ProtocolError{RuleCredit, 0, 1, 0}, s.credit(1))
	send(200, 0, 200)
	send(100, 200, 56)
	send(100, 0, 0)
	requireViolation(t, ProtocolError{RuleCredit, 0, 5, 4}, s.credit(5))
	require.NoError(t, s.credit(2))
	send(1000, 0, 128)
	assert.Zero(t, s.Free())

	to := Ring{Addr: 0x9000, RKey: 2, Size: 512}
	assert.Zero(t, s.offered.Size)
	require.NoError(t, s.offer(to))
	requireViolation(t, ProtocolError{RuleOffer, 0, 512, 0}, s.offer(to))
	send(1, 128, 0)
	s.move()
	assert.Zero(t, s.offered.Size)
	assert.Equal(t, 512, s.Free(), "what lies in the old ring does not count")
	send(100, 0, 100)
	require.NoError(t, s.credit(4))
	assert.Equal(t, 412, s.Free(), "a credit for the old ring gives nothing in the new one")
	require.NoError(t, s.credit(1))
	assert.Equal(t, 476, s.Free())
	assert.EqualValues(t, 484, s.SentBytes())
}

func TestSenderLongMessage(t *testing.T) {
	s := newSender(Ring{Size: MaxRing})
	assert.EqualValues(t, MaxMessage, s.Next(1<<30).Len)
	assert.Zero(t, s.Next(-1).Len)
}

// TestCreditNeverLost takes every small ring through messages and reads of every size, with
// a move at every byte: a sender without room is owed a credit once all is read.
func TestCreditNeverLost(t *testing.T) {
	for move := 0; move <= 700; move += 13 {
		for _, sizes := range [][2]uint32{{256, 256}, {256, 1024}, {1024, 256}} {
			for _, step := range []int{1, 7, 63, 64, 65, 200, 1 << 16} {
				s, r := newSender(Ring{Size: sizes[0]}), newReceiver(Ring{Size: sizes[0]})
				for s.SentBytes() < 3000 {
					if p := s.Next(step); p.Len > 0 {
						s.wrote(p)
						require.NoError(t, r.data(p.Len))
					} else {
						require.NoError(t, r.consume(int(r.Buffered())))
						require.True(t, r.creditDue(), "sizes %v, step %d, moved at %d", sizes, step, move)
						require.NoError(t, s.credit(r.creditSent()))
					}
					if s.SentBytes() >= uint64(move) && s.Ring().Addr == 0 {
						to := Ring{Addr: 1, Size: sizes[1]}
						require.NoError(t, r.offer(to))
						require.NoError(t, s.offer(to))
						s.move()
						require.NoError(t, r.moved())
					}
				}
			}
		}
	}
}
