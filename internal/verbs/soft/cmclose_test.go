//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
)

// TestCloseAtEveryMoment closes one id, and its QP before it or not, while it and
// others make and end a connection.
func TestCloseAtEveryMoment(t *testing.T) {
	noLeaks(t)
	for _, closing := range []string{"dialer", "listener", "accepted"} {
		for delay := range 40 {
			closeWhile(t, closing, delay)
		}
	}
}

func closeWhile(t *testing.T, closing string, delay int) {
	l := listenAt(t, "127.0.0.1:0", 2, driver.CMOptions{})
	d := resolved(t, l.LocalAddr(), driver.CMOptions{})

	var closer sync.WaitGroup
	strike := func(id *testID) {
		var closed atomic.Bool
		id.SetSink(func(ev driver.CMEvent) {
			// Accepted ids inherit the listener's sink and outlive it.
			own := ev.ID == id.CMID || ev.Type == driver.CMConnectRequest
			if own && closed.Load() {
				t.Error("event after Close:", ev.Type)
			}
			id.events <- ev
		})
		closer.Go(func() {
			for range delay * 20 {
				runtime.Gosched()
			}
			if delay%2 == 0 && id.qp != nil {
				id.qp.Close()
			}
			id.Close()
			closed.Store(true)
		})
	}
	serve := func(ev driver.CMEvent) {
		a := &testID{CMID: ev.ID, t: t, events: make(chan driver.CMEvent, 64)}
		a.createQP()
		if closing == "accepted" {
			strike(a)
		}
		_ = a.Accept(nil)
		_ = a.Disconnect()
		closer.Wait()
		a.close()
	}

	switch closing {
	case "dialer":
		strike(d)
	case "listener":
		strike(l)
	}
	_ = d.Connect(nil, patience)
	stop, served := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(served)
		select {
		case ev := <-l.events:
			serve(ev)
		case <-stop:
		}
	}()
	if closing == "accepted" {
		<-served
	}
	closer.Wait()
	d.close()
	l.close()
	close(stop)
	<-served
	for len(l.events) > 0 {
		ev := <-l.events
		ev.ID.Close()
	}
}

// TestCloseInEachState closes ids in each state from another goroutine and sees
// what the peer learns of it.
func TestCloseInEachState(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 8, driver.CMOptions{})
	away := func(id *testID) {
		done := make(chan error)
		go func() { done <- id.Close() }()
		require.NoError(t, <-done)
		id.nothing()
	}
	away(newTestID(t, driver.CMOptions{}))

	bound := newTestID(t, driver.CMOptions{})
	require.NoError(t, bound.BindAddr(localhost0))
	away(bound)

	addr := newTestID(t, driver.CMOptions{})
	require.NoError(t, addr.ResolveAddr(netip.AddrPort{}, l.LocalAddr(), 0))
	addr.next(driver.CMAddrResolved)
	away(addr)

	away(resolved(t, l.LocalAddr(), driver.CMOptions{})) // route

	connecting := dialTo(t, l.LocalAddr())
	requested, _ := l.request()
	away(connecting)
	away(requested)

	connecting = dialTo(t, l.LocalAddr())
	requested, _ = l.request()
	away(requested)
	connecting.next(driver.CMRejected)
	away(connecting) // failed

	p := play(t, l)
	accepting, _ := l.request()
	accepting.createQP()
	require.NoError(t, accepting.Accept(nil))
	p.rep()
	away(accepting)
	_, _, err := p.Recv(make([]byte, 16)) // bye
	require.NoError(t, err)

	d, a := connected(t)
	away(d)
	require.NoError(t, a.next(driver.CMDisconnected).Err)
	a.next(driver.CMTimewaitExit)
	away(a) // disconnected

	away(listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{}))
}

// TestCloseEndsListening has copies of the descriptors of a listener, as a child of the process has
// until its execve: nobody listens with them any more, and who wants the port waits for them.
func TestCloseEndsListening(t *testing.T) {
	noLeaks(t)
	for _, reuse := range []bool{false, true} { // permitted to share, and not shared
		l := listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{ReusePort: reuse})
		addr := l.LocalAddr()
		var inChild []int
		inherit := func(fd uintptr) {
			dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			require.NoError(t, err)
			inChild = append(inChild, dup)
		}
		require.NoError(t, listenerOf(l).sock.Control(inherit))
		inherit(uintptr(l.CMID.(*cmID).claim.slot))
		closed := time.Now()
		l.close()

		d := dialTo(t, addr)
		require.Equal(t, driver.RejectNoService, d.next(driver.CMRejected).Reason)
		d.close()

		for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
			wanted := netip.AddrPortFrom(netip.MustParseAddr(host), addr.Port())
			require.ErrorIs(t, newTestID(t, driver.CMOptions{}).BindAddr(wanted), unix.EADDRINUSE)
			require.GreaterOrEqual(t, time.Since(closed), leavePatience)
		}
		control.CloseFDs(inChild)
		require.NoError(t, newTestID(t, driver.CMOptions{}).BindAddr(addr))
	}
}

// TestCloseLeavesShared closes one of two listeners with one socket: the other hears dialers.
func TestCloseLeavesShared(t *testing.T) {
	noLeaks(t)
	for _, first := range []bool{true, false} {
		a := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{ReusePort: true})
		b := listenAt(t, a.LocalAddr().String(), 4, driver.CMOptions{ReusePort: true})
		if !first {
			a, b = b, a
		}
		a.close()
		honest(t, b)
		require.False(t, leftLately(soft0.name, b.LocalAddr().Port()), "who wants it would wait for nothing")
		b.close()
	}
}
