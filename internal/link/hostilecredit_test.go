package link

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestHostileLeastCredit: a peer gives back the least room that it may, each time when the Write has
// fallen asleep. The Write sends as much as there is room for and sleeps again; it ends with its
// deadline, and Close does not wait for it.
func TestHostileLeastCredit(t *testing.T) {
	const credits = 20
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		m := newBed(t, cfg).wirePair(role, wireConfig{})
		stuff(t, m.ours)
		takeIn := func(n int) { // and give no room back
			t.Helper()
			for n > 0 {
				if d := m.p.heard(); d.Type == lane.TypeData {
					n -= int(d.N)
				}
			}
			require.Zero(t, n, "more than there was room for")
		}
		takeIn(wireRing)
		type result struct {
			n   int
			err error
		}
		done := make(chan result, 1)
		write := func() {
			n, err := m.ours.Write(make([]byte, 1<<16))
			done <- result{n, err}
		}
		parks := func() uint64 { return m.ours.Status().Parks }
		before := parks()
		awaitSleep := func() {
			t.Helper()
			require.Eventually(t, func() bool { return parks() > before }, patience, time.Millisecond, "the Write does not sleep")
			before = parks()
		}
		go write()
		for range credits {
			awaitSleep()
			m.p.pace()
			m.p.imm(lane.Doorbell{Type: lane.TypeCredit, Stream: m.s.id, N: 1}.Imm())
			takeIn(lane.Granule)
		}
		require.NoError(t, m.ours.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		within(t, "a Write with a deadline", func() {
			r := <-done
			require.ErrorIs(t, r.err, os.ErrDeadlineExceeded)
			require.Equal(t, credits*lane.Granule, r.n)
		})
		require.NoError(t, m.ours.SetWriteDeadline(time.Time{}))
		before = parks()
		go write()
		awaitSleep()
		within(t, "Close", func() {
			require.NoError(t, m.ours.Close())
			require.ErrorIs(t, (<-done).err, net.ErrClosed)
		})
	})
}
