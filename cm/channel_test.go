package cm

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestGetEventWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSoft()
		ec := queueOn(t, d)
		_, f := toState(t, ec, d, StateConnecting)
		time.AfterFunc(time.Second, func() { f.emit(Established) })
		start := time.Now()
		ev, err := ec.GetEvent(t.Context())
		require.NoError(t, err)
		require.Equal(t, Established, ev.Type)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// Every one of several waiters gets an event, however they come bunched.
func TestGetEventWakesEveryWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSoft()
		ec := queueOn(t, d)
		_, fl := toState(t, ec, d, StateListening)
		const n = 8
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				ev, err := ec.GetEvent(t.Context())
				if err == nil {
					err = ev.ID.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for range n {
			d.request(fl, "")
		}
		wg.Wait()
		requireEmpty(t, ec)
	})
}

// Two events may leave one token, if nobody waits; whoever takes it passes it on.
func TestTheTokenIsPassedOn(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	_, f := toState(t, ec, d, StateConnected)
	f.emit(AddrChange)
	f.emit(Disconnected)
	<-ec.ready
	mustGet(t, ec, AddrChange)
	require.Len(t, ec.ready, 1)
	<-ec.ready
	mustGet(t, ec, Disconnected)
	require.Empty(t, ec.ready)
}

func TestGetEventEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ec := queueOn(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := ec.GetEvent(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))

		cause := errors.New("cause")
		ctx, stop := context.WithCancelCause(t.Context())
		stop(cause)
		_, err = ec.GetEvent(ctx)
		require.ErrorIs(t, err, cause)
	})
}

func TestAnEventThatIsThereBeatsTheContext(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	_, f := toState(t, ec, d, StateConnecting)
	f.emit(Established)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ec.GetEvent(ctx)
	require.NoError(t, err)
}

func TestChannelClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSoft()
		ec := queueOn(t, d)
		l, fl := toState(t, ec, d, StateListening)
		_, f := toState(t, ec, d, StateConnected)
		waiter := make(chan error)
		other := NewEventChannel()
		go func() {
			_, err := other.GetEvent(context.Background())
			waiter <- err
		}()
		synctest.Wait()
		require.NoError(t, other.Close())
		require.ErrorIs(t, <-waiter, verbs.ErrClosed)

		req := d.request(fl, "")
		require.NoError(t, ec.Close())
		require.NoError(t, ec.Close())
		require.True(t, req.closed(), "a request that nobody took is closed")
		_, err := ec.GetEvent(t.Context())
		require.ErrorIs(t, err, verbs.ErrClosed)
		_, err = ec.CreateID(Options{})
		require.ErrorIs(t, err, verbs.ErrClosed)
		require.True(t, d.request(fl, "").closed(), "as is one that comes later")
		f.emit(Disconnected)

		require.Equal(t, StateListening, l.State(), "ids are their owners' to close")
		require.NoError(t, l.Close())
	})
}

func TestGetEventNeedsAQueue(t *testing.T) {
	ec := NewHandlerChannel(func(*Event) {})
	_, err := ec.GetEvent(t.Context())
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.NoError(t, ec.Close())
}

// What comes unasked is queued once, so that no driver fills the queue.
func TestUnaskedEventsAreQueuedOnce(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	_, a := toState(t, ec, d, StateConnected)
	_, b := toState(t, ec, d, StateConnected)
	for range 100 {
		for _, f := range []*fakeID{a, b} {
			for _, ev := range allEvents {
				if unasked(ev) {
					f.emit(ev)
				}
			}
		}
	}
	for range 12 {
		ev, err := ec.next()
		require.NoError(t, err)
		require.NotNil(t, ev)
	}
	requireEmpty(t, ec)
	a.emit(AddrChange)
	mustGet(t, ec, AddrChange)
}

