package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

var _ net.Listener = (*Listener)(nil)

// Listener accepts RDMA connections, and on networks of TCP those of TCP, too. Its
// methods may be called concurrently. A client's failed handshake is counted and never
// returned by Accept.
type Listener struct {
	id               *cm.ID         // nil where RDMA cannot listen
	links            *link.Listener // that id is of; nil where connections have QPs of their own
	tcp              *tcpSide       // nil on networks of RDMA alone
	network          string
	addr             *net.TCPAddr
	sizes            sizes
	logger           *slog.Logger
	handshakeTimeout time.Duration
	keepAlive        net.KeepAliveConfig
	requireRDMA      bool
	reusePort        bool
	onFallback       func(*FallbackError)

	backlog    int
	handshakes handshakes // the places of clients, from the answer to Accept
	queue      acceptQueue
	evictions  evictLog
	shortages  *shortage.Queue

	ctx      context.Context // ends with Close, or with the device
	close    context.CancelCauseFunc
	closing  sync.Once
	serving  sync.WaitGroup
	mu       sync.Mutex // orders new handshakes against Close
	closed   bool
	fallback *FallbackError // guarded by mu
	deadline acceptDeadline

	accepted, acceptedTCP, evicted, established, refused, failed atomic.Uint64
}

func newListener(network string, s sizes, lc *ListenConfig) *Listener {
	backlog := lc.Backlog
	if backlog <= 0 {
		backlog = DefaultBacklog()
	}
	timeout := lc.HandshakeTimeout
	if timeout <= 0 {
		timeout = DefaultHandshakeTimeout
	}
	l := &Listener{
		network: network, sizes: s, logger: loggerOr(lc.Logger), handshakeTimeout: timeout,
		keepAlive:   dialKeepAlive(lc.KeepAlive, lc.KeepAliveConfig),
		requireRDMA: lc.RequireRDMA, reusePort: lc.ReusePort, onFallback: lc.OnFallback,
		backlog: backlog, handshakes: handshakes{free: backlog},
	}
	l.evictions.logger = l.logger
	l.queue.init()
	l.ctx, l.close = context.WithCancelCause(context.Background())
	l.deadline.init()
	l.shortages = shortage.NewQueue(func(hold bool) { l.id.Hold(hold) })
	return l
}

func (l *Listener) opError(op string, err error) error {
	return opError(op, l.network, nil, l.addr, err)
}

// Accept waits for a connection and returns it, a *Conn or, on networks of TCP, a
// *net.TCPConn; the caller must Close it. When every device that the listener is bound
// to was removed it fails with ENODEV, unless it takes TCP clients; a listener on a
// wildcard address serves devices that come later, too.
//
// Where the process lacks descriptors, memory or address space for a client, the client
// waits in its Dial, and an Accept that waits meanwhile fails as that of package net does:
// with a *net.OpError whose Temporary method returns true, and syscall.EMFILE, ENFILE or
// ENOMEM for errors.Is. Call it again, after a pause as http.Server makes; the client comes
// when there is room.
func (l *Listener) Accept() (net.Conn, error) {
	var tcp <-chan acceptedTCP
	if l.tcp != nil {
		tcp = l.tcp.queue
	}
	c, t, err := l.next(tcp)
	switch {
	case err != nil:
		return nil, err // not a typed nil
	case c == nil:
		return t, nil
	}
	return c, nil
}

// AcceptConn is Accept with the concrete type of RDMA connections. On networks of TCP
// those of TCP wait for Accept.
func (l *Listener) AcceptConn() (*Conn, error) {
	c, _, err := l.next(nil)
	return c, err
}

// next waits for a connection of either kind, without preferring one.
func (l *Listener) next(tcp <-chan acceptedTCP) (*Conn, *net.TCPConn, error) {
	for {
		expired := l.deadline.wait()
		select { // what has ended comes first, whatever else is ready
		case <-l.ctx.Done():
			err := l.endError()
			if l.reusePort && err == net.ErrClosed {
				return l.nextLeft(tcp)
			}
			return nil, nil, l.opError(opAccept, err)
		case <-expired:
			if !l.deadline.passed(expired) {
				continue
			}
			return nil, nil, l.opError(opAccept, os.ErrDeadlineExceeded)
		default:
		}
		select {
		case <-l.ctx.Done():
		case <-expired:
		case <-l.arrivals():
			c := l.take()
			if c == nil {
				continue // another was faster, or it was closed since
			}
			l.accepted.Add(1)
			return c, nil, nil
		case t := <-tcp:
			if t.err == nil {
				l.acceptedTCP.Add(1)
			}
			return nil, t.conn, t.err
		case err := <-l.shortages.Errors():
			if l.pending() == 0 {
				return nil, nil, l.acceptShortage(err)
			}
		}
	}
}

