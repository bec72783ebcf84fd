package rdmanet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// Devices that fail when a test asks them to. What one of them does another test does not
// see as long as tests run one after the other.
var (
	failing0     = faulty.RegisterOverSoft("failing0", "soft0", faulty.Plan{})
	failingLate0 = faulty.RegisterOverSoft("failing0-late", "soft0", faulty.DefaultPlan(faulty.Seed+1))
	failingIWARP = faulty.RegisterOverSoft("failing0-iwarp", "soft0-iwarp", faulty.Plan{})
)

// A patient is a connection one end of which is on a device that fails.
type patient struct {
	t     *testing.T
	d     *faulty.Driver
	ill   *Conn // the end on that device
	other *Conn
}

// qp, recvCQ, sendCQ and channel are what a test has fail.
func (p patient) qp() *faulty.QP               { return p.ill.ep.qp.(*faulty.QP) }
func (p patient) recvCQ() *faulty.CQ           { return p.ill.ep.recvCQ.(*faulty.CQ) }
func (p patient) sendCQ() *faulty.CQ           { return p.ill.ep.sendCQ.(*faulty.CQ) }
func (p patient) channel() *faulty.CompChannel { return p.ill.ep.channel.(*faulty.CompChannel) }

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
			within(t, patience, "the end of a connection", func() { <-c.torn })
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

// A moment is what the ill end is doing when it gets ill.
type moment struct {
	name string
	// fall has the connection fail, by fail, during the moment, and returns the errors of
	// its calls; none if there is none to return it.
	fall func(p patient, fail func()) []error
}

var moments = []moment{
	{"idle", func(p patient, fail func()) []error {
		fail()
		_, write := p.ill.Write(make([]byte, 100)) // what fails later, fails by this
		read := readToEnd(p.ill)
		_, again := p.ill.Write(make([]byte, 100))
		if write == nil {
			return []error{read, again}
		}
		return []error{write, read, again}
	}},
	{"reading", func(p patient, fail func()) []error {
		read := begun(func() error { return readToEnd(p.ill) })
		awaitPark(p, dirRead)
		fail()
		_, write := p.ill.Write(make([]byte, 100))
		if write == nil {
			return []error{<-read}
		}
		return []error{write, <-read}
	}},
	{"writing", func(p patient, fail func()) []error {
		write := begun(func() error { return pour(p.ill, 1<<30, 1) })
		for range 20 {
			readFull(p.t, p.other, 10_000)
		}
		fail()
		go func() { _, _ = io.Copy(io.Discard, p.other) }() // until it ends
		return []error{<-write, readToEnd(p.ill)}
	}},
	{"waiting to write", func(p patient, fail func()) []error {
		write := begun(func() error { return pour(p.ill, 1<<30, 1) })
		awaitPark(p, dirWrite)
		fail()
		go func() { _, _ = io.Copy(io.Discard, p.other) }() // so that there is room again
		return []error{<-write, readToEnd(p.ill)}
	}},
	{"closing", func(p patient, fail func()) []error {
		_, err := p.ill.Write(make([]byte, 100))
		require.NoError(p.t, err)
		fail()
		require.NoError(p.t, p.ill.Close())
		<-p.ill.torn
		return nil
	}},
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

// awaitPark waits until a call sleeps.
func awaitPark(p patient, d direction) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.ill.waiter(d).parks.Load() > 0 }, patience, time.Millisecond)
	time.Sleep(time.Millisecond) // not that it need, but most of the time it sleeps now
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

// ail lets the ill end fail at every moment, and requires errors of one of the causes
// there, and of a peer that is gone at the other end, in bounded time.
func ail(t *testing.T, fail func(p patient), causes ...error) {
	t.Helper()
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			eachPatient(t, func(t *testing.T, p patient) {
				causes := slices.Clone(causes)
				if p.d == failingLate0 {
					// The flush of the other queue may be there before the cause.
					causes = append(causes, ErrPeerGone)
				}
				within(t, patience, "the ill end", func() {
					for _, err := range m.fall(p, func() { fail(p) }) {
						requireIll(t, err, causes...)
					}
				})
				within(t, patience, "the other end", func() {
					requireIll(t, readToEnd(p.other), ErrPeerGone)
					_, err := p.other.Write([]byte("x"))
					requireIll(t, err, ErrPeerGone)
				})
			})
		})
	}
}

// statuses are all with which a request can fail.
func statuses() (all []verbs.WCStatus) {
	for s := verbs.WCLocLenErr; s <= verbs.WCTMRndvIncomplete; s++ {
		all = append(all, s)
	}
	return all
}

