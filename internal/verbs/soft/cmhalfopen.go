//go:build linux && (amd64 || arm64)

package soft

import (
	"cmp"
	"container/list"
	"errors"
	"io"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
)

// A halfOpen is a dialer that has connected and not sent a request. It costs a socket, a goroutine
// and a buffer, and is dropped after HandshakeTimeout.
type halfOpen struct {
	sock  *control.Socket
	name  string // the name it has bound, which the kernel vouches for
	since time.Time
	elem  *list.Element // in listener.half; nil when it was dropped
	late  *runtimer.Timer
}

// admit takes in a dialer, in place of the oldest silent one if there are too many. It fails if
// there is no memory for it; the dialer is told to dial again.
func (l *listener) admit(fd int, name string) error {
	sock, err := control.NewSocketOr(fd, func() {
		_ = control.SendTo(uintptr(fd), control.AppendREJ(nil, control.RejectAgain, nil), nil)
	})
	if err != nil {
		return err
	}
	pid, uid, err := sock.PeerCred()
	if err != nil || !control.MayTalk(pid, uid, l.opts.AnyUser) {
		l.count(&l.stats.Denied)
		refuse(sock, driver.RejectDenied, nil)
		return nil
	}
	h := &halfOpen{sock: sock, name: name, since: time.Now()}
	l.mu.Lock()
	for l.half.Len() >= l.opts.MaxHalfOpen && !l.closed {
		if !l.evictSilent() {
			l.room.Wait() // until a request that is there has been read
		}
	}
	if l.closed {
		l.mu.Unlock()
		l.turnAway(sock)
		return nil
	}
	h.elem = l.half.PushBack(h)
	h.late = runtimer.After(l.opts.HandshakeTimeout, func() { l.tooLate(h) })
	l.mu.Unlock()
	go l.readRequest(h)
	return nil
}

// evictSilent drops the oldest half-open dialer of which nothing waits to be read, and reports
// whether there is one. It is told to dial again. mu is held.
func (l *listener) evictSilent() bool {
	for e := l.half.Front(); e != nil; e = e.Next() {
		h := e.Value.(*halfOpen)
		if !h.sock.Silent() {
			continue
		}
		l.remove(h)
		l.stats.Evicted++
		refuse(h.sock, control.RejectAgain, nil)
		if l.opts.OnEvict != nil {
			l.opts.OnEvict()
		}
		return true
	}
	return false
}

// tooLate drops a dialer that sent nothing in time. If something is there it is about to be read.
func (l *listener) tooLate(h *halfOpen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.elem != nil && !l.closed && h.sock.Silent() {
		l.remove(h)
		l.stats.TimedOut++
		h.sock.Close()
	}
}

// remove has the dialer be half-open no more. mu is held.
func (l *listener) remove(h *halfOpen) {
	l.half.Remove(h.elem)
	h.elem = nil
	h.late.Stop()
	if l.half.Len() == l.opts.MaxHalfOpen-1 {
		l.room.Broadcast()
	}
}

// readRequest waits for the request of a half-open dialer, and handles it.
func (l *listener) readRequest(h *halfOpen) {
	// The dialer has to be claimed before its message is taken from the socket, where others
	// check whether it is silent.
	h.sock.Await()
	if !l.claim(h) {
		h.sock.Close()
		return
	}
	buf := make([]byte, control.MaxMessage)
	n, err := h.sock.Peek(buf)
	if err != nil {
		l.countFailed(err)
		h.sock.Close()
		return
	}
	if n == 2 && buf[0] == control.MsgSHARE && buf[1] == control.WireVersion {
		l.share(h.sock)
		return
	}
	l.handleRequest(h.sock, h.name, buf[:n])
}

// handleRequest takes in the first message of a dialer of that name. It is still in the socket, with
// its descriptors.
func (l *listener) handleRequest(sock *control.Socket, name string, msg []byte) {
	m, err := control.ParseREQ(msg)
	switch {
	case err != nil:
	case !(control.IsNameOf(name, l.id.dev.name, m.Src) && l.accepts(m.Dst)):
		err = control.BadMessage("REQ with addresses that are not its own")
	}
	if err != nil {
		l.count(&l.stats.Malformed)
		reason := driver.RejectNone
		if v := control.VersionError(0); errors.As(err, &v) {
			reason = control.RejectUnsupported
		}
		refuse(sock, reason, []byte(err.Error()))
		return
	}
	m.Offer = append([]byte(nil), m.Offer...) // msg is much larger
	if !l.awaitTurn(sock) {
		l.turnAway(sock)
		return
	}
	l.deliver(l.requested(sock, &m))
}

// claim removes the dialer, and reports whether to go on: it may have been dropped.
func (l *listener) claim(h *halfOpen) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || h.elem == nil {
		return false // counted when it was dropped
	}
	l.remove(h)
	return true
}

// countFailed counts a dialer that sent no message, by the error.
func (l *listener) countFailed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case err == io.EOF:
		l.stats.Hangup++
	default:
		l.stats.Malformed++
	}
}

// requested returns the id of a request.
func (l *listener) requested(sock *control.Socket, req *control.ConnMsg) *cmID {
	id := newID(l.id.dev, l.id.events.Sink())
	id.state = cmRequested
	id.ctx = l.id.dev.sharedContext()
	id.opts = l.opts
	id.opts.TOS = cmp.Or(id.opts.TOS, req.TOS)
	id.local, id.remote = req.Dst, req.Src
	id.sock, id.request, id.listen = sock, req, l
	return id
}

// deliver gives the id of a request to the sink. The id's events are held back until the sink
// has seen it.
func (l *listener) deliver(id *cmID) {
	id.events.Hold()
	l.count(&l.stats.Requests)
	ev := driver.CMEvent{Type: driver.CMConnectRequest, ID: id, ListenID: l.id, Param: swapped(id.request.Param)}
	l.id.events.PushThen(ev, func(delivered bool) {
		if !delivered {
			id.Close()
			return
		}
		id.events.Release()
	})
	l.id.events.Deliver()
}