func TestCloseOfAnIDDropsItsEvents(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	id, f := toState(t, ec, d, StateConnected)
	_, other := toState(t, ec, d, StateConnected)
	l, fl := toState(t, ec, d, StateListening)
	f.emit(Disconnected)
	other.emit(AddrChange)
	req := d.request(fl, "")
	req.emit(Disconnected)
	require.NoError(t, id.Close())
	require.NoError(t, l.Close())
	require.True(t, req.closed())
	mustGet(t, ec, AddrChange)
	requireEmpty(t, ec)
	f.emit(TimewaitExit)
	requireEmpty(t, ec)
	require.True(t, d.request(fl, "").closed(), "a request that comes to a closed id")
	requireEmpty(t, ec)
}

func TestHandlerChannel(t *testing.T) {
	d := newSoft()
	var got []EventType
	var id *ID
	ec := onDrivers(t, NewHandlerChannel(func(ev *Event) {
		got = append(got, ev.Type)
		var err error
		switch ev.Type {
		case AddrResolved:
			err = ev.ID.ResolveRoute(0)
		case RouteResolved:
			err = ev.ID.Connect(nil, 0)
		case Disconnected:
			err = ev.ID.Close()
		}
		require.NoError(t, err)
		require.Same(t, id, ev.ID)
	}), d)
	// A driver may answer before the call returns; what it says then follows the
	// handler that is running, it does not interrupt it.
	d.prepare = func(f *fakeID) {
		f.answer = func(f *fakeID, call string, _ time.Duration) {
			f.emit(map[string]EventType{"ResolveAddr": AddrResolved, "ResolveRoute": RouteResolved, "Connect": Established}[call])
		}
	}
	id = newID(t, ec, Options{})
	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(loopback, 1), 0))
	d.last().emit(Disconnected)
	d.last().emit(TimewaitExit)
	require.Equal(t, []EventType{AddrResolved, RouteResolved, Established, Disconnected}, got)
	require.Zero(t, d.open())
}

// What happens to a request is told after the handler returned from the request,
// and the handler may put the new id on a channel of its own.
func TestHandlerRequest(t *testing.T) {
	d := newSoft()
	var log []string
	own := NewHandlerChannel(func(ev *Event) { log = append(log, "own "+ev.Type.String()) })
	ec := onDrivers(t, NewHandlerChannel(func(ev *Event) {
		log = append(log, "listener "+ev.Type.String())
		require.NoError(t, ev.ID.Migrate(own))
		require.NoError(t, ev.ID.Accept(nil))
		log = append(log, "returned")
	}), d)
	d.prepare = func(*fakeID) {}
	l := newID(t, ec, Options{})
	require.NoError(t, l.BindAddr(netip.AddrPortFrom(loopback, 1)))
	require.NoError(t, l.Listen(1))
	fl := d.last()

	f := &fakeID{driver: d, sink: fl.currentSink(), answer: func(f *fakeID, _ string, _ time.Duration) { f.emit(Established) }}
	fl.emit(ConnectRequest, func(ev *driver.CMEvent) { ev.ID = f })
	f.emit(Disconnected)
	require.Equal(t, []string{"listener CONNECT_REQUEST", "returned", "own ESTABLISHED", "own DISCONNECTED"}, log)
}

func TestHandlerChannelClose(t *testing.T) {
	d := newSoft()
	calls := 0
	ec := onDrivers(t, NewHandlerChannel(func(*Event) { calls++ }), d)
	l := newID(t, ec, Options{})
	require.NoError(t, l.BindAddr(netip.AddrPortFrom(loopback, 1)))
	require.NoError(t, l.Listen(1))
	require.NoError(t, ec.Close())
	require.True(t, d.request(d.last(), "").closed())
	require.Zero(t, calls)
}

