//go:build linux && (amd64 || arm64)

package soft

import (
	"cmp"
	"container/list"
	"errors"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
)

const (
	defaultHandshakeTimeout = 5 * time.Second
	defaultMaxHalfOpen      = 1024
	defaultBacklog          = 128
	// kernelBacklog lets a burst of dialers wait in the kernel, which wakes them at
	// once; otherwise they would have to try again. The kernel bounds it by
	// net.core.somaxconn.
	kernelBacklog = 1<<16 - 1
)

// A listener accepts the dialers that connect to a listening id, and gives the requests of those
// that send one to its sink.
type listener struct {
	id      *cmID
	sock    *control.Socket // only accepted from
	addr    netip.AddrPort
	dual    bool // the wildcard of both families
	opts    driver.CMOptions
	backlog int

	mu     sync.Mutex
	room   sync.Cond // on mu: pending or half fell, or no more held, or closed
	closed bool
	held   bool // no dialer is to be accepted
	// pending requests have been given to the sink and not been answered;
	// waiting ones are complete and wait for pending to fall.
	pending int
	waiting int
	half    list.List // *halfOpen, the oldest first
	stats   driver.CMListenStats
}

func (id *cmID) Listen(backlog int) error {
	if backlog <= 0 {
		backlog = defaultBacklog
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("Listen", cmBound); err != nil {
		return err
	}
	if err := unix.Listen(id.claim.fd, kernelBacklog); err != nil {
		return os.NewSyscallError("listen", err)
	}
	sock, err := control.NewSocket(id.claim.take())
	if err != nil {
		id.state = cmFailed // the address went with the descriptor
		return err
	}
	l := &listener{id: id, sock: sock, addr: id.local, backlog: backlog, opts: id.opts}
	l.dual = id.local.Addr() == netip.IPv6Unspecified() && !id.opts.AFOnly
	l.room.L = &l.mu
	l.opts.HandshakeTimeout = cmp.Or(l.opts.HandshakeTimeout, defaultHandshakeTimeout)
	l.opts.MaxHalfOpen = cmp.Or(l.opts.MaxHalfOpen, defaultMaxHalfOpen)
	id.listen, id.state = l, cmListening
	go l.run()
	return nil
}

func (id *cmID) ListenStats() driver.CMListenStats {
	id.mu.Lock()
	l := id.listen
	id.mu.Unlock()
	if l == nil {
		return driver.CMListenStats{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := l.stats
	stats.HalfOpen = l.half.Len()
	return stats
}

// run accepts until the listener is closed.
func (l *listener) run() {
	const firstPause, lastPause = 5 * time.Millisecond, time.Second
	pause := firstPause
	for l.waitRoom() {
		fd, name, err := l.sock.Accept()
		if err == nil {
			err = l.admit(fd, name)
		}
		switch {
		case err == nil:
			pause = firstPause
		case errors.Is(err, os.ErrClosed):
			return
		default:
			l.reportShortage(err)
			if l.evictOldest() {
				continue
			}
			select {
			case <-time.After(pause):
			case <-l.id.done:
				return
			}
			pause = min(2*pause, lastPause)
		}
	}
}

// waitRoom waits until another dialer may be accepted, and reports whether the listener is open.
func (l *listener) waitRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && (l.held || l.pending+l.waiting >= l.backlog) {
		l.room.Wait()
	}
	return !l.closed
}

// awaitTurn waits until the request that has come by sock may be given to the sink, and reports
// whether it may: the listener may be closed, or the dialer leave.
func (l *listener) awaitTurn(sock *control.Socket) bool {
	l.mu.Lock()
	left, stop := false, func() {}
	if !l.closed && l.pending >= l.backlog {
		l.waiting++
		stop = sock.OnHangup(func() {
			l.mu.Lock()
			left = true
			l.room.Broadcast()
			l.mu.Unlock()
		})
		for !l.closed && !left && l.pending >= l.backlog {
			l.room.Wait()
		}
		l.waiting--
	}
	enters := !l.closed && !left
	switch {
	case enters:
		l.pending++
	case !l.closed:
		l.stats.Hangup++
		l.room.Broadcast()
	}
	l.mu.Unlock()
	stop()
	return enters
}

// answered ends the wait of a pending request.
func (l *listener) answered() {
	l.mu.Lock()
	l.pending--
	l.room.Broadcast()
	l.mu.Unlock()
}

// count adds to one of the counts.
func (l *listener) count(n *uint64) {
	l.mu.Lock()
	*n++
	l.mu.Unlock()
}

// close stops listening and drops all half-open dialers. Pending requests stay. If the socket is shared
// others may listen with it.
func (l *listener) close(shared bool) {
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	for e := l.half.Front(); e != nil; e = e.Next() {
		h := e.Value.(*halfOpen)
		h.late.Stop()
		l.turnAway(h.sock)
	}
	l.half.Init()
	l.mu.Unlock()
	if shared {
		l.sock.Close()
		return
	}
	// A child of this process has a copy of the socket until its execve, and dialers would find
	// somebody who listens, were it not shut down.
	leave(l.id.dev.name, l.addr.Port())
	l.sock.CloseListening()
}

// accepts reports whether a dialer of dst may have come to this listener.
func (l *listener) accepts(dst netip.AddrPort) bool {
	if dst.Port() != l.addr.Port() {
		return false
	}
	own := l.addr.Addr()
	if !own.IsUnspecified() {
		return dst.Addr() == own
	}
	if own.Is4() != dst.Addr().Is4() && !l.dual {
		return false
	}
	return knownLocal(dst.Addr())
}
