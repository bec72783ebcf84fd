//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// defaultConnectTimeout is about what TCP waits for: six SYNs more, after 1, 2, 4 ... s.
const defaultConnectTimeout = 127 * time.Second

// rejectResources is IBA's reason for an end that is short of something.
const rejectResources driver.RejectReason = 3

// Connect starts the exchange. A goroutine of its own waits for its end.
func (id *cmID) Connect(param *driver.ConnParam, timeout time.Duration) error {
	own := driver.ConnParam{ResponderResources: 255, InitiatorDepth: 255, RetryCount: 7, RNRRetryCount: 7}
	if param != nil {
		own = *param
	}
	if err := checkParam(&own, driver.MaxConnectPrivateData); err != nil {
		return err
	}
	if timeout <= 0 {
		timeout = defaultConnectTimeout
	}
	d, err := id.newDial(own, time.Now().Add(timeout))
	if err != nil {
		return err
	}
	go d.run()
	return nil
}

// newDial takes the id to where it dials.
func (id *cmID) newDial(own driver.ConnParam, deadline time.Time) (*dial, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("Connect", cmRouteResolved); err != nil {
		return nil, err
	}
	if id.qp == nil {
		return nil, fmt.Errorf("Connect before CreateQP: %w", verbs.ErrState)
	}
	own.PrivateData = append([]byte(nil), own.PrivateData...)
	own.QPNum = id.qp.QPN()
	req := control.ConnMsg{Param: own, Src: id.local, Dst: id.remote, TOS: id.opts.TOS}
	// A port that is the application's is given back with the end of the connection.
	sock, err := control.NewSocket(id.claim.take())
	if err != nil {
		id.state = cmFailed
		return nil, err
	}
	_ = sock.SetReadDeadline(deadline)
	id.sock, id.state = sock, cmConnecting
	return &dial{id: id, qp: id.qp, sock: sock, req: req, anyUser: id.opts.AnyUser, deadline: deadline}, nil
}

// A dial is the dialer's side of the exchange.
type dial struct {
	id       *cmID
	qp       *qp
	sock     *control.Socket
	req      control.ConnMsg // without the offer
	anyUser  bool
	deadline time.Time
}

func (d *dial) run() {
	ev := d.exchange()
	if d.id.conclude(ev) {
		d.id.events.Deliver()
	} else {
		if ev.Type == driver.CMEstablished {
			d.qp.disconnect()
		}
		d.sock.Close()
	}
}

// exchange returns the event that ends the dial. Whatever fails closes the socket.
func (d *dial) exchange() *driver.CMEvent {
	if ev := d.reach(); ev != nil {
		return ev
	}
	if err := d.ask(); err != nil && !errors.Is(err, unix.EPIPE) {
		return d.failed(driver.CMConnectError, err)
	}
	// A listener that hung up may have said why.
	buf := make([]byte, control.MaxMessage)
	n, fds, err := d.sock.Recv(buf)
	switch {
	case err == io.EOF:
		return d.failed(driver.CMUnreachable, driver.Explain("the listener hung up before it answered", verbs.ErrPeerGone, unix.ECONNRESET))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return d.failed(driver.CMUnreachable, d.timedOut("nobody answered"))
	case err != nil:
		return d.failed(driver.CMConnectError, err)
	}
	_ = d.sock.SetReadDeadline(time.Time{})
	if buf[0] == control.MsgREJ {
		control.CloseFDs(fds)
		return d.rejected(buf[:n])
	}
	rep, err := control.ParseREP(buf[:n])
	if err != nil {
		control.CloseFDs(fds)
		return d.failed(driver.CMConnectError, err)
	}
	return d.establish(&rep, fds)
}

// ask sends the request.
func (d *dial) ask() error {
	return d.qp.sendOffer(d.sock, func(offer []byte) []byte {
		req := d.req
		req.Offer = offer
		return control.AppendREQ(make([]byte, 0, 512), &req)
	})
}

