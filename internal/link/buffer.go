package link

import (
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	// BufferSize is the size of a Buffer.
	BufferSize = 64 << 10
	// maxSending is how many that were given back may still be sent, on one lane.
	maxSending = 8
	// maxInFlight is how many bytes of Buffers a lane has posted that are not completed, but for its last
	// message: whoever writes beside many that send from Buffers waits for no more.
	maxInFlight = maxSending * BufferSize
)

// inFlight is what has been posted from Buffers and not completed.
type inFlight struct {
	posted []sentFrom // in order
	bytes  int
	turns  sendTurns
}

// sentFrom is a message from a Buffer: its request, and how many bytes it has.
type sentFrom struct {
	request uint64
	bytes   int
}

func (f *inFlight) add(request uint64, n int) {
	f.posted = append(f.posted, sentFrom{request, n})
	f.bytes += n
}

// room is how many bytes more may be posted before streams wait.
func (f *inFlight) room() int { return maxInFlight - f.bytes }

// completed takes those out that are completed.
func (f *inFlight) completed(request uint64) {
	n := 0
	for ; n < len(f.posted) && f.posted[n].request <= request; n++ {
		f.bytes -= f.posted[n].bytes
	}
	f.posted = f.posted[:copy(f.posted, f.posted[n:])]
}

// A Buffer is registered memory of BufferSize bytes from which a stream sends without a copy. It
// is the caller's until Free, also when the stream is closed and its lane has ended. It is for one
// goroutine at a time.
type Buffer struct {
	s    *stream
	p    memory.Piece
	from staged
}

// Bytes is the memory.
func (b *Buffer) Bytes() []byte { return b.p.Bytes() }

// TakeBuffer waits until something can be written and returns a Buffer to be filled. Without
// one, and without an error, Write does as well: on a device that is done with the bytes when
// Write returns, where there is no memory, and where the peer has closed and Write says so.
func (h *Stream) TakeBuffer() (*Buffer, error) {
	s := h.now()
	b, err := s.takeBuffer()
	for err == errMoving {
		if s, err = h.follow(s, &s.out.waiter, &s.out.turn); err == nil {
			b, err = s.takeBuffer()
		}
	}
	return b, err
}

func (s *stream) takeBuffer() (*Buffer, error) {
	e := s.e
	e.mu.Lock()
	s.out.turn.begin(&e.mu)
	err := s.awaitWritable()
	for err == nil && e.tooManySending() {
		e.block(s)
		err = s.awaitWritable()
	}
	s.out.turn.end()
	registered := err == nil && e.err == nil && !e.p.synchronous
	if err != nil && s.dropsRest(s.toleratesClose(1), err, 0) {
		err = nil
	}
	var b *Buffer
	if registered {
		e.buffers.slab.Hold()
		e.tasks.Add(1)
		if n := len(e.buffers.spare); n > 0 {
			b, e.buffers.spare = e.buffers.spare[n-1], e.buffers.spare[:n-1]
		} else {
			b = new(Buffer)
		}
	}
	e.mu.Unlock()
	e.startWorker()
	if !registered {
		return nil, err
	}
	defer e.tasks.Done()
	p, err := e.buffers.slab.Alloc(BufferSize, memory.ForGrowth)
	if err != nil {
		return nil, e.buffers.slab.Release() // Write has other memory
	}
	*b = Buffer{s: s, p: p, from: staged{addr: p.Addr(), lkey: p.LKey()}}
	return b, nil
}

// tooManySending looks at what has completed, if that is worth it, and reports whether a stream
// has to wait for more. mu is held.
func (e *laneEnd) tooManySending() bool {
	if len(e.buffers.sending) < maxSending {
		return false
	}
	e.reapAndSettle()
	return e.err == nil && len(e.buffers.sending) >= maxSending
}

// tooMuchInFlight looks at what has completed, if that is worth it, and reports whether a stream has to
// wait before it sends more from a Buffer. mu is held.
func (e *laneEnd) tooMuchInFlight() bool {
	if e.buffers.inFlight.bytes < maxInFlight {
		return false
	}
	e.reapAndSettle()
	return e.err == nil && e.buffers.inFlight.bytes >= maxInFlight
}

