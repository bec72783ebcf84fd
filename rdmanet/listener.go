package rdmanet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
)

var _ net.Listener = (*Listener)(nil)

// A Listener accepts RDMA connections, and on networks of TCP those of TCP, too. Its
// methods may be called concurrently; those of one that Listen has not made fail with
// syscall.EINVAL. A client's failed handshake is counted and never returned by Accept.
type Listener struct {
	links            *link.Listener // nil where RDMA cannot listen
	id               *cm.ID         // of links
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

	backlog   int
	evictions evictLog
	shortages *shortage.Queue
	holding   atomic.Pointer[cm.ID] // whose clients shortages holds back: id, also when Listen has given that up

	ctx      context.Context // ends with Close, or with the device
	close    context.CancelCauseFunc
	closing  sync.Once
	serving  sync.WaitGroup // of TCP clients
	mu       sync.Mutex
	closed   bool // guarded by mu, as fallback is
	fallback *FallbackError
	fellBack sync.Once
	deadline acceptDeadline

	accepted, acceptedTCP atomic.Uint64
	requests              lastCount[cm.ListenStats] // of the id, which has them no more when it is closed
	counted               lastCount[ListenerStats]  // for the process
}

func newListener(network string, s sizes, lc *ListenConfig) *Listener {
	backlog := lc.Backlog
	if backlog == 0 {
		backlog = DefaultBacklog()
	}
	timeout := lc.HandshakeTimeout
	if timeout == 0 {
		timeout = DefaultHandshakeTimeout
	}
	l := &Listener{
		network: network, sizes: s, logger: loggerOr(lc.Logger), handshakeTimeout: timeout,
		keepAlive:   dialKeepAlive(lc.KeepAlive, lc.KeepAliveConfig),
		requireRDMA: lc.RequireRDMA, reusePort: lc.ReusePort, onFallback: lc.OnFallback,
		backlog: backlog,
	}
	l.evictions.logger = l.logger
	l.ctx, l.close = context.WithCancelCause(context.Background())
	l.deadline.init()
	l.shortages = shortage.NewQueue(func(hold bool) { l.holding.Load().Hold(hold) })
	return l
}

// ok reports whether l is a listener, and not the zero value of a program.
func (l *Listener) ok() bool { return l != nil && l.close != nil }

func (l *Listener) opError(op string, err error) error {
	return opError(op, l.network, nil, l.addr, err)
}

// Accept waits for a connection and returns it, a *Conn or, on networks of TCP, a
// *net.TCPConn; the caller must Close it. When every device that the listener is bound
// to was removed it fails with ENODEV, unless it takes TCP clients and RequireRDMA is not
// set; a listener on a wildcard address serves devices that come later, too. After Close it
// fails with net.ErrClosed, and at the deadline with os.ErrDeadlineExceeded.
//
// Where the process lacks descriptors, memory or address space for a client, the client
// waits in its Dial, and an Accept that waits meanwhile fails as that of package net does:
// with a *net.OpError whose Temporary method returns true, and syscall.EMFILE, ENFILE or
// ENOMEM for errors.Is. Call it again, after a pause as http.Server makes; the client comes
// when there is room.
func (l *Listener) Accept() (net.Conn, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
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
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	c, _, err := l.next(nil)
	return c, err
}

// next waits for a connection of either kind, without preferring one.
func (l *Listener) next(tcp <-chan acceptedTCP) (*Conn, *net.TCPConn, error) {
	if l.links != nil {
		l.links.BeginAccept()
		defer l.links.EndAccept()
	}
	asked := false // whether TCP's accept was since
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
		if l.links != nil {
			l.links.Poll()
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
			switch {
			case t.err == nil:
				l.acceptedTCP.Add(1)
			case !asked: // it may be from long ago, when nobody was here: what is wrong now?
				asked = true
				continue
			}
			return nil, t.conn, t.err
		case err := <-l.shortages.Errors():
			if pending, _ := l.opened(); pending == 0 {
				return nil, nil, l.acceptShortage(err)
			}
		}
	}
}