// reach connects the socket: nil when it did.
func (d *dial) reach() *driver.CMEvent {
	pause := time.Millisecond
	for {
		err := d.tryHosts()
		switch {
		case err == nil:
			pid, uid, err := d.sock.PeerCred()
			if err != nil {
				return d.failed(driver.CMConnectError, err)
			}
			if !control.MayTalk(pid, uid, d.anyUser) {
				return d.failed(driver.CMConnectError, driver.Explain(fmt.Sprintf("the listener belongs to user %d (Dialer.AnyUser permits that)", uid), unix.EACCES))
			}
			return nil
		case errors.Is(err, unix.ECONNREFUSED):
			ev := d.failed(driver.CMRejected, driver.Explain(driver.NoListener(d.id.dev.name), err))
			ev.Reason = driver.RejectNoService
			return ev
		case !errors.Is(err, unix.EAGAIN):
			return d.failed(driver.CMConnectError, err)
		}
		// The kernel's backlog is full and tells nobody when it no longer is.
		left := time.Until(d.deadline)
		if left <= 0 {
			return d.failed(driver.CMUnreachable, d.timedOut("the listener's backlog is full"))
		}
		select {
		case <-time.After(min(pause, left)):
		case <-d.id.done:
			return d.failed(driver.CMConnectError, verbs.ErrClosed)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// tryHosts connects to the listener on the very address, or on a wildcard that covers it.
func (d *dial) tryHosts() (err error) {
	for _, host := range control.HostsFor(d.req.Dst.Addr()) {
		err = d.sock.Connect(control.BoundName(d.id.dev.name, host, d.req.Dst.Port()))
		if !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
	}
	return err
}

// establish brings up the QP and sends RTU, which says that.
func (d *dial) establish(rep *control.ConnMsg, fds []int) *driver.CMEvent {
	d.id.mu.Lock()
	attr := d.id.rtsAttr(d.req.Param, rep.Param)
	d.id.mu.Unlock()
	if err := d.qp.toRTS(attr); err != nil {
		control.CloseFDs(fds)
		return d.failed(driver.CMConnectError, err)
	}
	if err := d.qp.attach(newLink(d.qp, d.sock, d.sock, d.id.onMessage, d.id.end), rep.Offer, fds, nil); err != nil {
		d.qp.disconnect()
		return d.failed(driver.CMConnectError, err)
	}
	err := d.qp.confirm()
	if err == nil {
		err = d.sock.Signal(control.MsgRTU, control.WireVersion)
	}
	if err != nil {
		d.qp.disconnect()
		if errors.Is(err, verbs.ErrTryAgain) || errors.Is(err, verbs.ErrProtocol) {
			return d.failed(driver.CMConnectError, err)
		}
		// The listener hung up before the connection stood: nothing was delivered to it.
		why := fmt.Sprintf("the listener left before the connection stood: %v", err)
		return d.failed(driver.CMUnreachable, driver.Explain(why, verbs.ErrPeerGone, unix.ECONNRESET))
	}
	return &driver.CMEvent{Type: driver.CMEstablished, ID: d.id, Param: swapped(rep.Param)}
}

// rejected is the event for a REJ.
func (d *dial) rejected(b []byte) *driver.CMEvent {
	version, reason, private, err := control.ParseREJ(b)
	if err != nil {
		return d.failed(driver.CMConnectError, err)
	}
	switch reason {
	case driver.RejectConsumer:
		err = driver.Explain("refused by the application", unix.ECONNREFUSED)
	case driver.RejectDenied:
		err = driver.Explain("the listener belongs to another user (its ListenConfig.AnyUser permits that)", unix.EACCES)
	case control.RejectUnsupported:
		err = control.VersionError(version)
	case control.RejectAgain:
		return d.failed(driver.CMConnectError, driver.Explain("the listener has no place for the request", verbs.ErrTryAgain))
	case rejectResources:
		err = driver.Explain("the listener is short of memory or descriptors", unix.ECONNREFUSED)
	case driver.RejectNone:
		err = driver.Explain(fmt.Sprintf("the listener failed: %q", private), unix.ECONNREFUSED)
	default:
		err = driver.Explain(fmt.Sprintf("refused for the reason %v", reason), unix.ECONNREFUSED)
	}
	ev := d.failed(driver.CMRejected, err)
	ev.Reason, ev.Param.PrivateData = reason, private
	return ev
}

// timedOut is the error of a dial that took too long.
func (d *dial) timedOut(why string) error {
	return driver.Explain(why, os.NewSyscallError("connect", syscall.ETIMEDOUT))
}

// failed is the event for an error.
func (d *dial) failed(typ driver.CMEventType, err error) *driver.CMEvent {
	d.sock.Close()
	return &driver.CMEvent{Type: typ, ID: d.id, Err: err}
}
