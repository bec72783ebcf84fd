//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"

	pool "github.com/libp2p/go-buffer-pool"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"golang.org/x/sys/unix"
)

// defaultConnectTimeout is about what TCP waits for: six SYNs more, after 1, 2, 4 ... s.
const defaultConnectTimeout = 127 * time.Second

// rejectResources is IBA's reason for an end that is short of something.
const rejectResources verbs.RejectReason = 3

// Connect starts the exchange. A goroutine of its own waits for its end, and is the
// link's if the connection stands.
func (id *cmID) Connect(param *verbs.ConnParam, timeout time.Duration) error {
	own := verbs.ConnParam{ResponderResources: 255, InitiatorDepth: 255, RetryCount: 7, RNRRetryCount: 7}
	if param != nil {
		own = *param
	}
	if err := checkParam(&own, verbs.MaxConnectPrivateData); err != nil {
		return err
	}
	if timeout <= 0 {
		timeout = defaultConnectTimeout
	}
	d, err := id.newDial(own, time.Now().Add(timeout))
	if err != nil {
		return err
	}
	if d.again {
		d.asked, d.askErr = true, d.ask()
	}
	go d.run()
	return nil
}

// newDial takes the id to where it dials.
func (id *cmID) newDial(own verbs.ConnParam, deadline time.Time) (*dial, error) {
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
	sock, again := id.sock, id.sock != nil
	if !again {
		var err error
		if sock, err = id.dialSocket(); err != nil {
			id.state = cmFailed
			return nil, err
		}
	}
	_ = sock.setReadDeadline(deadline)
	id.sock, id.state = sock, cmConnecting
	return &dial{id: id, qp: id.qp, sock: sock, own: own, src: id.local, dst: id.remote, tos: id.opts.TOS, anyUser: id.opts.AnyUser, deadline: deadline, again: again}, nil
}

// dialSocket takes the descriptor that holds the local address. Called with mu held.
func (id *cmID) dialSocket() (*socket, error) {
	if id.claim != nil {
		// The port is the application's, which gets it back with the end of the connection.
		return newSocket(id.claim.take())
	}
	fd := id.dialFD
	id.dialFD = -1
	return id.newLine(fd)
}

// newLine makes the socket of a line of fd, which is bound to id.local. Called with mu held.
func (id *cmID) newLine(fd int) (*socket, error) {
	sock, err := newSocket(fd)
	if err == nil {
		sock.line = &line{dev: id.dev, sock: sock, src: id.local, dst: id.remote}
		id.qp.setLine(sock.line)
	}
	return sock, err
}

// A dial is the dialer's side of the exchange.
type dial struct {
	id       *cmID
	qp       *qp
	sock     *socket
	own      verbs.ConnParam
	src, dst netip.AddrPort
	tos      uint8
	anyUser  bool
	deadline time.Time
	again    bool // sock has carried a connection before
	asked    bool // the request was sent, with askErr for a result
	askErr   error
	link     *link // once the QP is attached
}

func (d *dial) run() {
	deepen()
	ev := d.exchange()
	if d.id.conclude(&ev) {
		d.id.events.Deliver()
	} else {
		if ev.Type == verbs.CMEstablished {
			d.qp.disconnect()
		}
		d.sock.close()
	}
	if d.link != nil {
		d.link.run()
	}
}

