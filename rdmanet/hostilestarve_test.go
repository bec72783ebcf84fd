package rdmanet

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

// fill writes until the peer's ring is full.
func fill(t testing.TB, c *Conn) {
	t.Helper()
	n := 0
	again(t, "Write", func() bool { return n >= wireRing }, func() {
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(30*time.Millisecond)))
		m, err := c.Write(make([]byte, 2*wireMaxRing))
		requireTimeout(t, err)
		n += m
	})
	require.Equal(t, wireRing, n)
	require.NoError(t, c.SetWriteDeadline(time.Time{}))
}

func requireTimeout(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
}

// TestHostileNoCredit has a peer that never reads: Writes wait, no longer than
// their deadline and Close say.
func TestHostileNoCredit(t *testing.T) {
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
		_, victim := acceptedVictim(t, fl, wireConfig{})
		fill(t, victim)
		done := make(chan error, 1)
		go func() {
			_, err := victim.Write([]byte{1})
			done <- err
		}()
		inTime(t, soon, "Close", func() { requireClosed(t, victim) })
		require.ErrorIs(t, <-done, net.ErrClosed)
	})
}

// TestHostileNoSlots is TestHostileNoCredit with messages so small that receives
// run out before the ring does.
func TestHostileNoSlots(t *testing.T) {
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
		p, victim := acceptedVictim(t, fl, wireConfig{})
		n := 0
		slots := func() int {
			victim.send.mu.Lock()
			defer victim.send.mu.Unlock()
			return int(victim.send.ring.Slots())
		}
		again(t, "Write", func() bool { return slots() == 0 }, func() {
			require.NoError(t, victim.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
			for {
				if _, err := victim.Write([]byte{1}); err != nil {
					requireTimeout(t, err)
					break
				}
				n++
				// Together they could fill the ring.
				victim.send.mu.Lock()
				victim.send.sendGathered()
				victim.send.mu.Unlock()
			}
		})
		requireClosed(t, victim)
		for range wireDepth - ring.ControlReserve {
			bell := p.heard()
			require.Equal(t, ring.KindData, bell.Kind)
			n -= int(bell.Len)
		}
		require.Zero(t, n, "what Writes took and did not send")
		require.Equal(t, ring.KindClose, p.heard().Kind)
	})
}

// TestHostileNoReceives has a peer that posts none of the receives it announced.
func TestHostileNoReceives(t *testing.T) {
	allFlavours(t, func(t *testing.T, fl flavour) {
		fl = fl.unconfirmed()
		t.Run("and lets us retry for ever", func(t *testing.T) {
			if onIWARP(t) {
				t.Skip("iWARP retries nothing: a message that finds no receive ends the connection, as in the case below")
			}
			_, victim := acceptedVictim(t, fl, wireConfig{recvs: -1})
			fill(t, victim)
			require.NoError(t, victim.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			_, err := victim.Read(make([]byte, 1))
			requireTimeout(t, err)
			require.NoError(t, victim.SetLinger(1))
			requireClosed(t, victim)
		})
		t.Run("and lets us retry once", func(t *testing.T) {
			_, victim := acceptedVictim(t, fl, wireConfig{recvs: -1, rnr: 1})
			_, err := victim.Write([]byte("nobody takes it"))
			require.NoError(t, err)
			requireEnd(t, victim, syscall.ECONNRESET)
		})
	})
}

// TestHostileByteAMinute has a peer that reads, one byte at a time, and rests in between:
// a Write goes on as slowly, asleep, and still ends with its deadline; Close does not wait.
func TestHostileByteAMinute(t *testing.T) {
	const bytes, minute = 20, 10 * time.Millisecond // of a clock that is fast
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
		p, victim := acceptedVictim(t, fl, wireConfig{})
		fill(t, victim)
		memory := MemoryInUse()
		type result struct {
			n   int
			err error
		}
		done := make(chan result, 1)
		write := func() {
			n, err := victim.Write(make([]byte, 1000))
			done <- result{n, err}
		}
		parks := victim.Stats().Parks
		asleep := func() bool { return victim.Stats().Parks > parks }
		go write()
		credit := ring.Credit{Reposted: wireDepth, Size: wireRing}
		for i := range bytes {
			require.Eventually(t, asleep, patience, time.Millisecond, "it does not sleep")
			parks = victim.Stats().Parks
			time.Sleep(minute)
			credit.Consumed++
			// Each byte is a message, which takes a receive.
			credit.Reposted++
			p.credit(credit)
			require.Eventually(t, func() bool { return victim.Stats().BytesWritten == wireRing+uint64(i)+1 }, patience, time.Millisecond)
		}
		require.LessOrEqual(t, MemoryInUse(), memory)
		require.NoError(t, victim.SetWriteDeadline(time.Now().Add(minute)))
		r := <-done
		requireTimeout(t, r.err)
		require.Equal(t, bytes, r.n)

		require.NoError(t, victim.SetWriteDeadline(time.Time{}))
		go write()
		inTime(t, soon, "Close", func() { requireClosed(t, victim) })
		require.ErrorIs(t, (<-done).err, net.ErrClosed)
	})
}