// Events of one id never overlap, from whichever device they come.
func TestHandlerIsCalledOneAtATime(t *testing.T) {
	a, b := newSoft(), newNIC()
	var mu sync.Mutex
	running, n := 0, 0
	ec := onDrivers(t, NewHandlerChannel(func(ev *Event) {
		mu.Lock()
		running++
		if running != 1 {
			t.Error("two calls at once")
		}
		n++
		mu.Unlock()
		_ = ev.ID.Close()
		mu.Lock()
		running--
		mu.Unlock()
	}), a, b)
	l := newID(t, ec, Options{})
	require.NoError(t, l.BindAddr(netip.AddrPortFrom(wildcard, 1)))
	require.NoError(t, l.Listen(1))
	fa, fb := a.last(), b.last()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				a.request(fa, "")
			}
		})
		wg.Go(func() {
			for range 100 {
				b.request(fb, "")
			}
		})
	}
	wg.Wait()
	require.Equal(t, 800, n)
	require.NoError(t, l.Close())
	require.Zero(t, a.open()+b.open())
}

func TestMigrate(t *testing.T) {
	d := newSoft()
	from, to := queueOn(t, d), queueOn(t, d)
	l, fl := toState(t, from, d, StateListening)
	_, other := toState(t, from, d, StateConnected)
	req := d.request(fl, "")
	req.emit(ConnectError)
	other.emit(AddrChange)
	d.request(fl, "")

	require.NoError(t, l.Migrate(to))
	mustGet(t, from, AddrChange)
	requireEmpty(t, from)
	// Requests that nobody took move with their listening id, and what was told of
	// them stays behind their requests.
	ev := mustGet(t, to, ConnectRequest)
	require.Same(t, ev.ID, mustGet(t, to, ConnectError).ID)
	second := mustGet(t, to, ConnectRequest)
	requireEmpty(t, to)
	d.request(fl, "")
	third := mustGet(t, to, ConnectRequest)

	// One that was taken stays where it is.
	require.NoError(t, l.Migrate(from))
	d.last().emit(ConnectError)
	require.Same(t, third.ID, mustGet(t, to, ConnectError).ID)
	require.NoError(t, second.ID.Close())
	require.NoError(t, ev.ID.Close())
	require.NoError(t, third.ID.Close())

	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Migrate(to), verbs.ErrClosed)
	require.NoError(t, to.Close())
	id := newID(t, from, Options{})
	require.ErrorIs(t, id.Migrate(to), verbs.ErrClosed)
}

func TestMigrateToAHandler(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	l, fl := toState(t, ec, d, StateListening)
	req := d.request(fl, "")
	req.emit(ConnectError)
	var got []EventType
	require.NoError(t, l.Migrate(NewHandlerChannel(func(ev *Event) {
		got = append(got, ev.Type)
		if ev.Type == ConnectError {
			require.NoError(t, ev.ID.Close())
		}
	})))
	require.Equal(t, []EventType{ConnectRequest, ConnectError}, got)
	requireEmpty(t, ec)
	require.True(t, req.closed())
}

// TestMigratedHandlerCloses has the handler of a request that has moved close its listener:
// the request behind it is refused, and nobody hears of it.
func TestMigratedHandlerCloses(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	l, fl := toState(t, ec, d, StateListening)
	d.request(fl, "")
	second := d.request(fl, "")
	var got []EventType
	require.NoError(t, l.Migrate(NewHandlerChannel(func(ev *Event) {
		got = append(got, ev.Type)
		require.NoError(t, ev.ID.Close())
		require.NoError(t, l.Close())
	})))
	require.Equal(t, []EventType{ConnectRequest}, got)
	require.True(t, second.closed())
}

// Migrating from inside a handler takes effect with the next event.
func TestMigrateInsideAHandler(t *testing.T) {
	d := newSoft()
	queue := queueOn(t, d)
	ec := onDrivers(t, NewHandlerChannel(func(ev *Event) { require.NoError(t, ev.ID.Migrate(queue)) }), d)
	id := newID(t, ec, Options{})
	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(loopback, 1), 0))
	d.last().emit(AddrResolved)
	requireEmpty(t, queue)
	d.last().emit(AddrChange)
	mustGet(t, queue, AddrChange)
}
