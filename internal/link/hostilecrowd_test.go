package link

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestHalfOpenTenThousand: ten thousand ask for a lane and say nothing behind it. No more of them
// than maxBringUps have one at a time, and whoever asks in the midst of them has its turn soon.
func TestHalfOpenTenThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const crowd, waiting = 10_000, cmBacklog // the others wait at their dialers
		b, closed := &bringUps{}, make(chan struct{})
		var evicted []*atomic.Int32
		more := func(n int) {
			_, left := come(t, b, closed, n)
			evicted = append(evicted, left)
		}
		more(maxBringUps + waiting)
		for asked := maxBringUps + waiting; asked < crowd; {
			began := time.Now()
			require.True(t, b.begin(closed))
			b.end(&arrival{}) // it has spoken
			require.Less(t, time.Since(began), 2*time.Second, "after %d", asked)
			synctest.Wait()
			require.LessOrEqual(t, b.taken, maxBringUps)
			require.LessOrEqual(t, len(b.silent), maxBringUps)
			n := min(waiting-len(b.waiting), crowd-asked)
			more(n)
			asked += n
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, b.waiting)
		all := int32(0)
		for _, n := range evicted {
			all += n.Load()
		}
		require.EqualValues(t, crowd-maxBringUps, all, "the last have nobody behind them")
	})
}

// standing is how many lanes l has.
func (l *Listener) standing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lanes)
}

// TestHalfOpenCrowd: hundreds have their lanes and say nothing on them, more than there are places
// for, again and again. What they hold is bounded, and honest dialers get in among them.
func TestHalfOpenCrowd(t *testing.T) {
	const held = maxBringUps + 110 // strangers that are there at once
	crowd, every := 600, 150
	if testing.Short() {
		crowd, every = 320, 160
	}
	b := newBed(t, Config{HandshakeTimeout: time.Hour})
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	before := heap()
	var there []*wirePeer
	for i := range crowd {
		p := newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device})
		require.NoError(t, p.id.Resolve(b.ctx(), Target{}.Src, b.l.Addr()))
		p.makeQP()
		require.NoError(t, p.id.Connect(p.param(), 0))
		if there = append(there, p); len(there) > held {
			there[0].close()
			there = there[1:]
		}
		if i%every == every-1 {
			client, err := b.anotherLinks().Dial(b.ctx(), Target{Dst: b.l.Addr()})
			require.NoError(t, err)
			server := b.accept()
			say(t, client, server)
			require.NoError(t, client.Close())
			require.NoError(t, server.Close())
			require.LessOrEqual(t, b.l.standing(), maxBringUps+crowd/every)
			require.Less(t, heap()-before, int64(64<<20))
		}
	}
	for _, p := range there {
		p.close()
	}
	require.Positive(t, b.l.Requests().Evicted+b.l.Requests().Failed)
	require.Eventually(t, func() bool { return b.l.standing() <= crowd/every }, patience, time.Millisecond, "nothing is left of the strangers")
}

// TestHalfOpenStay: one that takes its time stays where nobody wants its place, however many come
// and go beside it.
func TestHalfOpenStay(t *testing.T) {
	b := newBed(t, Config{HandshakeTimeout: time.Hour})
	p := newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device})
	p.dial(b.l.Addr())
	for began := time.Now(); time.Since(began) < 2*silentTick*silentTicks; {
		client, server := b.stranger()
		say(t, client, server)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
	require.Equal(t, Requests{}, b.l.Requests())
	s := p.open() // and is served when it speaks at last
	victim := b.accept()
	p.write(s, []byte("a"))
	_, err := victim.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, victim.Close())

	left := newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device})
	left.dial(b.l.Addr())
	left.vanish()
	require.Eventually(t, func() bool { return b.l.Requests() == Requests{Failed: 1} }, patience, time.Millisecond, "%+v", b.l.Requests())
}

// TestWaitingDialsLeave: dials that wait for a place leave while none comes. Nothing of the backlog
// is lost by it, and dials behind them are served, all of them.
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
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var left []<-chan dialled
		for range dials {
			left = append(left, b.dialBehind(ctx, b.l.Addr()))
		}
		require.Eventually(t, func() bool { return waiting() == dials }, patience, time.Millisecond)
		leave()
		within(t, "dials that leave", func() {
			for _, d := range left {
				require.ErrorIs(t, (<-d).err, context.Canceled)
			}
		})
		require.Zero(t, waiting())
		n, all := b.l.Opened()
		require.Equal(t, backlog, n, "and no place has come")
		require.EqualValues(t, backlog, all)

		var stay []<-chan dialled
		for range dials {
			stay = append(stay, b.dialBehind(b.ctx(), b.l.Addr()))
		}
		require.Eventually(t, func() bool { return waiting() == dials }, patience, time.Millisecond)
		within(t, "dials that wait", func() {
			for range backlog + dials {
				ends = append(ends, b.accept())
			}
			for _, d := range stay {
				d := <-d
				require.NoError(t, d.err)
				ends = append(ends, d.s)
			}
		})
	})
}