// arrivals returns what holds a token while there is something for take.
func (l *Listener) arrivals() <-chan struct{} {
	if l.links != nil {
		return l.links.Ready()
	}
	return l.queue.ready
}

// take returns a connection that stands, nil if there is none any more.
func (l *Listener) take() *Conn {
	if l.links != nil {
		return l.takeLinked()
	}
	c, _ := l.queue.take()
	if c != nil {
		l.handshakes.release()
	}
	return c
}

// pending is how many wait for Accept.
func (l *Listener) pending() int {
	if l.links != nil {
		n, _ := l.links.Opened()
		return n
	}
	return l.queue.len()
}

// standing is how many connections have come to stand.
func (l *Listener) standing() uint64 {
	if l.links != nil {
		_, n := l.links.Opened()
		return n
	}
	return l.established.Load()
}

// closeRDMA ends the id that listens.
func (l *Listener) closeRDMA() error {
	if l.links != nil {
		return l.links.Close()
	}
	return l.id.Close()
}

// endError says why the listener has ended.
func (l *Listener) endError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	return context.Cause(l.ctx)
}

// Addr returns the address the listener is bound to, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.addr }

// SetDeadline sets when Accepts that wait, now or later, give up with
// os.ErrDeadlineExceeded; the zero time means never.
func (l *Listener) SetDeadline(t time.Time) error {
	if l.ctx.Err() != nil {
		return l.opError(opSet, l.endError())
	}
	l.deadline.set(t)
	return nil
}

// Close stops listening. Accepts that wait return net.ErrClosed, connections that
// nobody accepted are reset unless ListenConfig.ReusePort leaves them to Accept, accepted
// ones live on. A second Close fails with net.ErrClosed.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.closing.Do(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.close(net.ErrClosed)
		counted := l.requestStats()
		err = nil
		if l.tcp != nil {
			err = l.tcp.listener.Close()
		}
		if l.id != nil {
			err = errors.Join(err, l.closeRDMA())
		}
		if l.reusePort {
			l.drain()
		} else {
			l.serving.Wait()
			l.queue.close()
			l.resetWaiting()
		}
		live.removeListener(l, l.stats(counted))
		l.deadline.set(time.Time{})
	})
	return l.opError(opClose, err)
}

// Stats returns what the listener counted so far. It may be called at any time.
func (l *Listener) Stats() ListenerStats {
	return l.stats(l.requestStats())
}

// requestStats are the connection manager's counts.
func (l *Listener) requestStats() cm.ListenStats {
	if l.id == nil {
		return cm.ListenStats{}
	}
	return l.id.ListenStats()
}

// device names the RDMA device that it listens on, if that is one.
func (l *Listener) device() string {
	if l.id == nil {
		return ""
	}
	return l.id.Device()
}

func (l *Listener) stats(cs cm.ListenStats) ListenerStats {
	s := ListenerStats{
		Accepted: l.accepted.Load(), AcceptedTCP: l.acceptedTCP.Load(), Established: l.standing(),
		Refused: l.refused.Load(), Failed: l.failed.Load(), Evicted: l.evicted.Load(),
		Pending: l.pending(), Requests: cs.Requests,
		Shortages: l.shortages.Count(), HalfOpen: cs.HalfOpen, TimedOut: cs.TimedOut, Malformed: cs.Malformed, Denied: cs.Denied,
	}
	if l.links != nil {
		r := l.links.Requests()
		s.Refused, s.Failed, s.Evicted = r.Refused, r.Failed, r.Evicted
		s.Requests = s.Established + r.Refused + r.Failed + r.Evicted // each stream is one
	}
	s.Failed += cs.Hangup
	s.Evicted += cs.Evicted
	return s
}