// TestFaultySends has a request complete with every status that there is, at every moment.
func TestFaultySends(t *testing.T) {
	for _, status := range statuses() {
		t.Run(status.String(), func(t *testing.T) {
			cause := error(status)
			if status == verbs.WCWRFlushErr || status == verbs.WCRetryExcErr {
				cause = ErrPeerGone // on the software device nobody answers but one who is gone
			}
			ail(t, func(p patient) { p.qp().FailNextSend(status) }, cause)
		})
	}
}

// TestFaultyReceives is TestFaultySends for the receive queue.
func TestFaultyReceives(t *testing.T) {
	for _, status := range statuses() {
		t.Run(status.String(), func(t *testing.T) {
			causes := []error{status}
			if status == verbs.WCWRFlushErr {
				causes = []error{ErrPeerGone}
			}
			ail(t, func(p patient) { p.qp().FailReceives(status) }, causes...)
		})
	}
}

// TestFaultyOverrun has each of the CQs overrun.
func TestFaultyOverrun(t *testing.T) {
	for name, cq := range map[string]func(patient) *faulty.CQ{"receives": patient.recvCQ, "sends": patient.sendCQ} {
		t.Run(name, func(t *testing.T) {
			causes := []error{verbs.ErrCQOverrun}
			if name == "sends" {
				causes = append(causes, ErrPeerGone) // whose QP went down; nobody need look there
			}
			ail(t, func(p patient) { cq(p).Overrun() }, causes...)
		})
	}
}

// failNext has the next call fail that is called what.
func failNext(d *faulty.Driver, what string, err error) {
	var done atomic.Bool
	d.OnAcquire(func(w string) error {
		if w == what && !done.Swap(true) {
			return err
		}
		return nil
	})
}

// TestFaultyPosts has the device refuse a request though its queue has room.
func TestFaultyPosts(t *testing.T) {
	ail(t, func(p patient) { failNext(p.d, faulty.PostSend, verbs.ErrQueueFull) }, verbs.ErrQueueFull)
}

// TestFaultyShortPost has the device take the first request of a post and refuse the
// second: what the first has written is not a message.
func TestFaultyShortPost(t *testing.T) {
	onSoftware(t)
	p := newPatient(t, failingIWARP, true)
	_, err := p.ill.Write([]byte("whole"))
	require.NoError(t, err)
	var n atomic.Int32
	p.d.OnAcquire(func(what string) error {
		if what == faulty.PostSend && n.Add(1) == 2 {
			return verbs.ErrQueueFull
		}
		return nil
	})
	_, err = p.ill.Write([]byte("half"))
	requireIll(t, err, verbs.ErrQueueFull)
	require.Equal(t, "whole", string(readFull(t, p.other, 5)))
	requireIll(t, readToEnd(p.other), ErrPeerGone)
}

// TestFaultyReposts has the device refuse to take a receive again.
func TestFaultyReposts(t *testing.T) {
	eachPatient(t, func(t *testing.T, p patient) {
		failNext(p.d, faulty.PostRecv, verbs.ErrNoMemory)
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
		failNext(p.d, faulty.ReqNotify, verbs.ErrNoMemory)
		within(t, patience, "the ends", func() {
			requireIll(t, readToEnd(p.ill), verbs.ErrNoMemory)
			requireIll(t, readToEnd(p.other), ErrPeerGone)
		})
	})
}

// TestFaultyRemoval has the device removed at every moment.
func TestFaultyRemoval(t *testing.T) {
	ail(t, func(p patient) {
		p.t.Cleanup(p.d.Restore)
		if p.d == failingLate0 {
			p.d.Remove(nil)
		} else {
			remove(p)
		}
	}, ErrNoDevice)
}

