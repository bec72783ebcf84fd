package link

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/asktwice"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// unless is how a dialer waits for its turn that leaves when left is closed.
func unless(left <-chan struct{}) func(turn <-chan struct{}) error {
	return func(turn <-chan struct{}) error {
		select {
		case <-turn:
			return nil
		case <-left:
			return errDialerLeft
		}
	}
}

// come has n dialers ask for a lane and stay silent. It returns how many have been answered so
// far, and how many had to leave.
func come(t *testing.T, b *bringUps, closed chan struct{}, n int) (answered, left *atomic.Int32) {
	answered, left = new(atomic.Int32), new(atomic.Int32)
	for range n {
		go func() {
			if b.begin(unless(closed)) != nil {
				return
			}
			u := &arrival{patience: silentTicks}
			u.evict = func() bool { left.Add(1); b.end(u); b.end(u); return true }
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
		require.NoError(t, b.begin(unless(closed)))
		require.Less(t, time.Since(began), 2*time.Second)
		synctest.Wait()
		require.EqualValues(t, 300, answered.Load())
		require.Equal(t, maxBringUps, b.taken)
		require.EqualValues(t, 300+1-maxBringUps, left.Load(), "as many as others needed")

		u := &arrival{patience: silentTicks, evict: func() bool { t.Error("nobody waits for its place"); return true }}
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
			require.NoError(t, b.begin(unless(closed)))
			u := &arrival{patience: silentTicks, evict: func() bool { t.Error("it has spoken"); return true }}
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

// standing is how many lanes l has.
func (l *Listener) standing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lanes)
}

// silentDialers has n connect with a proper first word and say nothing more. They stay until they
// are told to leave, or leave by the function that it returns, or when the test ends.
func (b *bed) silentDialers(n int) (leave func()) {
	var all []func()
	leave = sync.OnceFunc(func() {
		for _, f := range all {
			f()
		}
	})
	b.t.Cleanup(leave)
	for range n {
		id, err := newEventHandler(make(chan *cm.Event, 4)).channel().CreateID(b.links.cfg.CM)
		require.NoError(b.t, err)
		require.NoError(b.t, id.Resolve(b.ctx(), Target{}.Src, b.l.Addr()))
		p, err := newEndpoint(id, &b.links.cfg)
		require.NoError(b.t, err)
		all = append(all, func() {
			require.NoError(b.t, p.destroy())
			require.NoError(b.t, id.Close())
		})
		mine := p.hello(&b.links.cfg, 100, 1, 1)
		require.NoError(b.t, id.Connect(&cm.ConnParam{PrivateData: mine.Encode()}, 0))
	}
	return leave
}

// TestSilentDialers: hundreds connect with a proper first word and say nothing more.
// The listener has a bounded number of lanes for them, and the next client gets through.
func TestSilentDialers(t *testing.T) {
	b := newBed(t, Config{HandshakeTimeout: time.Hour}) // so that all that go give way
	b.silentDialers(150)
	if !strings.HasPrefix(b.links.cfg.CM.Device, "siw") { // where few ask at once, and the first have given way
		require.Eventually(t, func() bool { return b.l.standing() == maxBringUps }, patience, time.Millisecond)
	}
	client, server := b.pair()
	require.Positive(t, b.l.Requests().Evicted)
	say(t, client, server)
	require.LessOrEqual(t, b.l.standing(), maxBringUps+1)
}

// TestDialerHeardLate: one that was told to give way, and turns out not to have been silent,
// stays, and is asked again later.
func TestDialerHeardLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, closed := &bringUps{}, make(chan struct{})
		var asked atomic.Int32
		var late *arrival
		for i := range maxBringUps {
			require.NoError(t, b.begin(unless(closed)))
			u := &arrival{patience: silentTicks}
			u.evict = func() bool { asked.Add(1); return false }
			if i == 0 {
				late = u
			}
			b.answered(u)
		}
		got := make(chan error, 1)
		go func() { got <- b.begin(unless(closed)) }()
		synctest.Wait()
		time.Sleep(silentTick*silentTicks*5/2 + silentTick/2) // between two ticks
		synctest.Wait()
		require.Greater(t, asked.Load(), int32(1))
		require.Empty(t, got)
		b.end(late) // its first message
		require.NoError(t, <-got)
		require.Zero(t, b.leaving)
		close(closed)
	})
}

// spoke reports whether the dialer has said something.
func (e *laneEnd) spoke() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard
}

// TestUnreadFirstMessage: a dialer whose first message has arrived, and was not taken in yet, was not
// silent.
func TestUnreadFirstMessage(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{CM: cm.Options{Device: "failing0"}})
	answered := make(chan *laneEnd, 1)
	failing.OnAcquire(func(what string) error {
		if what == faulty.Accept {
			b.l.mu.Lock()
			for e := range b.l.lanes {
				e.p.channel.(*faulty.CompChannel).Mute(true)
				answered <- e
			}
			b.l.mu.Unlock()
		}
		return nil
	})
	defer failing.OnAcquire(nil)
	to := Target{Dst: b.l.Addr()}
	events := make(chan *cm.Event, 4)
	h := newEventHandler(events)
	id, err := h.channel().CreateID(b.links.cfg.CM)
	require.NoError(t, err)
	require.NoError(t, id.Resolve(b.ctx(), to.Src, to.Dst))
	dialer, err := newLaneEnd(&b.links.cfg, lane.RoleDialer, id, &linkLane{l: b.links, link: &link{l: b.links, target: to}, ready: make(chan struct{})})
	require.NoError(t, err)
	_, err = asktwice.Dial(b.ctx(), to.Dst, func(ctx context.Context, r *asktwice.Request) (struct{}, error) {
		return struct{}{}, dialer.dialer.connect(ctx, events, r)
	})
	require.NoError(t, err)
	h.handOver(dialer)
	defer dialer.fail(ErrLinkClosed)
	listener := <-answered
	require.Eventually(t, func() bool { // its QP may be connected only behind the answer
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		return listener.listener.coming.answered
	}, patience, time.Millisecond)
	require.False(t, listener.spoke())
	dialer.mu.Lock()
	dialer.dialer.wantPlaces(1) // its first message, which wakes nobody
	dialer.settle()
	dialer.mu.Unlock()
	require.Eventually(t, func() bool {
		require.False(t, listener.listener.silent(errGaveWay)) // at first the confirmation, too, may be unread
		return listener.spoke()
	}, patience, time.Millisecond)
	listener.mu.Lock()
	err = listener.err
	listener.mu.Unlock()
	require.NoError(t, err)
	within(t, "places", func() { <-dialer.dialer.up })
}