// exchange returns the event that ends the dial. Whatever fails closes the socket.
func (d *dial) exchange() verbs.CMEvent {
	if !d.again {
		if ev := d.reach(); ev != nil {
			return *ev
		}
	}
	if !d.asked {
		d.askErr = d.ask()
	}
	if err := d.askErr; err != nil && !errors.Is(err, unix.EPIPE) {
		return d.failed(verbs.CMConnectError, err)
	}
	// A listener that hung up may have said why.
	buf := pool.Get(maxMessage)
	defer pool.Put(buf)
	n, fds, err := d.sock.recv(buf)
	switch {
	case err == io.EOF && d.again:
		// The listener has dropped the line, or is another by now.
		if err := d.dialAnew(); err != nil {
			return d.failed(verbs.CMConnectError, err)
		}
		return d.exchange()
	case err == io.EOF:
		return d.failed(verbs.CMUnreachable, fmt.Errorf("the listener hung up before it answered: %w: %w", verbs.ErrPeerGone, unix.ECONNRESET))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return d.failed(verbs.CMUnreachable, d.timedOut("nobody answered"))
	case err != nil:
		return d.failed(verbs.CMConnectError, err)
	}
	_ = d.sock.setReadDeadline(time.Time{})
	if buf[0] == msgREJ {
		closeFDs(fds)
		return d.rejected(buf[:n])
	}
	rep, err := parseREP(buf[:n])
	if err != nil {
		closeFDs(fds)
		return d.failed(verbs.CMConnectError, err)
	}
	return d.establish(&rep, fds)
}

// ask sends the request.
func (d *dial) ask() error {
	if d.again {
		// The listener takes the connection to stand once it has answered, and may
		// write before the answer is read here.
		d.qp.expect(accessFor(d.own))
	}
	return d.qp.sendOffer(d.sock, func(offer []byte) []byte {
		return appendREQ(make([]byte, 0, 512), &connMsg{param: d.own, src: d.src, dst: d.dst, tos: d.tos, keep: d.keeps(), offer: offer})
	})
}

// keeps says whether the dialer would keep the socket as a line: among processes of one
// user. What the peer has mapped then may be what the next one at this port gets.
func (d *dial) keeps() bool {
	return d.sock.line != nil && int(d.sock.line.uid) == os.Geteuid()
}

// dialAnew replaces the socket of a line by the one that holds the connection's port.
func (d *dial) dialAnew() error {
	d.again, d.asked = false, false
	d.sock.close()
	d.id.mu.Lock()
	defer d.id.mu.Unlock()
	if d.id.state != cmConnecting {
		return verbs.ErrClosed
	}
	fd := d.id.dialFD
	d.id.dialFD = -1
	sock, err := d.id.newLine(fd)
	if err != nil {
		return err
	}
	d.sock, d.id.sock = sock, sock
	return d.sock.setReadDeadline(d.deadline)
}

