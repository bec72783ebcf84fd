package link

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWaitingDialsLeave: dials that wait for a place are given up while none comes. They take no
// place with them, and the dials behind them are served, all of them.
func TestWaitingDialsLeave(t *testing.T) {
	const backlog, dials = 2, 12
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Backlog, cfg.Places = backlog, backlog
		b := newBed(t, cfg)
		var ends []*Stream
		t.Cleanup(func() {
			for _, s := range ends {
				_ = s.Close()
			}
		})
		for range backlog {
			ends = append(ends, b.dial())
		}
		waiting := func() (n int) {
			dialled, _ := lanesOf(b.l)
			for _, s := range dialled {
				n += s.Waiting
			}
			return n
		}
		wait := func(ctx context.Context) (all []<-chan dialled) {
			t.Helper()
			for range dials {
				all = append(all, b.dialBehind(ctx, b.l.Addr()))
			}
			require.Eventually(t, func() bool { return waiting() == dials }, patience, time.Millisecond, "dials do not wait")
			return all
		}
		ctx, leave := context.WithCancel(b.ctx())
		defer leave()
		left := wait(ctx)
		leave()
		for _, d := range left {
			require.ErrorIs(t, (<-d).err, context.Canceled)
		}
		require.Zero(t, waiting())

		stay := wait(b.ctx())
		for range backlog + dials {
			ends = append(ends, b.accept())
		}
		for _, d := range stay {
			d := <-d
			require.NoError(t, d.err)
			ends = append(ends, d.s)
		}
		_, all := b.l.Opened()
		require.EqualValues(t, backlog+dials, all, "a dial that was given up has opened a stream")
	})
}
