package link

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// stream is one end of a stream. The lane and calls that run refer to it; what the program
// has is its Stream.
type stream struct {
	e  *laneEnd
	st *lane.Stream

	re     *redial     // at a dialer
	gone   atomic.Bool // closed, for calls without the lock
	port   uint16      // of the dialer's end; does not change
	reader waiter
	writer waiter

	// The lane's lock guards what follows. There are many streams: what is small stands together.
	reading  turn // one Read at a time
	writing  turn // one Write at a time
	passing  chan struct{}
	pieces   []memory.Piece       // of the rings, in the order in which the peer writes to them
	cause    error                // why it has failed
	corrupt  *Error               // a wrong checksum was found: nothing more is read
	age      ringAge              // since when the ring has hardly been used
	marked   time.Duration        // when it was last looked at whether it is busy, since epoch
	opened   uint64               // dialer: how many it was on its lane
	sentThen uint64               // bytes that were sent when something was last read
	together *coalescing          // of messages, for Read; nil before there were many
	finished func()               // see OnFinish, which sets that of an accepted stream without the lock
	kept     *net.KeepAliveConfig // settings of its own, if they are not the lane's
	said     uint64               // sendQueue.posted behind its end; 0: it was not said
	limit    *time.Timer          // of FinishWithin
	counts   counts
	logger   *slog.Logger // of its own; nil: the lane's
	share    int32        // bytes posted since others had their turn, up to turnBytes
	borrowed int32        // unread bytes that are as good as read
	least    uint32       // ring that SetReadBuffer asked for
	reached  uint32       // key of the peer's memory that the device knows of; that it does not, if unreached
	mark     uint32       // bytes received when it was last looked at whether the stream is busy, the low bits
	messages uint32       // and messages

	resizing     bool // the worker is to offer another ring
	wants        bool // a larger one, since the last was offered
	heldBack     bool // it was to get one while a Read was in progress
	listed       bool // among those with a large ring
	copying      bool // a Read copies out of a ring
	told         bool // the program knows that the peer has closed
	writeRefused bool // a Write has failed, or lost bytes, since the peer has closed
	peeked       bool // the program has what Peek returned
	blocked      bool // among those that wait for the send queue
	unreached    bool // its Write waits for the device to know of memory: see peerMemory.await
	sendTurn     sendTurn
	writable     bool // there may be room, since Write last found none
	shut         bool // CloseWrite was called
	readShut     bool // CloseRead was
	closed       bool // Close was
	freed        bool // the rings were given back
	counted      bool // among the lane's live streams
	waiting      bool // listener, whose lock guards it: to be accepted
	wasReset     bool // listener, likewise: while it waited
	answered     bool // dialer: the listener has said what becomes of it
	used         bool // among those that the program has open
	portless     bool // its port was given back
	lost         bool // the peer was silent for too long
	summed       bool // it is finished: who sums up what it has counted does so now, and messages count no more
}

// SetLogger has lines about the stream go to a Logger of its own.
func (h *Stream) SetLogger(l *slog.Logger) {
	s := h.lockNow()
	defer h.unlock()
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.logger = l
}

// log returns the Logger of lines about the stream. mu is held.
func (s *stream) log() *slog.Logger {
	if s.logger != nil {
		return s.logger
	}
	return s.e.cfg.logger()
}

// counts are what a stream has counted, in both directions.
type counts struct {
	sent, received uint64 // messages with data
	creditsOut     uint64
	creditsIn      uint64
	recordsOut     uint64 // about the stream: its begin and its end, and other rings
	recordsIn      uint64
	wakeups, quiet uint64 // messages for which the peer was woken, and for which it was not
	keepAlives     uint64 // of the lane, before the stream; when it has gone while it was there
	rare           *rareCounts
}

// rareCounts are of what most streams never do. They have those only then, as there are many streams.
type rareCounts struct {
	grown      uint64 // larger rings that were offered
	stalls     uint64
	stallTime  time.Duration
	stalled    time.Duration // since when a Write waits, from epoch on; 0 if none does
	framingIn  uint64        // bytes of frames that are not the stream's
	framingOut uint64        // modulo 2^64: less those that were written where it was dialled before, and are lost
	placedIn   uint64        // bytes that the program has read in the ring
	discarded  uint64        // and that it has not read
	placedOut  uint64        // bytes of Buffers
}

// noRareCounts are those of a stream that has none.
var noRareCounts rareCounts

// seldom returns the rare counts, to read.
func (c *counts) seldom() *rareCounts {
	if c.rare == nil {
		return &noRareCounts
	}
	return c.rare
}

