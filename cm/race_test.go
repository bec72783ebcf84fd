package cm

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every method at once, on dialing and listening ids, with a driver that answers
// at once: nothing races, blocks or stays open. What the calls return is chance.
func TestEverythingAtOnce(t *testing.T) {
	for range 50 {
		a, b := newSoft(), newNIC()
		good := map[string]EventType{"ResolveAddr": AddrResolved, "ResolveRoute": RouteResolved, "Connect": Established, "Accept": Established, "Disconnect": Disconnected}
		for _, d := range []*fakeDriver{a, b} {
			d.prepare = func(f *fakeID) {
				f.answer = func(f *fakeID, call string, _ time.Duration) { f.emit(good[call]) }
			}
		}
		queue := queueOn(t, a, b)
		handler := onDrivers(t, NewHandlerChannel(func(ev *Event) {
			if ev.Type == ConnectRequest {
				_ = ev.ID.Accept(nil)
				_ = ev.ID.Close()
			}
		}), a, b)
		ctx, cancel := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		readers.Go(func() {
			for {
				ev, err := queue.GetEvent(ctx)
				if err != nil {
					return
				}
				if ev.Type == ConnectRequest {
					_ = ev.ID.Reject(nil)
					_ = ev.ID.Close()
				}
			}
		})

		dial, listen := newID(t, queue, Options{}), newID(t, handler, Options{})
		dst := netip.AddrPortFrom(hostAddr, 4000)
		emit := func(d *fakeDriver, ev EventType) {
			d.mu.Lock()
			ids := append([]*fakeID(nil), d.ids...)
			d.mu.Unlock()
			for _, f := range ids {
				f.emit(ev)
			}
		}
		request := func(d *fakeDriver) {
			d.mu.Lock()
			ids := append([]*fakeID(nil), d.ids...)
			d.mu.Unlock()
			for _, f := range ids {
				if f.LocalAddr().Addr() == wildcard {
					d.request(f, "")
				}
			}
		}
		require.NoError(t, listen.BindAddr(netip.AddrPortFrom(wildcard, 4000)))
		require.NoError(t, listen.Listen(1))

		start := make(chan struct{})
		var wg sync.WaitGroup
		for _, f := range []func(){
			func() { _ = dial.Resolve(ctx, netip.AddrPort{}, dst); _ = dial.Connect(nil, 0); _ = dial.Disconnect() },
			func() { _ = dial.ResolveAddr(netip.AddrPort{}, dst, 0); _ = dial.ResolveRoute(0) },
			func() { _ = dial.Migrate(handler); _ = dial.Migrate(queue) },
			func() { _, _ = dial.CreateQP(nil, nil); _ = dial.Device(); _ = dial.Verbs() },
			func() { _ = dial.LocalAddr(); _ = dial.RemoteAddr(); _ = dial.State(); _ = listen.ListenStats() },
			func() { _ = listen.Migrate(queue); request(a); _ = listen.Migrate(handler) },
			func() { request(a); request(b) },
			func() { emit(a, AddrChange); emit(b, Disconnected); emit(a, ConnectError) },
			func() { _ = dial.Close() },
			func() { _ = listen.Close() },
		} {
			wg.Go(func() { <-start; f() })
		}
		close(start)
		wg.Wait()
		require.NoError(t, dial.Close())
		require.NoError(t, listen.Close())
		cancel()
		readers.Wait()
		require.NoError(t, queue.Close())
		require.Zero(t, a.open()+b.open())
	}
}
