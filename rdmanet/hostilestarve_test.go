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
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(30*time.Millisecond)))
	n, err := c.Write(make([]byte, 2*wireMaxRing))
	requireTimeout(t, err)
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
	eachFlavour(t, func(t *testing.T, fl flavour) {
		_, victim := acceptedVictim(t, fl, wireConfig{})
		fill(t, victim)
		done := make(chan error, 1)
		go func() {
			_, err := victim.Write([]byte{1})
			done <- err
		}()
		within(t, soon, "Close", func() { requireClosed(t, victim) })
		require.ErrorIs(t, <-done, net.ErrClosed)
	})
}

// TestHostileNoSlots is TestHostileNoCredit with messages so small that receives
// run out before the ring does.
func TestHostileNoSlots(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		p, victim := acceptedVictim(t, fl, wireConfig{})
		n := 0
		require.NoError(t, victim.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		for {
			if _, err := victim.Write([]byte{1}); err != nil {
				break
			}
			n++
		}
		require.Equal(t, wireDepth-ring.ControlReserve, n)
		requireClosed(t, victim)
		for range n {
			require.Equal(t, ring.KindData, p.heard().Kind)
		}
		require.Equal(t, ring.KindClose, p.heard().Kind)
	})
}

// TestHostileNoReceives has a peer that posts none of the receives it announced.
func TestHostileNoReceives(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		t.Run("and lets us retry for ever", func(t *testing.T) {
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
