//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// lineIdle is how long a dialer keeps a line that carries no connection; a
	// listener keeps it for longer, so that it is seldom dialed in vain.
	lineIdle         = 500 * time.Millisecond
	listenerLineIdle = 2 * lineIdle
	// lineLinger is how long a line waits for the peer's application to close its end,
	// with the goroutine of the connection: not so long that it is taken for a leak.
	lineLinger = lineIdle / 5
	// maxIdleLines bounds the idle lines of the process's dialers, and those of
	// each listener.
	maxIdleLines = 64
	// maxKeptMemory bounds the memory of one connection that is kept for the next.
	maxKeptMemory = 64 << 10
)

// A line is what two ends keep of a connection that ended in good order, for their
// next one: the socket, with the names and the user that the kernel has vouched for,
// and what each has mapped of the other. Most of what a connection costs to set up is
// in these.
//
// It goes with the socket and never to another: whoever is at the other end has these
// mappings already. A connection on a line has a port of its own, begins with REQ as
// any other, and its offers say which of the descriptors the peer needs not be sent. It
// stands with REP: the inbox that the acceptor has takes messages from REQ on, and an RTU
// would tell nothing. It has ended when the dialer has said msgBye and the acceptor msgReady; each says so when it will
// touch nothing of the other any more, and what it keeps is made new before it is
// used again. Whatever is out of the ordinary spoils a line: it ends with its
// connection.
type line struct {
	dev      *device
	sock     *socket
	listener *listener // nil at the dialer
	name     string    // what the dialer has bound; "" at the dialer
	uid      uint32    // whose process the peer is
	src, dst netip.AddrPort

	mu      sync.Mutex
	agreed  bool     // both ends would keep it
	spoiled bool     // it is not to carry another connection
	closed  bool     // nothing is kept any more
	said    bool     // msgBye was sent, or msgReady
	heard   bool     // and the peer's has come
	left    bool     // the application has let go of the connection
	uses    uint64   // connections before this one
	lingers *timeout // the wait for the peer's

	// What the peer has mapped of this end, while no connection uses it, and what
	// is mapped of the peer.
	inbox  *inbox
	memory *memory
	event  *eventFile
	peer   *keptPeer
}

// keptPeer is what of a peer survives a connection.
type keptPeer struct {
	out  outbox
	door *doorbell
	mr   *remoteMR // the first that was offered
}

func (k *keptPeer) unmap() {
	if k == nil {
		return
	}
	k.out.unmap()
	if k.door != nil {
		k.door.release()
	}
	if k.mr != nil {
		k.mr.unmap()
	}
}

// A sharing says who was given something, so that what more than one peer was given
// is not kept for either.
type sharing struct {
	line  *line
	use   uint64 // line.uses
	many  bool
	known bool // the peer has had it since an earlier connection
}

// show notes that it is given to the peer of ln, or without a line to somebody, and
// says whether that peer has it already.
func (s *sharing) show(ln *line) (known bool) {
	if ln == nil || s.line != nil && s.line != ln {
		s.many, s.known = true, false
	}
	before := s.use
	if s.line = ln; ln != nil {
		s.use = ln.use()
	}
	// Its last use was that of the connection before: the peer has let go of all else.
	s.known = s.known && s.use == before+1
	return s.known
}

// keptBy says whether ln may keep it; ln.mu is held.
func (s *sharing) keptBy(ln *line) bool {
	s.known = !s.many && s.line == ln && s.use == ln.uses
	return s.known
}