// arrivals returns what holds a token while there is something for take; nil where there are
// no links.
func (l *Listener) arrivals() <-chan struct{} {
	if l.links == nil {
		return nil
	}
	return l.links.Ready()
}

// opened is how many connections wait for Accept, and how many have ever come.
func (l *Listener) opened() (pending int, ever uint64) {
	if l.links == nil {
		return 0, 0
	}
	return l.links.Opened()
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
func (l *Listener) Addr() net.Addr {
	if !l.ok() {
		return nil
	}
	return l.addr
}

// SetDeadline sets when Accepts that wait, now or later, give up with
// os.ErrDeadlineExceeded; the zero time means never.
func (l *Listener) SetDeadline(t time.Time) error {
	if !l.ok() {
		return syscall.EINVAL
	}
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
	if !l.ok() {
		return syscall.EINVAL
	}
	err := net.ErrClosed
	l.closing.Do(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.close(net.ErrClosed)
		if l.id != nil {
			l.requests.end(func() cm.ListenStats {
				counted := l.id.ListenStats()
				counted.HalfOpen = 0
				return counted
			})
		}
		err = nil
		if l.tcp != nil {
			err = l.tcp.listener.Close()
		}
		if l.links != nil {
			err = errors.Join(err, l.links.Close())
		}
		if l.reusePort {
			l.drain()
		} else {
			l.serving.Wait()
			l.resetWaiting()
		}
		live.removeListener(l)
		l.deadline.set(time.Time{})
	})
	return l.opError(opClose, err)
}

// Stats returns what the listener counted so far. It may be called at any time.
func (l *Listener) Stats() ListenerStats {
	if !l.ok() {
		return ListenerStats{}
	}
	return l.stats(l.requestStats())
}

// requestStats are the connection manager's counts, which an id that is closed has no more.
func (l *Listener) requestStats() cm.ListenStats {
	if l.id == nil {
		return cm.ListenStats{}
	}
	return l.requests.now(l.id.ListenStats)
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
		Accepted: l.accepted.Load(), AcceptedTCP: l.acceptedTCP.Load(),
		Shortages: l.shortages.Count(), HalfOpen: cs.HalfOpen, TimedOut: cs.TimedOut, Malformed: cs.Malformed, Denied: cs.Denied,
	}
	s.Pending, s.Established = l.opened()
	if l.links != nil {
		r := l.links.Requests()
		s.Refused, s.Failed, s.Evicted = r.Refused, r.Failed, r.Evicted
	}
	s.Requests = s.Established + s.Refused + s.Failed + s.Evicted // each stream is one
	s.Failed += cs.Hangup
	s.Evicted += cs.Evicted
	return s
}

// evicted takes in that a client has given way to others, before it has asked for anything or
// after it was answered.
func (l *Listener) evicted() { l.evictions.note(l.addr) }

// event takes in what the connection manager says of the listening id. It runs on the
// driver's goroutine and must not wait.
func (l *Listener) event(ev *cm.Event) {
	switch {
	case ev.Type == cm.ConnectError && shortage.Is(ev.Err):
		err := ev.Err
		var failed *cm.ConnectionError // to nobody that is known
		if errors.As(err, &failed) {
			err = failed.Err
		}
		l.reportShortage(err)
	case ev.Err != nil:
		asynclog.Log(l.logger, slog.LevelWarn, "rdmanet: event at a listener", "listener", ev.ID.LocalAddr(), "event", ev.Type, "err", ev.Err)
	}
	if ev.Type == cm.DeviceRemoval && ev.ID.State() != cm.StateListening {
		l.lostDevices(newConnError(syscall.ENODEV, ev.Err))
	}
}

// lostDevices ends a listener whose clients cannot come any more.
func (l *Listener) lostDevices(err error) {
	if l.tcp != nil && !l.requireRDMA {
		go l.fallBack(err) // a handler may do anything
		return
	}
	l.close(err)
}
