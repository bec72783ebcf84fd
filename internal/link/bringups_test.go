package link

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// come has n dialers ask for a lane and stay silent. It returns how many have been answered so
// far, and how many had to leave.
func come(t *testing.T, b *bringUps, closed chan struct{}, n int) (answered, left *atomic.Int32) {
	answered, left = new(atomic.Int32), new(atomic.Int32)
	for range n {
		go func() {
			if !b.begin(closed) {
				return
			}
			u := &arrival{patience: silentTicks}
			u.evict = func() { left.Add(1); b.end(u); b.end(u) }
			b.answered(u)
			answered.Add(1)
		}()
		synctest.Wait()
	}
	return answered, left
}

// TestSilentDialersGiveWay: hundreds that say nothing are answered a few at a time, and who
// comes behind them has its turn soon.
func TestSilentDialersGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, closed := &bringUps{}, make(chan struct{})
		answered, left := come(t, b, closed, 300)
		require.EqualValues(t, maxBringUps, answered.Load())
		began := time.Now()
		require.True(t, b.begin(closed))
		require.Less(t, time.Since(began), 2*time.Second)
		synctest.Wait()
		require.EqualValues(t, 300, answered.Load())
		require.Equal(t, maxBringUps, b.taken)
		require.EqualValues(t, 300+1-maxBringUps, left.Load(), "as many as others needed")

		u := &arrival{patience: silentTicks, evict: func() { t.Error("nobody waits for its place") }}
		b.answered(u)
		time.Sleep(time.Hour)
		b.end(u)
		require.Equal(t, maxBringUps-1, b.taken)
		require.EqualValues(t, 300+1-maxBringUps, left.Load())
		synctest.Wait()
		require.False(t, b.ticking)
	})
}

// TestSpokenDialersStay: one that has spoken has given its place back, and is not told to go.
func TestSpokenDialersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, closed := &bringUps{}, make(chan struct{})
		for range 3 * maxBringUps {
			require.True(t, b.begin(closed))
			u := &arrival{patience: silentTicks, evict: func() { t.Error("it has spoken") }}
			b.answered(u)
			b.end(u)
		}
		require.Zero(t, b.taken)
		_, left := come(t, b, closed, 2*maxBringUps)
		close(closed) // who waits leaves
		synctest.Wait()
		time.Sleep(time.Hour)
		require.Empty(t, b.waiting)
		require.Zero(t, left.Load())
	})
}

// TestStrangersThatSayNothing: hundreds connect with a proper first word and say nothing more.
// The listener has a bounded number of lanes for them, and the next client gets through.
func TestStrangersThatSayNothing(t *testing.T) {
	b := newBed(t, Config{})
	lanes := func() int {
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		return len(b.l.lanes)
	}
	const strangers = 150
	for range strangers {
		events := make(chan *cm.Event, 4)
		id, err := newEventHandler(events).channel().CreateID(b.links.cfg.CM)
		require.NoError(t, err)
		require.NoError(t, id.Resolve(b.ctx(), Target{}.Src, b.l.Addr()))
		p, err := newEndpoint(id, &b.links.cfg)
		require.NoError(t, err)
		mine := p.hello(100, 1)
		require.NoError(t, id.Connect(&cm.ConnParam{PrivateData: mine.put()}, 0))
		t.Cleanup(func() {
			require.NoError(t, p.destroy())
			require.NoError(t, id.Close())
		})
	}
	require.Eventually(t, func() bool { return lanes() == maxBringUps }, patience, time.Millisecond)
	client, server := b.pair()
	say(t, client, server)
	require.LessOrEqual(t, lanes(), maxBringUps+1)
}