// count returns the rare counts, to add to.
func (c *counts) count() *rareCounts {
	if c.rare == nil {
		c.rare = new(rareCounts)
	}
	return c.rare
}

// newStream makes the stream of st, whose ring is p. mu is held.
func (e *laneEnd) newStream(st *lane.Stream, p memory.Piece) *stream {
	s := &stream{e: e, st: st, port: st.Port(), pieces: []memory.Piece{p}, writable: true, counted: true}
	if old := e.streams.At(st.ID()); old != nil {
		old.uncount()
	}
	e.streams.Set(st.ID(), s)
	e.counts.opened++
	s.counts.keepAlives = e.alive.asked
	s.used = true
	if e.inUse.Add(1) == 1 {
		e.owner.used(e)
	}
	e.live++
	e.taken.Store(int32(e.live))
	if e.live == 1 {
		e.owner.filled(e)
		e.startTicks()
	}
	e.slab.Hold()
	return s
}

// uncount forgets the stream. The lane has no more to say of it. mu is held.
func (s *stream) uncount() {
	e := s.e
	if !s.counted {
		return
	}
	s.counts.keepAlives = s.keepAlives()
	if e.countsFor == s {
		e.countFor(nil)
	}
	s.counted = false
	s.e.peerMemory.leave(s)
	e.dialer.answered(s)
	e.disown(s)
	if s.lost {
		e.alive.lost--
	}
	if e.streams.At(s.st.ID()) == s {
		e.streams.Set(s.st.ID(), nil)
	}
	s.freePort()
	e.live--
	e.taken.Store(int32(e.live))
	if e.live == 0 && e.err == nil {
		e.owner.emptied(e)
	}
}

// unuse records that the program has closed the stream, or has it elsewhere. mu is held.
func (s *stream) unuse() {
	if s.used {
		s.used = false
		if s.e.inUse.Add(-1) == 0 {
			s.e.ends.allClosed()
		}
	}
}

// freePort gives the port back when the lane has no more to say of the stream and, at a
// listener, the application has closed it. A port that the peer's program has bound it may have
// again before that, as over TCP. mu is held.
func (s *stream) freePort() {
	e := s.e
	switch {
	case s.counted || s.portless:
		return
	case e.role == lane.RoleDialer:
		if e.dialer.busy && s.port == e.dialer.port {
			e.dialer.busy = false
			defer e.dialer.refill()
		}
	case s.closed, s.port == e.listener.ports.bound:
		e.listener.ports.ended(s.port)
	default:
		return
	}
	s.portless = true
}

// free gives the rings back if nobody writes to them or reads from them any more. mu is held.
func (s *stream) free() {
	if !s.closed || !s.st.Quiet() && !s.e.torn || s.moving() {
		return
	}
	s.finish()
	if s.freed || s.copying || s.peeked {
		return
	}
	s.freed = true
	s.freeRings()
	_ = s.e.slab.Release()
	s.uncount()
	s.e.dropTables()
}

// endUse is free behind a use of the rings during which the program may have closed the stream. A dial may
// have waited for its port, which goes on then. mu is held.
func (s *stream) endUse() {
	was := s.freed
	if s.free(); s.freed && !was && s.e.err == nil {
		s.e.settle()
	}
}

// freeRings gives all rings back. Nothing of the peer comes any more. mu is held.
func (s *stream) freeRings() {
	for _, p := range s.pieces {
		s.e.freePiece(p)
	}
	s.pieces = nil
}

// reclaim gives back rings that the peer has left and that are read. mu is held.
func (s *stream) reclaim() {
	rx := s.st.Receiver()
	for {
		if _, ok := rx.Reclaim(); !ok {
			break
		}
		if len(s.pieces) > 0 {
			s.e.freePiece(s.pieces[0])
			s.pieces = s.pieces[1:]
		}
	}
	if rx.Ring().Size > s.smallest() {
		s.e.watch(s)
	}
	if s.wantsRing() || rx.Ring().Size < s.least {
		s.e.growDue(s)
	}
}

// taken returns how many bytes of the stream were read. mu is held.
func (s *stream) taken() uint64 { return s.st.Receiver().ConsumedBytes() - s.counts.seldom().framingIn }

// failWith ends the stream for a cause, the first of which counts. mu is held.
func (s *stream) failWith(err error) {
	if s.cause == nil {
		s.cause = err
	}
}