// event receives requests. It runs on the driver's goroutine and must not wait.
func (l *Listener) event(ev *cm.Event) {
	if ev.Type != cm.ConnectRequest {
		switch {
		case ev.Type == cm.ConnectError && shortage.Is(ev.Err):
			err := ev.Err
			var failed *cm.ConnectionError // to nobody that is known
			if errors.As(err, &failed) {
				err = failed.Err
			}
			l.lacking(err)
		case ev.Err != nil:
			l.logger.Warn("rdmanet: event at a listener", "listener", ev.ID.LocalAddr(), "event", ev.Type, "err", ev.Err)
		}
		if ev.Type == cm.DeviceRemoval && ev.ID.State() != cm.StateListening {
			l.lostDevices(newConnError(syscall.ENODEV, ev.Err))
		}
		return
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		_ = ev.ID.Close() // which refuses
		return
	}
	l.serving.Add(1)
	l.mu.Unlock()
	events := newIDEvents()
	if err := ev.ID.Migrate(events.channel()); err != nil {
		_ = l.turnedDown(ev.ID, err)
		_ = ev.ID.Close()
		l.serving.Done()
		return
	}
	ev.ID.Go(func() {
		defer l.serving.Done()
		task := l.traceServing()
		defer task.end()
		if err := l.serve(ev, events); err != nil {
			l.logger.Debug("rdmanet: a connection was not established", "listener", l.addr, "remote", ev.ID.RemoteAddr(), "err", err)
			_ = ev.ID.Close()
		}
	})
}

// lostDevices ends a listener whose clients cannot come any more.
func (l *Listener) lostDevices(err error) {
	if l.tcp != nil && !l.requireRDMA {
		l.fallBack(err)
		return
	}
	l.close(err)
}

// serve takes one request through its handshake to the accept queue. Until the
// client's handshake is checked nothing is spent on it.
func (l *Listener) serve(req *cm.Event, events *idEvents) error {
	peer, err := l.checkClient(req)
	if err != nil {
		code := cm.RefusedMalformed
		switch {
		case errors.Is(err, cm.ErrVersion):
			code = cm.RefusedVersion
		case errors.Is(err, ErrNoChecksum):
			code = cm.RefusedChecksum
		case shortage.Is(err):
			l.lacking(err)
			code = cm.RefusedResources
		case !errors.Is(err, ErrProtocol) && !errors.Is(err, cm.ErrProtocol):
			code = cm.RefusedFailure
		}
		return l.refuse(req.ID, code, err)
	}
	if err := l.takePlace(req.ID, events); err != nil {
		if errors.Is(err, errClientLeft) {
			l.failed.Add(1)
			return err
		}
		return l.refuse(req.ID, cm.RefusedShutdown, err)
	}
	var h handshake
	c, err := l.accept(req.ID, events, peer, &h)
	if err != nil {
		l.handshakes.fail(&h, l.enqueue)
		return err
	}
	l.handshakes.succeed(&h, c, l.enqueue)
	return nil
}

// enqueue has a connection wait for Accept.
func (l *Listener) enqueue(c *Conn) {
	l.established.Add(1)
	l.queue.push(c)
}

// checkClient checks all that a client says before anything is spent on it.
func (l *Listener) checkClient(req *cm.Event) (peer cm.Handshake, err error) {
	if link.IsHello(req.Param.PrivateData) {
		return peer, errWantsLink
	}
	if peer, err = cm.ParseHandshake(req.Param.PrivateData); err != nil {
		return peer, err
	}
	if _, err = cm.Negotiate(cm.Handshake{Version: cm.Version, MinVersion: cm.MinVersion}, peer); err != nil {
		return peer, err
	}
	if _, err = cm.Checksums(checksumFeatures(l.sizes.checksum), peer.Features); err != nil {
		return peer, err
	}
	ctx := req.ID.Verbs()
	if ctx == nil {
		return peer, ErrNoDevice
	}
	attr, err := ctx.QueryDevice()
	if err != nil {
		return peer, err
	}
	return peer, checkDoorbells(attr.Caps&verbs.CapWriteImm != 0, peer)
}

// accept answers a checked request. On an error the id is the caller's to close.
func (l *Listener) accept(id *cm.ID, events *idEvents, peer cm.Handshake, h *handshake) (*Conn, error) {
	ep, err := l.prepare(id, events)
	if err != nil {
		return nil, l.turnedDown(id, err)
	}
	c, err := l.establish(ep, id, events, peer, h)
	if err != nil {
		switch {
		case errors.Is(err, errEvicted):
			l.evict()
		case shortage.Is(err):
			l.lacking(err)
			l.refused.Add(1)
			_ = reject(id, cm.RefusedResources, err) // some devices have done so
		default:
			l.failed.Add(1)
		}
		ep.destroy(nil)
		return nil, err
	}
	live.add(c.entry, true)
	c.configureKeepAlive(func(net.KeepAliveConfig) net.KeepAliveConfig { return l.keepAlive })
	events.handOver(c)
	return c, nil
}

