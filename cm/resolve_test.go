package cm

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// answerAfter makes ids answer after a delay, or fail when their timeout is over.
func answerAfter(delay time.Duration) func(*fakeID) {
	good := map[string]EventType{"ResolveAddr": AddrResolved, "ResolveRoute": RouteResolved}
	bad := map[string]EventType{"ResolveAddr": AddrError, "ResolveRoute": RouteError}
	return func(f *fakeID) {
		f.answer = func(f *fakeID, call string, timeout time.Duration) {
			event, known := good[call]
			switch {
			case !known: // the test answers it
				return
			case delay < timeout:
				time.AfterFunc(delay, func() { f.emit(event) })
				return
			}
			time.AfterFunc(timeout, func() { f.emit(bad[call], withErr(os.ErrDeadlineExceeded)) })
		}
	}
}

var resolveDst = netip.AddrPortFrom(loopback, 4000)

func TestResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSoft()
		d.prepare = answerAfter(time.Second)
		ec := queueOn(t, d)
		id := newID(t, ec, Options{})
		start := time.Now()
		require.NoError(t, id.Resolve(t.Context(), netip.AddrPort{}, resolveDst))
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, StateRouteResolved, id.State())
		requireEmpty(t, ec)
		require.NoError(t, id.Connect(nil, 0))
		d.last().emit(Established)
		mustGet(t, ec, Established)
	})
}

// The driver is given what the context has left, and its own default otherwise.
func TestResolveTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSoft()
		d.prepare = answerAfter(time.Second)
		ec := queueOn(t, d)

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.NoError(t, newID(t, ec, Options{}).Resolve(ctx, netip.AddrPort{}, resolveDst))
		require.Equal(t, 2*time.Second, d.last().timeout, "one second is spent")

		d.prepare = answerAfter(time.Hour)
		id := newID(t, ec, Options{})
		start := time.Now()
		err := id.Resolve(t.Context(), netip.AddrPort{}, resolveDst)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var re *ResolveError
		require.ErrorAs(t, err, &re)
		require.Equal(t, DefaultResolveTimeout, time.Since(start))
		require.Equal(t, StateIdle, id.State())

		d.prepare = nil // a driver that never answers
		ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start = time.Now()
		id = newID(t, ec, Options{})
		err = id.Resolve(ctx, netip.AddrPort{}, resolveDst)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, StateAddrResolving, id.State())

		made := len(d.ids)
		require.ErrorIs(t, newID(t, ec, Options{}).Resolve(ctx, netip.AddrPort{}, resolveDst), context.DeadlineExceeded)
		require.Len(t, d.ids, made, "no driver is asked in vain")
	})
}

func TestResolveFails(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	require.ErrorIs(t, newID(t, ec, Options{}).Resolve(t.Context(), netip.AddrPort{}, netip.AddrPortFrom(farAddr, 1)), verbs.ErrNoRoute)

	d.prepare = func(f *fakeID) {
		f.answer = func(f *fakeID, call string, _ time.Duration) {
			if call == "ResolveRoute" {
				f.emit(RouteError, withErr(verbs.ErrNoRoute))
				return
			}
			f.emit(AddrResolved)
		}
	}
	err := newID(t, ec, Options{}).Resolve(t.Context(), netip.AddrPort{}, resolveDst)
	require.ErrorIs(t, err, verbs.ErrNoRoute)
	require.ErrorContains(t, err, "resolving the route of 127.0.0.1:4000")

	connected, _ := toState(t, ec, newSoft(), StateIdle)
	require.NoError(t, connected.BindAddr(resolveDst))
	require.NoError(t, connected.Listen(1))
	require.ErrorIs(t, connected.Resolve(t.Context(), netip.AddrPort{}, resolveDst), verbs.ErrState)
	requireEmpty(t, ec)
}

// Events that Resolve has no use for wait for the id's own channel.
func TestResolveKeepsOtherEvents(t *testing.T) {
	d := newSoft()
	d.prepare = func(f *fakeID) {
		f.answer = func(f *fakeID, call string, _ time.Duration) {
			f.emit(AddrChange)
			f.emit(map[string]EventType{"ResolveAddr": AddrResolved, "ResolveRoute": RouteResolved}[call])
			f.emit(MulticastJoin)
		}
	}
	var got []EventType
	handler := onDrivers(t, NewHandlerChannel(func(ev *Event) { got = append(got, ev.Type) }), d)
	id := newID(t, handler, Options{})
	require.NoError(t, id.Resolve(t.Context(), netip.AddrPort{}, resolveDst))
	// The second MulticastJoin came while the first was queued.
	require.Equal(t, []EventType{AddrChange, MulticastJoin, AddrChange}, got)

	d.prepare = func(f *fakeID) {
		f.answer = func(f *fakeID, _ string, _ time.Duration) { f.emit(DeviceRemoval) }
	}
	got = nil
	id = newID(t, handler, Options{})
	require.ErrorIs(t, id.Resolve(t.Context(), netip.AddrPort{}, resolveDst), ErrDeviceRemoved)
	require.Equal(t, []EventType{DeviceRemoval}, got)
	require.Equal(t, StateDisconnected, id.State())
}

func TestCloseEndsResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSoft()
		id := newID(t, queueOn(t, d), Options{})
		result := make(chan error)
		go func() { result <- id.Resolve(context.Background(), netip.AddrPort{}, resolveDst) }()
		synctest.Wait()
		require.ErrorIs(t, id.Migrate(queueOn(t, d)), verbs.ErrState)
		require.NoError(t, id.Close())
		require.ErrorIs(t, <-result, verbs.ErrClosed)
		require.Zero(t, d.open())
	})
}
