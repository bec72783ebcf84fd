package rdmanet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Devices that fail when a test asks them to. What one of them does another test does not
// see as long as tests run one after the other.
var (
	failing0     = faulty.RegisterOverSoft("failing0", "soft0", faulty.Plan{})
	failingLate0 = faulty.RegisterOverSoft("failing0-late", "soft0", faulty.DefaultPlan(faulty.Seed+1))
	failingIWARP = faulty.RegisterOverSoft("failing0-iwarp", "soft0-iwarp", faulty.Plan{})

	failingAsynchronous      = faulty.RegisterOverSoft("failing0-asynchronous", "soft0", faulty.Plan{Asynchronous: true})
	failingAsynchronousIWARP = faulty.RegisterOverSoft("failing0-asynchronous-iwarp", "soft0-iwarp", faulty.Plan{Asynchronous: true})
)

// A patient is a connection one end of which is on a device that fails.
type patient struct {
	t     *testing.T
	d     *faulty.Driver
	ill   *Conn // the end on that device
	other *Conn
}

// newPatient connects two ends, of which the dialer's or the listener's is on d, and the
// other on the device under it. When the test is over nothing is left on d.
func newPatient(t *testing.T, d *faulty.Driver, dialled bool) patient {
	t.Helper()
	under := map[*faulty.Driver]string{failingIWARP: "soft0-iwarp"}[d]
	if under == "" {
		under = "soft0"
	}
	fl := flavour{dialer: Dialer{Device: d.Name()}, listen: ListenConfig{Device: under}}
	if !dialled {
		fl = flavour{dialer: Dialer{Device: under}, listen: ListenConfig{Device: d.Name()}}
	}
	client, server, err := dialPair(&fl.dialer, &fl.listen)
	require.NoError(t, err)
	t.Cleanup(func() {
		d.OnAcquire(nil)
		for _, c := range []*Conn{client, server} {
			_ = c.Close()
			within(t, patience, "the end of a connection", func() { <-c.done() })
		}
		requireNothingLives(t, d)
	})
	if dialled {
		return patient{t, d, client, server}
	}
	return patient{t, d, server, client}
}

// requireNothingLives waits for what is closed in the background.
func requireNothingLives(t *testing.T, d *faulty.Driver) {
	t.Helper()
	require.Eventually(t, func() bool { return d.Live() == "" }, patience, time.Millisecond, "%s is left: %v", d.Name(), d.Live)
}

// eachPatient runs f with each of the devices and either end on it.
func eachPatient(t *testing.T, f func(t *testing.T, p patient)) {
	onSoftware(t)
	for _, d := range []*faulty.Driver{failing0, failingLate0, failingIWARP} {
		for end, dialled := range map[string]bool{"dialled": true, "accepted": false} {
			t.Run(d.Name()+"/"+end, func(t *testing.T) { f(t, newPatient(t, d, dialled)) })
		}
	}
}