// evict counts a client that gave way, and has the log tell of it.
func (l *Listener) evict() {
	l.evicted.Add(1)
	l.evictions.note(l.addr)
}

// turnedDown ends a request that could not be prepared for, and returns why.
func (l *Listener) turnedDown(id *cm.ID, err error) error {
	switch {
	case errors.Is(err, errClientLeft):
		l.failed.Add(1)
		return err
	case l.ctx.Err() != nil:
		return l.refuse(id, cm.RefusedShutdown, err)
	case errors.Is(err, shortage.ErrGivenBack), shortage.Is(err):
		return l.refuse(id, cm.RefusedResources, err)
	}
	return l.refuse(id, cm.RefusedFailure, err)
}

func (l *Listener) establish(ep *endpoint, id *cm.ID, events *idEvents, peer cm.Handshake, h *handshake) (*Conn, error) {
	if err := ep.meet(l.sizes, peer); err != nil {
		return nil, err
	}
	mine := ep.handshake(l.sizes, false)
	private, err := mine.MarshalBinary()
	if err != nil {
		return nil, err
	}
	c, err := newConn(ep, l.network, unmapped(ep.id.LocalAddr()), unmapped(ep.id.RemoteAddr()), l.sizes, peer)
	if err != nil {
		return nil, err
	}
	// The client has to be woken by the answer before it can say anything, which takes
	// longer than polling lasts and in one process waits for whoever polls.
	c.recv.waiter.budget = spinBudget{}
	ctx := l.ctx
	if l.reusePort {
		ctx = context.WithoutCancel(ctx) // who was answered may think that it is connected
	}
	ctx, evict := context.WithCancelCause(ctx)
	defer evict(nil)
	patience := networkTicks
	if ep.sameHost {
		patience = silentTicks
	}
	h.confirmed = id.Confirmed
	confirming, end := ctx, evict
	if ep.confirm != nil {
		// Who is to hurry has confirmed and stands, but may have its first word to say yet.
		var hurry context.CancelCauseFunc
		confirming, hurry = context.WithCancelCause(ctx)
		defer hurry(nil)
		end = func(why error) {
			if why == errHurry {
				hurry(why)
			} else {
				evict(why)
			}
		}
	}
	l.handshakes.begin(h, patience, end)
	param := cm.ConnParam{
		PrivateData: private, RetryCount: l.sizes.path.retries, RNRRetryCount: rnrRetryCount,
		ResponderResources: ep.maxReads(), InitiatorDepth: ep.maxReads(),
	}
	if err := ep.id.Accept(&param); err != nil {
		return nil, err
	}
	stop := c.awaitFirstData(func() { _ = id.Notify() }) // who is connected by now needs it not
	err = l.confirmed(confirming, id, events)
	stop()
	if err != nil {
		return nil, err
	}
	if err := c.hearFirst(ctx, l.handshakeTimeout); err != nil {
		return nil, err
	}
	if err := c.sendAcknowledgement(); err != nil {
		return nil, err
	}
	return c, nil
}

// refuse rejects a request and returns why. If the client cannot be told it has
// left: some devices show that only by failing whatever is tried with its request.
func (l *Listener) refuse(id *cm.ID, code cm.RefusalCode, why error) error {
	l.refused.Add(1) // before the client can know
	if err := reject(id, code, why); err != nil {
		l.refused.Add(^uint64(0))
		l.failed.Add(1)
		return fmt.Errorf("client left before it was answered: %w", errors.Join(why, err))
	}
	if code == cm.RefusedFailure {
		l.logger.Warn("rdmanet: a connection could not be made", "listener", l.addr, "remote", id.RemoteAddr(), "err", why)
	}
	return why
}

func reject(id *cm.ID, code cm.RefusalCode, why error) error {
	refusal := cm.NewRefusal(code, why.Error())
	private, err := refusal.MarshalBinary()
	if err != nil {
		return err
	}
	return id.Reject(private)
}
