package link

import (
	"errors"
	"net"
	"os"
	"runtime"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// writesPerLook is after how many Writes one of them polls, where nobody else does who waits.
const writesPerLook = 16

// Write writes p, and waits while the peer's ring is full. It returns how many bytes were
// handed to the device, which sends them also when the stream is closed then. What the peer's
// program closes without reading counts as written, up to a bound; see earlyclose.go.
func (s *stream) Write(p []byte) (n int, err error) {
	e := s.e
	if !e.mu.tryLock() {
		e.mu.Lock()
	}
	s.out.turn.begin(&e.mu)
	if s.out.share >= turnBytes {
		if e.mu.contended() {
			s.giveWay()
		}
		s.out.share = 0
	}
	n, err = s.write(p)
	s.endTurn(&e.staging.turns)
	s.out.turn.end()
	yields := e.yieldDue()
	e.mu.Unlock()
	e.startWorker()
	if yields {
		runtime.Gosched()
	}
	return n, err
}

func (s *stream) write(p []byte) (n int, err error) {
	e := s.e
	if s.out.waiter.expired() {
		if s.end.gone.Load() {
			return 0, net.ErrClosed
		}
		return 0, os.ErrDeadlineExceeded
	}
	open := s.toleratesClose(len(p))
	if e.writes++; e.writes%writesPerLook == 0 {
		e.pollKept()
	}
	for {
		k, err := s.send(p[n:])
		n += k
		if err == nil && n < len(p) {
			if e.pollKept(); s.mayWrite() {
				continue
			}
			if err = s.stall(); err == nil {
				continue
			}
		}
		if err != nil && s.dropsRest(open, err, len(p)-n) {
			return len(p), nil
		}
		return n, err
	}
}

const (
	// turnBytes is what a stream posts while others wait for the lane.
	turnBytes = 16 << 10
	// leastShare is what a message counts at least.
	leastShare = 256
)

// giveWay lets go of the lock. Those who wait for it have it first if the stream has had its
// turn. mu is held when it is called and when it returns.
func (s *stream) giveWay() {
	e := s.e
	if e.yieldDue() {
		e.mu.Unlock()
		e.startWorker()
		runtime.Gosched()
	} else if s.out.share < turnBytes || !e.mu.contended() {
		e.mu.Unlock()
		e.startWorker()
	} else {
		if s.out.passing == nil {
			s.out.passing = make(chan struct{}, 1)
		}
		s.out.share = 0
		e.mu.pass(s.out.passing)
		e.startWorker()
	}
	e.mu.Lock()
}

// stall waits until there may be room.
func (s *stream) stall() error {
	s.stalls(true)
	region := traceStall()
	err := s.e.wait(&s.out.waiter, s.mayWrite)
	region.End()
	s.stalls(false)
	if s.e.state.PassTurn(s.st); s.e.state.Happened() && s.e.err == nil {
		s.e.settle()
	}
	return err
}

// mayWrite reports whether a Write need not wait. mu is held.
func (s *stream) mayWrite() bool { return s.out.writable || s.writeErr() != nil }

// send posts what there is room for, message by message, so that streams of a lane take turns.
// mu is held when it is called and when it returns.
func (s *stream) send(p []byte) (n int, err error) {
	e := s.e
	for first := true; first || n < len(p); first = false {
		if !first && e.state.Marked() {
			s.giveWay()
		}
		if err = s.writeErr(); err != nil || len(p) == 0 {
			return n, err
		}
		var k int
		switch rest := p[n:]; {
		case s.writesAhead(len(rest)):
			k, err = s.writeAhead(rest)
		case e.p.synchronous || len(rest)+s.header() <= e.p.inline:
			k, err = s.message(rest, nil, true, summed{})
		default:
			k, err = s.stage(rest)
		}
		e.settle()
		if n += k; k == 0 || err != nil {
			return n, err
		}
	}
	return n, nil
}

// message posts the begin of what is left of a Write: of p inline, or of what was staged from
// it. 0 means that there is no room now. What was summed ahead is of p. follows says that the caller sends
// at once what the end of the ring cuts off, without a wait. mu is held.
func (s *stream) message(p []byte, from *staged, follows bool, ahead summed) (int, error) {
	e := s.e
	span, wr, err := s.request(len(p), controlRoom, follows)
	if wr == nil {
		return 0, err
	}
	n := s.st.Payload(span, len(p))
	if from == nil {
		wr.Flags |= verbs.SendInline
		wr.Inline = p[:n]
	} else {
		e.gather(wr, verbs.SGE{Addr: from.addr + uint64(len(from.bytes)-len(p)), Length: uint32(n), LKey: from.lkey})
	}
	var taken bool
	if s.st.Frames() == nil {
		taken = e.post(s, nil, false)
	} else {
		taken = s.frame(wr, p[:n], from, ahead)
	}
	if !taken { // nothing was sent, though the device may read some of it; the lane says why
		if from != nil {
			from.last = e.sq.posted
		}
		s.out.writable = false
		return 0, nil
	}
	s.posted(p[:n], span)
	return n, nil
}

// request has the machine say where the next bytes of a Write go, at most n, and returns the request of
// their message, or nil if there is no room now. The send queue is to have room for so many requests. mu is
// held.
func (s *stream) request(n, room int, follows bool) (span lane.Span, wr *verbs.SendWR, err error) {
	e := s.e
	if !e.sq.hasHalf() && !e.room(room) {
		e.block(s)
		return span, nil, nil
	}
	if !s.reaches() {
		s.e.peerMemory.await(s)
		return span, nil, nil
	}
	span, bell, ok, err := e.state.Data(s.st, n, follows && e.sq.hasTwo())
	if err != nil {
		if errors.Is(err, lane.ErrStream) {
			if cause := s.writeErr(); cause != nil {
				err = cause
			}
		}
		return span, nil, err
	}
	if !ok {
		s.out.writable = false
		return span, nil, nil
	}
	return span, e.request(span.Ring.Addr+uint64(span.Off), span.Ring.RKey, bell), nil
}

// posted records that p was posted, which takes span in the peer's ring. mu is held.
func (s *stream) posted(p []byte, span lane.Span) {
	s.keep(p)
	s.e.counts.bytesOut += uint64(span.Len)
	if framing := uint64(span.Len) - uint64(len(p)); framing > 0 {
		s.counts.count().framingOut += framing
	}
	s.counts.sent++
	s.out.share = min(s.out.share+int32(max(int(span.Len), leastShare)), turnBytes)
}

// stage copies what there is room for to send memory, without the lock, and posts it. mu is
// held when it is called and when it returns.
func (s *stream) stage(p []byte) (n int, err error) {
	e := s.e
	free := s.st.Free()
	switch {
	case free == 0:
		return s.message(nil, nil, false, summed{}) // which has the machine tell of room
	case !e.room(controlRoom):
		s.endTurn(&e.staging.turns)
		e.block(s)
		return 0, nil
	case !s.reaches():
		s.endTurn(&e.staging.turns)
		s.e.peerMemory.await(s)
		return 0, nil
	case !e.staging.turns.may(s, e.staging.free()):
		e.awaitStaging(s)
		return 0, nil
	}
	piece, head, sum := p[:min(len(p), lane.MaxMessage, free)], s.header(), s.st.Sum()
	if head > 0 {
		piece = p[:s.payload(len(p))]
	}
	from := e.staging.take(head + len(piece))
	if from == nil {
		e.reap()
		if from = e.staging.take(head + len(piece)); from == nil {
			e.awaitStaging(s)
			return 0, nil
		}
	}
	s.endTurn(&e.staging.turns)
	e.tasks.Add(1) // its memory stays
	e.mu.Unlock()
	to := from.bytes[head:]
	if copy(to, piece); head > 0 {
		sum = ring.Checksum(sum, to)
	}
	e.mu.Lock()
	e.tasks.Done()
	from.framed = head > 0
	// A ring that wraps takes two messages. What completes meanwhile is taken in, the first of them
	// too, and the piece is to stay until the second has.
	last := uint64(0)
	for n < len(piece) && err == nil {
		if err = s.writeErr(); err != nil {
			break
		}
		var k int
		if k, err = s.message(piece[n:], from, !from.framed, summed{len(piece), sum}); k == 0 {
			break
		}
		n += k
		last = e.sq.posted
		if from.framed { // and what has come to be another frame is staged anew
			break
		}
	}
	from.last = max(from.last, last)
	from.unused = from.last == 0
	if from.last <= e.sq.completed && e.staging.freed(e.sq.completed) { // no request completes for it any more
		e.unblock()
	}
	return n, err
}