// remove has the connection hear of the removal before the flush, whose cause it is.
func remove(p patient) {
	p.t.Helper()
	p.d.Remove(func() {
		require.Eventually(p.t, func() bool { return p.ill.term.failed() }, patience, time.Millisecond)
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

// TestFaultyNotifications has all notifications lost. A sleeper then sleeps on, whatever
// arrives; but not past its deadline, a Close, the end of the device, or the tick of a
// keepalive after the end of the connection. What has arrived is there for the next call.
func TestFaultyNotifications(t *testing.T) {
	mute := func(t *testing.T) (patient, <-chan error) {
		p := newPatient(t, failing0, true)
		p.channel().Mute(true)
		asleep := sleeping(p.ill, dirRead)
		read := begun(func() error {
			_, err := p.ill.Read(make([]byte, 1))
			return err
		})
		within(t, patience, "falling asleep", func() { <-asleep })
		return p, read
	}
	onSoftware(t)
	t.Run("deadline", func(t *testing.T) {
		p, read := mute(t)
		_, err := p.other.Write([]byte("here"))
		require.NoError(t, err)
		select {
		case err := <-read:
			require.Fail(t, "a notification got through", "%v", err)
		case <-time.After(20 * time.Millisecond):
		}
		require.NoError(t, p.ill.SetReadDeadline(time.Now().Add(time.Millisecond)))
		within(t, patience, "Read", func() { require.ErrorIs(t, <-read, os.ErrDeadlineExceeded) })
		require.NoError(t, p.ill.SetReadDeadline(time.Time{}))
		require.Equal(t, "here", string(readFull(t, p.ill, 4)))
	})
	t.Run("close", func(t *testing.T) {
		p, read := mute(t)
		require.NoError(t, p.ill.Close())
		within(t, patience, "Read", func() { require.ErrorIs(t, <-read, net.ErrClosed) })
	})
	t.Run("the peer closes", func(t *testing.T) {
		p, read := mute(t)
		require.NoError(t, p.other.Close())
		tick(p)
		within(t, patience, "Read", func() { require.Equal(t, io.EOF, <-read) })
	})
	t.Run("the peer goes", func(t *testing.T) {
		p, read := mute(t)
		p.other.ep.abort()
		tick(p)
		within(t, patience, "Read", func() { requireIll(t, <-read, ErrPeerGone) })
	})
	t.Run("the device goes", func(t *testing.T) {
		p, read := mute(t)
		defer p.d.Restore()
		remove(p)
		within(t, patience, "Read", func() { requireIll(t, <-read, ErrNoDevice) })
	})
}

// tick is that of a keepalive, which runs on networks only, after the connection manager
// has told that the peer is gone.
func tick(p patient) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.ill.term.sendDone() && !p.ill.ep.up() }, patience, time.Millisecond)
	p.ill.keepAlive.mu.Lock()
	round := p.ill.keepAlive.round
	p.ill.keepAlive.mu.Unlock()
	p.ill.lookAfter(round)
}

// TestFaultyEvents has the connection manager tell of a failure, or nothing, in place of
// success.
func TestFaultyEvents(t *testing.T) {
	onSoftware(t)
	for _, c := range []struct {
		at, instead verbs.CMEventType
		err         error
		want        error
	}{
		{verbs.CMAddrResolved, verbs.CMAddrError, syscall.ENETUNREACH, syscall.ENETUNREACH},
		{verbs.CMAddrResolved, verbs.CMDeviceRemoval, verbs.ErrNoDevice, ErrNoDevice},
		{verbs.CMRouteResolved, verbs.CMRouteError, syscall.EHOSTUNREACH, syscall.EHOSTUNREACH},
		{verbs.CMEstablished, verbs.CMUnreachable, syscall.ETIMEDOUT, syscall.ETIMEDOUT},
		{verbs.CMEstablished, verbs.CMConnectError, verbs.ErrNoMemory, ErrNoMemory},
		{verbs.CMEstablished, verbs.CMRejected, nil, syscall.ECONNREFUSED},
		{verbs.CMEstablished, verbs.CMDisconnected, nil, ErrPeerGone},
		{verbs.CMEstablished, verbs.CMDeviceRemoval, verbs.ErrNoDevice, ErrNoDevice},
	} {
		t.Run(fmt.Sprintf("%v/%v", c.at, c.instead), func(t *testing.T) {
			for _, side := range []string{"dialer", "listener"} {
				if side == "listener" && (c.at != verbs.CMEstablished || c.instead == verbs.CMRejected) {
					continue
				}
				t.Run(side, func(t *testing.T) {
					testFaultyEvent(t, side == "dialer", func(ev *verbs.CMEvent) bool {
						if ev.Type == c.at {
							ev.Type, ev.Err, ev.Reason = c.instead, c.err, verbs.RejectNoService
						}
						return true
					}, c.want)
				})
			}
		})
	}
	for _, at := range []verbs.CMEventType{verbs.CMAddrResolved, verbs.CMRouteResolved, verbs.CMEstablished} {
		t.Run(fmt.Sprintf("%v/lost", at), func(t *testing.T) {
			testFaultyEvent(t, true, func(ev *verbs.CMEvent) bool { return ev.Type != at }, os.ErrDeadlineExceeded)
		})
	}
	t.Run("CONNECT_REQUEST/lost", func(t *testing.T) {
		testFaultyEvent(t, false, func(ev *verbs.CMEvent) bool { return ev.Type != verbs.CMConnectRequest }, nil)
	})
	t.Run("ESTABLISHED/lost at the listener", func(t *testing.T) {
		// It asks when the time is up, and finds that the client has confirmed.
		lc := ListenConfig{HandshakeTimeout: soon / 5, Device: failing0.Name()}
		l, err := lc.listen(t.Context(), "rdma", loopbackAddr)
		require.NoError(t, err)
		failing0.OnEvent(func(ev *verbs.CMEvent) bool { return ev.Type != verbs.CMEstablished })
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
func testFaultyEvent(t *testing.T, dialer bool, fault func(*verbs.CMEvent) bool, want error) {
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