func (ln *line) use() uint64 {
	if ln == nil {
		return 0
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.uses
}

// keeps says whether the line is to outlive its connection; ln.mu is held.
func (ln *line) keeps() bool { return ln.agreed && !ln.spoiled && !ln.closed }

// agree records that both ends would keep the line.
func (ln *line) agree() {
	if ln != nil {
		ln.mu.Lock()
		ln.agreed = true
		ln.mu.Unlock()
	}
}

// spoil has the line end with its connection.
func (ln *line) spoil() {
	if ln != nil {
		ln.mu.Lock()
		ln.spoiled = true
		ln.mu.Unlock()
	}
}

// sayBye ends the connection towards the peer; false if the line ends, too. It does not
// wait for a peer that leaves its socket full: then it says nothing.
func (ln *line) sayBye() bool {
	if ln == nil {
		return false
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !ln.keeps() || ln.sock.signalNow(msgBye) != nil {
		ln.spoiled = true
		return false
	}
	ln.said = true
	return true
}

// hears says, of a connection that the peer ended, whether the line goes on.
func (ln *line) hears() bool {
	if ln == nil {
		return false
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.keeps()
}

// peerDone is told that the peer will touch nothing of this connection any more, and
// that nobody reads the socket now. If the result is not nil the caller's goroutine is
// to wait for the next request.
func (ln *line) peerDone() *restingLine {
	ln.mu.Lock()
	ln.heard = true
	return ln.settle()
}

// done is told that the application has let go of the connection; clean says of all
// of it. It waits for the peer as little as sayBye.
func (ln *line) done(clean bool) {
	if ln == nil {
		return
	}
	ln.mu.Lock()
	if !clean {
		ln.spoiled = true
	}
	if ln.keeps() && (ln.listener != nil || !ln.said) {
		msg := byte(msgBye)
		if ln.listener != nil {
			msg = msgReady
		}
		ln.spoiled = ln.sock.signalNow(msg) != nil
		ln.said = true
	}
	ln.left = true
	if h := ln.settle(); h != nil {
		go h.await()
	}
}

// settle sees whether the connection is over at both ends, and returns the line if it
// rests at a listener now. It releases ln.mu.
func (ln *line) settle() *restingLine {
	switch {
	case !ln.left:
		// The application has yet to close the connection.
		ln.mu.Unlock()
	case !ln.keeps():
		heard := ln.heard
		ln.mu.Unlock()
		if heard {
			ln.sock.close()
		} else {
			ln.sock.shutdown() // the link closes it
		}
	case !ln.heard:
		use := ln.uses
		ln.lingers = lingering.add(func() { ln.giveUp(use) })
		ln.mu.Unlock()
	default:
		if ln.lingers != nil {
			lingering.remove(ln.lingers)
			ln.lingers = nil
		}
		ln.uses++
		ln.said, ln.heard, ln.left = false, false, false
		ln.trim()
		ln.mu.Unlock()
		if ln.listener != nil {
			return ln.listener.rest(ln)
		}
		idleLines.put(ln)
	}
	return nil
}

// lingering are lines whose peer has not said yet that it is done.
var lingering = timeoutList{after: lineLinger}

// giveUp does not wait for the peer any more. It may come too late to be removed, when
// the peer is done after all and the line carries another connection than that of use.
func (ln *line) giveUp(use uint64) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.uses == use {
		ln.spoiled = true
		ln.sock.shutdown()
	}
}

// trim gives back what memory a busy connection needed more; ln.mu is held.
func (ln *line) trim() {
	in, m := ln.inbox, ln.memory
	if in != nil && in.segment != nil || m != nil && m.segment != nil {
		// Both or none: the peer has them by one mapping.
		if in == nil || m == nil || in.segment != m.segment || m.trimJoint(in) != nil {
			ln.dropInbox()
			ln.dropMemory()
		}
		return
	}
	if m != nil && m.trim() != nil {
		ln.dropMemory()
	}
}

func (ln *line) dropInbox() {
	if ln.inbox != nil {
		ln.inbox.close()
		ln.inbox = nil
	}
}

func (ln *line) dropMemory() {
	if ln.memory != nil {
		ln.memory.free()
		ln.memory = nil
	}
}

// free lets go of what is kept. It is part of closing the socket.
func (ln *line) free() {
	if ln == nil {
		return
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.closed = true
	ln.dropInbox()
	ln.dropMemory()
	if ln.event != nil {
		ln.event.close()
		ln.event = nil
	}
	ln.peer.unmap()
	ln.peer = nil
}

// keepInbox takes the inbox of a QP that is through with it; false leaves it to the caller.
func (ln *line) keepInbox(in *inbox) bool {
	if ln == nil {
		return false
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !ln.keeps() || ln.inbox != nil || in.backed || in.unknown() || !in.sharing.keptBy(ln) {
		return false
	}
	ln.inbox = in
	return true
}

// takeInbox returns the kept inbox if it has that geometry and lies in s, or in a file of
// its own if that is nil. It is as good as new.
func (ln *line) takeInbox(g geometry, s *segment) *inbox {
	if ln == nil {
		return nil
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	in := ln.inbox
	if in == nil || in.geometry != g || in.segment != s {
		return nil
	}
	ln.inbox = nil
	in.renew()
	return in
}

// keepMemory takes memory that is closed; false leaves it to the caller.
func (ln *line) keepMemory(m *memory) bool {
	if ln == nil {
		return false
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !ln.keeps() || ln.memory != nil || m.first > maxKeptMemory || !m.sharing.keptBy(ln) {
		return false
	}
	ln.memory = &memory{ctx: m.ctx, fd: m.fd, data: m.data, off: m.off, segment: m.segment, committed: m.committed, first: m.first, sharing: m.sharing, shown: m.shown}
	return true
}

// takeMemory returns kept memory of that shape, all zeros, or nil: for a QP of that many
// receives, whose inbox is kept, too, or any if they are 0.
func (ln *line) takeMemory(ctx *devContext, size, committed, receives int) *memory {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	m := ln.memory
	if receives == 0 {
		if m == nil || m.segment != nil || !m.like(ctx, size, committed) {
			return nil
		}
	} else if m == nil || m.segment == nil || m.segment.shift != geometryFor(receives).shift || !m.like(ctx, size, committed) {
		// The connection has others, which are kept next.
		ln.dropInbox()
		ln.dropMemory()
		return nil
	}
	ln.memory = nil
	clear(m.data[:m.first])
	return m
}

// keepEvent takes the eventfd of a channel that is closed; false leaves it to the caller.
func (ln *line) keepEvent(e *eventFile) bool {
	if ln == nil {
		return false
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !ln.keeps() || ln.event != nil || !e.sharing.keptBy(ln) || e.file.SetDeadline(time.Time{}) != nil {
		return false
	}
	ln.event = e
	return true
}

// takeEvent returns the kept eventfd, or nil.
func (ln *line) takeEvent() *eventFile {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	e := ln.event
	ln.event = nil
	return e
}

// keepPeer takes what a QP has of its peer; false leaves it to the caller.
func (ln *line) keepPeer(p *peer) bool {
	if ln == nil {
		return false
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !ln.keeps() || ln.peer != nil {
		return false
	}
	if p.door != nil {
		// It may be being rung: who waits is then woken for nothing, by the next connection.
		p.door.local.Store(nil)
	}
	k := &keptPeer{out: p.out, door: p.door}
	if len(p.mrs) > 0 && p.mrs[0].first {
		k.mr, p.mrs = p.mrs[0], p.mrs[1:]
	}
	p.line, p.out, p.door = nil, outbox{}, nil
	p.unmap()
	ln.peer = k
	return true
}

// takePeer returns what is kept of the peer, never nil.
func (ln *line) takePeer() *keptPeer {
	if ln != nil {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		if k := ln.peer; k != nil {
			ln.peer = nil
			return k
		}
	}
	return &keptPeer{}
}
