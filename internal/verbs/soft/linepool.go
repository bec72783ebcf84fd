//go:build linux && (amd64 || arm64)

package soft

import (
	"container/list"
	"net/netip"
	"slices"
	"sync"

	pool "github.com/libp2p/go-buffer-pool"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// idleLines are those that this process has dialed and that carry no connection.
var idleLines = linePool{late: timeoutList{after: lineIdle}}

// A linePool holds idle lines for their next dial, each for a bounded time.
type linePool struct {
	mu    sync.Mutex
	lines []*pooledLine // the latest last
	late  timeoutList
}

type pooledLine struct {
	*line
	late *timeout
}

// put takes a line in, in place of the oldest if there are too many.
func (p *linePool) put(ln *line) {
	e := &pooledLine{line: ln}
	var oldest *pooledLine
	p.mu.Lock()
	if len(p.lines) == maxIdleLines {
		oldest = p.lines[0]
		p.lines = slices.Delete(p.lines, 0, 1)
		p.late.remove(oldest.late)
	}
	p.lines = append(p.lines, e)
	e.late = p.late.add(func() { p.tooLate(e) })
	p.mu.Unlock()
	if oldest != nil {
		oldest.sock.close()
	}
}

// tooLate drops a line that nobody wanted.
func (p *linePool) tooLate(e *pooledLine) {
	p.mu.Lock()
	i := slices.Index(p.lines, e)
	if i >= 0 {
		p.lines = slices.Delete(p.lines, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		e.sock.close()
	}
}

// take returns the line from src to dst that was used last, whose listener is trusted,
// or nil.
func (p *linePool) take(dev *device, src netip.Addr, dst netip.AddrPort, opts *verbs.CMOptions) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range slices.Backward(p.lines) {
		if e.dev == dev && e.dst == dst && e.src.Addr() == src && mayTalk(e.uid, opts.AnyUser) {
			p.lines = slices.Delete(p.lines, i, i+1)
			p.late.remove(e.late)
			return e.line
		}
	}
	return nil
}

// rest takes a line in that carries no connection. The caller has await called, if the
// result is not nil.
func (l *listener) rest(ln *line) *restingLine {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		ln.sock.close()
		return nil
	}
	for l.resting.Len() >= maxIdleLines {
		l.wakeLine(l.resting.Front()).sock.close()
	}
	h := &restingLine{line: ln}
	h.elem = l.resting.PushBack(h)
	h.late = l.unused.add(func() {
		if l.unrest(h) {
			ln.sock.close()
		}
	})
	l.mu.Unlock()
	return h
}

// restingLine is an idle line of a listener: a socket, a goroutine and a buffer.
type restingLine struct {
	*line
	elem *list.Element // in listener.resting; nil when it rests no more
	late *timeout      // in listener.unused
}

// wakeLine takes a line from those that rest. Called with mu held.
func (l *listener) wakeLine(e *list.Element) *line {
	h := l.resting.Remove(e).(*restingLine)
	h.elem = nil
	l.unused.remove(h.late)
	return h.line
}

// unrest is wakeLine; false if the line was dropped meanwhile.
func (l *listener) unrest(h *restingLine) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.elem == nil {
		return false
	}
	l.wakeLine(h.elem)
	return true
}

// await waits for the next request on a line.
func (h *restingLine) await() {
	if id := h.hear(); id != nil {
		h.listener.bring(id)
	}
}

// hear is await up to where the request has an id.
func (h *restingLine) hear() *cmID {
	buf := pool.Get(maxLinkMsg)
	defer pool.Put(buf)
	n, fds, err := h.sock.recv(buf)
	if !h.listener.unrest(h) || err != nil {
		closeFDs(fds)
		h.sock.close()
		return nil
	}
	return h.listener.request(h.sock, h.name, h.uid, buf[:n], fds)
}