// Send sends the first n bytes of b, and waits while the peer's ring is full. It returns how many
// were handed to the device. The bytes are not to be changed before Free.
func (h *Stream) Send(b *Buffer, n int) (int, error) {
	s := h.now()
	sent, err := s.sendBuffer(b, 0, n)
	for err == errMoving {
		if s, err = h.follow(s, &s.out.waiter, &s.out.turn); err == nil {
			var k int
			k, err = s.sendBuffer(b, sent, n)
			sent += k
		}
	}
	return sent, err
}

// sendBuffer sends the bytes of b from first to n.
func (s *stream) sendBuffer(b *Buffer, first, n int) (int, error) {
	e := s.e
	if b.s.e != e { // the stream was dialled again, and the device of this lane has other memory
		return s.Write(b.Bytes()[first:n])
	}
	sent, err := first, error(nil)
	e.mu.Lock()
	s.out.turn.begin(&e.mu)
	b.from.bytes = b.Bytes()[:n]
	open := s.toleratesClose(n)
	err = s.awaitWritable()
	for err == nil && sent < n {
		ahead := s.sumAhead(b.Bytes()[sent:n])
		if err = s.writeErr(); err != nil {
			break
		}
		if e.tooMuchInFlight() || !e.buffers.inFlight.turns.may(s, e.buffers.inFlight.room()) {
			e.awaitTurn(&e.buffers.inFlight.turns, s)
			err = s.stall()
			continue
		}
		var k int
		k, err = s.message(b.Bytes()[sent:n], &b.from, false, ahead)
		if k > 0 {
			b.from.last = e.sq.posted
			e.buffers.inFlight.add(e.sq.posted, k)
			s.counts.count().placedOut += uint64(k)
		}
		s.endTurn(&e.buffers.inFlight.turns)
		e.settle()
		sent += k
		switch {
		case err != nil || sent == n:
		case k > 0: // streams of a lane take turns
			s.giveWay()
		default:
			if e.pollKept(); !s.mayWrite() {
				err = s.stall()
			}
		}
	}
	if err != nil && s.dropsRest(open, err, n-sent) {
		sent, err = n, nil
	}
	s.endTurn(&e.buffers.inFlight.turns)
	s.out.turn.end()
	e.mu.Unlock()
	e.startWorker()
	return sent - first, err
}

// Free gives the memory back. What of it is being sent goes on being so.
func (b *Buffer) Free() {
	e := b.s.e
	e.mu.Lock()
	if b.from.last > e.sq.completed && e.err == nil {
		e.buffers.sending = append(e.buffers.sending, b)
		e.watchMemory()
	} else {
		e.freeBuffer(b)
	}
	e.mu.Unlock()
	_ = e.buffers.slab.Release() // unmapping fails only for what was never mapped
	e.startWorker()
}

// sent takes back what completed requests have read. mu is held.
func (e *laneEnd) sent(completed uint64) {
	e.buffers.inFlight.completed(completed)
	still := e.buffers.sending[:0]
	for _, b := range e.buffers.sending {
		if b.from.last > completed {
			still = append(still, b)
		} else {
			e.freeBuffer(b)
		}
	}
	clear(e.buffers.sending[len(still):])
	e.buffers.sending = still
}

// freeBuffer gives the memory back of a Buffer from which nothing is sent any more. mu is held.
func (e *laneEnd) freeBuffer(b *Buffer) {
	e.freed(e.buffers.slab.Free(b.p))
	if *b = (Buffer{}); len(e.buffers.spare) < maxSending {
		e.buffers.spare = append(e.buffers.spare, b)
	}
}

// newSends is the slab of a lane's Buffers, which the peer cannot write to.
func newSends(p *endpoint, b *memory.Budget) *memory.Slab {
	return memory.NewSlab(p.ctx, p.pd, b, verbs.AccessLocalWrite)
}

// buffers are the Buffers of a lane and their memory, which the Writes that copy use as well. The lane's lock
// guards it.
type buffers struct {
	slab     *memory.Slab
	sending  []*Buffer // that were given back, and the device may read still
	spare    []*Buffer // without memory, for the next
	inFlight inFlight  // of all Buffers
}