func begun(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// readToEnd reads until there is an error, if only that of the end.
func readToEnd(c *Conn) error {
	b := make([]byte, 4096)
	for {
		if _, err := c.Read(b); err != nil {
			return err
		}
	}
}

// requireIll wants errors as of a connection that failed with one of the causes.
func requireIll(t *testing.T, err error, causes ...error) {
	t.Helper()
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	var errno syscall.Errno
	require.ErrorAs(t, err, &errno, "%v", err)
	require.False(t, op.Timeout(), "%v", err)
	for _, cause := range causes {
		if errors.Is(err, cause) {
			return
		}
	}
	require.Fail(t, "wrong cause", "%v is none of %v", err, causes)
}

// TestFaultyReposts has the device refuse to take a receive again.
func TestFaultyReposts(t *testing.T) {
	eachPatient(t, func(t *testing.T, p patient) {
		p.d.FailNext(faulty.PostRecv, verbs.ErrNoMemory)
		within(t, patience, "the ends", func() {
			var ends sync.WaitGroup
			ends.Go(func() { requireIll(t, pour(p.other, 1<<30, 1), ErrPeerGone) })
			requireIll(t, readToEnd(p.ill), verbs.ErrNoMemory)
			ends.Wait()
		})
	})
}

// TestFaultyArming has the device refuse to arm a CQ.
func TestFaultyArming(t *testing.T) {
	eachPatient(t, func(t *testing.T, p patient) {
		p.d.FailNext(faulty.ReqNotify, verbs.ErrNoMemory)
		within(t, patience, "the ends", func() {
			requireIll(t, readToEnd(p.ill), verbs.ErrNoMemory)
			requireIll(t, readToEnd(p.other), ErrPeerGone)
		})
	})
}

// TestFaultyRemovalOfListener has the device removed under a listener, and come back.
func TestFaultyRemovalOfListener(t *testing.T) {
	onSoftware(t)
	lc := ListenConfig{Device: failing0.Name()}
	l, err := lc.listen(t.Context(), "rdma", loopbackAddr)
	require.NoError(t, err)
	accepted := begun(func() error {
		_, err := l.Accept()
		return err
	})
	failing0.Remove(nil)
	within(t, patience, "Accept", func() { requireIll(t, <-accepted, syscall.ENODEV) })
	_, err = (&Dialer{Device: failing0.Name()}).Dial("rdma", l.Addr().String())
	require.ErrorIs(t, err, ErrNoDevice)
	failing0.Restore()
	require.NoError(t, l.Close())
	client, server, err := dialPair(&Dialer{Device: failing0.Name()}, &lc)
	require.NoError(t, err)
	requireClosed(t, client)
	requireClosed(t, server)
	requireNothingLives(t, failing0)
}

// TestFaultyRemovalInListen has the device removed while Listen is at it: on a network of TCP the listener goes on
// by TCP, also one that has joined another, and says so once.
func TestFaultyRemovalInListen(t *testing.T) {
	onSoftware(t)
	for _, failure := range []error{nil, verbs.ErrNoDevice} {
		for _, shared := range []bool{false, true} {
			if shared && failure != nil {
				continue // Listen fails then
			}
			t.Run(fmt.Sprintf("%v, shared %v", failure, shared), func(t *testing.T) {
				lc := ListenConfig{Device: failing0.Name(), ReusePort: shared, Logger: quiet}
				at := loopbackAddr
				if shared {
					before, err := lc.listen(t.Context(), "tcp", at)
					require.NoError(t, err)
					defer before.Close()
					at = before.Addr().String()
				}
				told := make(chan *FallbackError, 2)
				lc.OnFallback = func(e *FallbackError) { told <- e }
				failing0.OnAcquire(func(what string) error {
					if what != faulty.Listen {
						return nil
					}
					failing0.Remove(nil)
					return failure
				})
				defer failing0.Restore()
				defer failing0.OnAcquire(nil)
				l, err := lc.listen(t.Context(), "tcp", at)
				require.NoError(t, err)
				defer l.Close()
				within(t, patience, "the fallback", func() { require.ErrorIs(t, <-told, verbs.ErrNoDevice) })
				accepted := begun(func() error {
					require.NoError(t, l.SetDeadline(time.Now().Add(time.Millisecond)))
					_, err := l.Accept()
					return err
				})
				require.ErrorIs(t, <-accepted, os.ErrDeadlineExceeded)
				l.fallBack(verbs.ErrNoDevice) // as the event and the error, whichever is the second
				require.Empty(t, told)
			})
		}
	}
}

// TestFaultyEvents has the connection manager tell of a failure, or nothing, in place of
// success.
func TestFaultyEvents(t *testing.T) {
	onSoftware(t)
	for _, c := range []struct {
		at, instead driver.CMEventType
		err         error
		want        error
	}{
		{driver.CMAddrResolved, driver.CMAddrError, syscall.ENETUNREACH, syscall.ENETUNREACH},
		{driver.CMAddrResolved, driver.CMDeviceRemoval, verbs.ErrNoDevice, ErrNoDevice},
		{driver.CMRouteResolved, driver.CMRouteError, syscall.EHOSTUNREACH, syscall.EHOSTUNREACH},
		{driver.CMEstablished, driver.CMUnreachable, syscall.ETIMEDOUT, syscall.ETIMEDOUT},
		{driver.CMEstablished, driver.CMConnectError, verbs.ErrNoMemory, ErrNoMemory},
		{driver.CMEstablished, driver.CMRejected, nil, syscall.ECONNREFUSED},
		{driver.CMEstablished, driver.CMDisconnected, nil, ErrPeerGone},
		{driver.CMEstablished, driver.CMDeviceRemoval, verbs.ErrNoDevice, ErrNoDevice},
	} {
		t.Run(fmt.Sprintf("%v/%v", c.at, c.instead), func(t *testing.T) {
			for _, side := range []string{"dialer", "listener"} {
				if side == "listener" && (c.at != driver.CMEstablished || c.instead == driver.CMRejected) {
					continue
				}
				t.Run(side, func(t *testing.T) {
					testFaultyEvent(t, side == "dialer", func(ev *driver.CMEvent) bool {
						if ev.Type == c.at {
							ev.Type, ev.Err, ev.Reason = c.instead, c.err, driver.RejectNoService
						}
						return true
					}, c.want)
				})
			}
		})
	}
	for _, at := range []driver.CMEventType{driver.CMAddrResolved, driver.CMRouteResolved, driver.CMEstablished} {
		t.Run(fmt.Sprintf("%v/lost", at), func(t *testing.T) {
			testFaultyEvent(t, true, func(ev *driver.CMEvent) bool { return ev.Type != at }, os.ErrDeadlineExceeded)
		})
	}
	t.Run("CONNECT_REQUEST/lost", func(t *testing.T) {
		testFaultyEvent(t, false, func(ev *driver.CMEvent) bool { return ev.Type != driver.CMConnectRequest }, nil)
	})
	t.Run("ESTABLISHED/lost at the listener", func(t *testing.T) {
		// It asks when the time is up, and finds that the client has confirmed.
		lc := ListenConfig{HandshakeTimeout: soon, Device: failing0.Name()}
		l, err := lc.listen(t.Context(), "rdma", loopbackAddr)
		require.NoError(t, err)
		failing0.OnEvent(func(ev *driver.CMEvent) bool { return ev.Type != driver.CMEstablished })
		defer failing0.OnEvent(nil)
		within(t, lasting, "serving a client whose confirmation was lost", func() {
			serveOne(t, l, &Dialer{Device: "soft0"})
		})
		require.Zero(t, l.Stats().Failed)
		require.NoError(t, l.Close())
		requireNothingLives(t, failing0)
	})
}

// testFaultyEvent dials where one side has faulty events. A dialer fails with want; at a
// listener the client is not accepted, and the next one is.
func testFaultyEvent(t *testing.T, dialer bool, fault func(*driver.CMEvent) bool, want error) {
	lc, d := ListenConfig{HandshakeTimeout: patience}, Dialer{Timeout: patience}
	switch want {
	case os.ErrDeadlineExceeded: // an event is lost, so only the time ends the dial
		d.Timeout = soon / 5
	case nil: // likewise at the listener
		lc.HandshakeTimeout, d.Timeout = soon, 2*soon // of which the next client has as much
	}
	lc.Device, d.Device = "soft0", "soft0"
	if dialer {
		d.Device = failing0.Name()
	} else {
		lc.Device = failing0.Name()
	}
	l, err := lc.listen(t.Context(), "rdma", loopbackAddr)
	require.NoError(t, err)
	failing0.OnEvent(fault)
	defer failing0.OnEvent(nil)
	within(t, patience, "Dial", func() {
		c, err := d.dial(t.Context(), "rdma", l.Addr().String())
		if dialer {
			requireDialError(t, dialled{c, err}, want)
		} else if err == nil { // it could not know yet
			requireIll(t, readToEnd(c), ErrPeerGone)
			requireClosed(t, c)
		}
	})
	failing0.OnEvent(nil)
	d.Timeout = patience
	within(t, patience, "the next client", func() { serveOne(t, l, &d) })
	require.NoError(t, l.Close())
	requireNothingLives(t, failing0)
}

// serveOne sees that a listener serves whoever dials now, if not the one before.
func serveOne(t *testing.T, l *Listener, d *Dialer) {
	t.Helper()
	c, err := d.dial(t.Context(), "rdma", l.Addr().String())
	require.NoError(t, err)
	_, err = c.Write([]byte("next"))
	require.NoError(t, err)
	for {
		s, err := acceptServed(l)
		require.NoError(t, err)
		b := make([]byte, 4)
		_, err = io.ReadFull(s, b)
		requireClosed(t, s)
		if err == nil && string(b) == "next" {
			break
		}
	}
	requireClosed(t, c)
}