// reach connects the socket: nil when it did.
func (d *dial) reach() *verbs.CMEvent {
	fail := func(typ verbs.CMEventType, err error) *verbs.CMEvent {
		ev := d.failed(typ, err)
		return &ev
	}
	pause := time.Millisecond
	for {
		err := d.tryHosts()
		switch {
		case err == nil:
			_, uid, err := d.sock.peerCred()
			if err != nil {
				return fail(verbs.CMConnectError, err)
			}
			if ln := d.sock.line; ln != nil {
				ln.uid = uid
			}
			if !mayTalk(uid, d.anyUser) {
				return fail(verbs.CMConnectError, fmt.Errorf("the listener at %v belongs to user %d (AnyUser permits that): %w", d.dst, uid, unix.EACCES))
			}
			return nil
		case errors.Is(err, unix.ECONNREFUSED):
			ev := fail(verbs.CMRejected, fmt.Errorf("nobody listens at %v on device %s: %w", d.dst, d.id.dev.name, err))
			ev.Reason = verbs.RejectNoService
			return ev
		case !errors.Is(err, unix.EAGAIN):
			return fail(verbs.CMConnectError, err)
		}
		// The kernel's backlog is full and tells nobody when it no longer is.
		left := time.Until(d.deadline)
		if left <= 0 {
			return fail(verbs.CMUnreachable, d.timedOut("the listener's backlog is full"))
		}
		select {
		case <-time.After(min(pause, left)):
		case <-d.id.closing():
			return fail(verbs.CMConnectError, verbs.ErrClosed)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// tryHosts connects to the listener on the very address, or on a wildcard that covers it.
func (d *dial) tryHosts() (err error) {
	for _, host := range hostsFor(d.dst.Addr()) {
		err = d.sock.connect(boundName(d.id.dev.name, host, d.dst.Port()))
		if !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
	}
	return err
}

// establish brings up the QP and sends RTU, which says that; on a line it is known.
func (d *dial) establish(rep *connMsg, fds []int) verbs.CMEvent {
	d.id.mu.Lock()
	attr := d.id.rtsAttr(d.own, rep.param, d.own.RetryCount)
	d.id.mu.Unlock()
	err := d.qp.toRTS(attr)
	if err != nil {
		closeFDs(fds)
		return d.failed(verbs.CMConnectError, err)
	}
	if rep.keep {
		if !d.keeps() {
			closeFDs(fds)
			d.qp.disconnect()
			return d.failed(verbs.CMConnectError, badMessage("REP that keeps what is not offered"))
		}
		d.sock.line.agree()
	} else {
		d.sock.line.spoil()
	}
	if d.link, err = d.qp.attachLent(d.sock, rep.offer, fds, d.id.onMessage, d.id.onHangup); err != nil {
		d.qp.disconnect()
		return d.failed(verbs.CMConnectError, err)
	}
	if d.again {
		return verbs.CMEvent{Type: verbs.CMEstablished, ID: d.id, Param: swapped(rep.param)}
	}
	if err := d.qp.confirm(); err != nil {
		d.qp.disconnect()
		if errors.Is(err, verbs.ErrTryAgain) || errors.Is(err, verbs.ErrProtocol) {
			return d.failed(verbs.CMConnectError, err)
		}
		return d.failed(verbs.CMUnreachable, gone(err))
	}
	if err := d.sock.signal(msgRTU, wireVersion); err != nil {
		d.qp.disconnect()
		return d.failed(verbs.CMUnreachable, gone(err))
	}
	return verbs.CMEvent{Type: verbs.CMEstablished, ID: d.id, Param: swapped(rep.param)}
}

// gone is the error of a listener that hung up before the connection stood: nothing was
// delivered to it.
func gone(err error) error {
	return fmt.Errorf("the listener is gone: %w: %w: %v", verbs.ErrPeerGone, unix.ECONNRESET, err)
}

// rejected is the event for a REJ.
func (d *dial) rejected(b []byte) verbs.CMEvent {
	version, reason, private, err := parseREJ(b)
	if err != nil {
		return d.failed(verbs.CMConnectError, err)
	}
	switch reason {
	case verbs.RejectConsumer:
		err = fmt.Errorf("refused by the application at %v: %w", d.dst, unix.ECONNREFUSED)
	case verbs.RejectDenied:
		err = fmt.Errorf("the listener at %v belongs to another user and does not permit that: %w", d.dst, unix.EACCES)
	case rejectUnsupported:
		err = errVersion(version)
	case rejectAgain:
		return d.failed(verbs.CMConnectError, fmt.Errorf("the listener at %v had no place for the request: %w", d.dst, verbs.ErrTryAgain))
	case rejectResources:
		err = fmt.Errorf("the listener at %v is short of memory or descriptors: %w", d.dst, unix.ECONNREFUSED)
	default:
		err = fmt.Errorf("refused by %v, reason %v: %w", d.dst, reason, unix.ECONNREFUSED)
	}
	ev := d.failed(verbs.CMRejected, err)
	ev.Reason, ev.Param.PrivateData = reason, private
	return ev
}

// timedOut is the error of a dial that took too long.
func (d *dial) timedOut(why string) error {
	return fmt.Errorf("connecting to %v: %s: %w", d.dst, why, os.NewSyscallError("connect", syscall.ETIMEDOUT))
}

// failed is the event for an error.
func (d *dial) failed(typ verbs.CMEventType, err error) verbs.CMEvent {
	d.sock.close()
	return verbs.CMEvent{Type: typ, ID: d.id, Err: err}
}