// written returns how many bytes Writes have taken. mu is held.
func (s *stream) written() uint64 { return s.st.Sender().SentBytes() - s.counts.seldom().framingOut }

// readErr is why nothing more can be read beyond what is buffered, nil if something may come. An end
// that arrived behind all bytes is one whatever became of the stream then, as over TCP. mu is held.
func (s *stream) readErr() error {
	switch {
	case s.closed:
		return net.ErrClosed
	case s.st.EndedInOrder():
		return io.EOF
	case s.cause != nil:
		return s.cause
	case s.moving() && !s.readShut:
		return errMoving
	case s.st.Ended(), s.readShut:
		return io.EOF
	case s.e.err != nil:
		return ended(s.e.err)
	}
	return nil
}

// writeErr is why nothing can be written. mu is held.
func (s *stream) writeErr() error {
	switch {
	case s.closed:
		return net.ErrClosed
	case s.shut:
		return syscall.EPIPE
	case s.cause == error(syscall.ECONNRESET) && s.st.EndedInOrder(): // as over TCP
		return syscall.EPIPE
	case s.cause != nil:
		return s.cause
	case s.moving():
		return errMoving
	case s.st.Quiet():
		return syscall.EPIPE
	case s.e.err != nil:
		return ended(s.e.err)
	}
	return nil
}

func (s *stream) CloseWrite() error {
	s.e.mu.Lock()
	s.takeIn()
	return s.changeLocked(func() error {
		switch {
		case s.closed:
			return net.ErrClosed
		case s.over():
			return syscall.ENOTCONN
		case s.shut:
			return nil
		}
		s.shut = true
		if s.moving() {
			return nil
		}
		if s.readShut {
			s.e.state.Close(s.st)
		} else if !s.st.Quiet() {
			return s.e.state.CloseWrite(s.st)
		}
		return nil
	})
}

func (s *stream) close(abort bool) error {
	s.e.mu.Lock()
	s.takeIn()
	return s.changeLocked(func() error {
		if s.closed {
			return net.ErrClosed
		}
		s.closed = true
		s.gone.Store(true)
		s.unuse()
		if s.moving() {
			if s.re.aborted = abort; abort {
				s.re.stop()
			}
			return nil
		}
		if abort || s.st.Receiver().Buffered() > uint64(s.borrowed) {
			s.e.state.Reset(s.st, lane.CodeReset)
		} else {
			s.e.state.Close(s.st)
		}
		s.free()
		s.freePort()
		s.reader.release(s.e)
		s.writer.release(s.e)
		s.awaitConfirmation()
		if s.e.polling.kept.number != 0 && s.e.role == lane.RoleListener && !s.e.owner.takesOver(s.e) {
			s.e.giveUpKept() // no call would report the new streams that come
		}
		return nil
	})
}

// takeIn takes in what has come for s and no call has read, unless the peer has said that there is
// nothing more. mu is held when it is called and when it returns.
func (s *stream) takeIn() {
	e := s.e
	if e.err != nil || s.st.Ended() {
		return
	}
	e.tasks.Add(1)
	e.pollOnce()
	e.tasks.Done()
}

// changeLocked does something to the stream that its waiting calls have to see. mu is held, and released.
func (s *stream) changeLocked(f func() error) error {
	e := s.e
	err := f()
	if e.err == nil {
		e.settle()
	}
	s.reader.found(e)
	s.writer.found(e)
	if s.moving() {
		s.reader.wake(s.e)
		s.writer.wake(s.e)
	}
	e.mu.Unlock()
	e.startWorker()
	if errors.Is(err, lane.ErrStream) {
		return syscall.EPIPE
	}
	return err
}

// LocalAddr returns the address of this end, a *net.TCPAddr.
func (s *stream) LocalAddr() net.Addr { return tcpAddr(s.addrs(true)) }

// RemoteAddr returns that of the peer.
func (s *stream) RemoteAddr() net.Addr { return tcpAddr(s.addrs(false)) }

// addrs returns one of the two addresses: the dialer's has the port of the stream.
func (s *stream) addrs(local bool) netip.AddrPort {
	a := s.e.id.RemoteAddr()
	if local {
		a = s.e.id.LocalAddr()
	}
	if local == (s.e.role == lane.RoleDialer) {
		a = netip.AddrPortFrom(a.Addr(), s.port)
	}
	return a
}

func tcpAddr(a netip.AddrPort) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
}

func (s *stream) setDeadline(w *waiter, t time.Time) error {
	if s.gone.Load() {
		return net.ErrClosed
	}
	w.setDeadline(s.e, t)
	return nil
}
