package link

import (
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// stream is one end of a stream. The lane and calls that run refer to it; what the program
// has is its Stream.
type stream struct {
	e    *laneEnd
	st   *lane.Stream
	re   *redial // at a dialer
	port uint16  // of the dialer's end; does not change

	// The lane's lock guards what follows. There are many streams: what is small stands together.
	waiting  bool // listener, whose lock guards it: to be accepted
	wasReset bool // listener, likewise: while it waited
	answered bool // dialer: the listener has said what becomes of it
	in       receiveHalf
	out      sendHalf
	end      termination
	counts   counts
	kept     *net.KeepAliveConfig // settings of its own, if they are not the lane's
	logger   *slog.Logger         // of its own; nil: the lane's
}

// receiveHalf is what a stream has for what it receives, beside the state machine.
type receiveHalf struct {
	waiter   waiter
	turn     turn           // one Read at a time
	pieces   []memory.Piece // of the rings, in the order in which the peer writes to them
	corrupt  *Error         // a wrong checksum was found: nothing more is read
	together *coalescing    // of messages, for Read; nil before there were many
	sentThen uint64         // bytes that were sent when something was last read
	age      ringAge        // since when the ring has hardly been used
	marked   time.Duration  // when it was last looked at whether it is busy, since epoch
	mark     uint32         // bytes received then, the low bits
	messages uint32         // and messages
	least    uint32         // ring that SetReadBuffer asked for
	borrowed int32          // unread bytes that are as good as read
	resizing bool           // the worker is to offer another ring
	wants    bool           // a larger one, since the last was offered
	heldBack bool           // it was to get one while a Read was in progress
	listed   bool           // among those with a large ring
	copying  bool           // a Read copies out of a ring
	peeked   bool           // the program has what Peek returned
}

// sendHalf is what a stream has for what it sends.
type sendHalf struct {
	waiter    waiter
	turn      turn // one Write at a time
	passing   chan struct{}
	share     int32  // bytes posted since others had their turn, up to turnBytes
	reached   uint32 // key of the peer's memory that the device knows of; that it does not, if unreached
	unreached bool   // its Write waits for the device to know of memory: see peerMemory.await
	blocked   bool   // among those that wait for the send queue
	writable  bool   // there may be room, since Write last found none
	sendTurn  sendTurn
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
	s := &stream{e: e, st: st, port: st.Port()}
	s.in.pieces, s.out.writable, s.end.counted = []memory.Piece{p}, true, true
	if old := e.streams.At(st.ID()); old != nil {
		old.uncount()
	}
	e.streams.Set(st.ID(), s)
	e.counts.opened++
	s.counts.keepAlives = e.alive.asked
	s.end.used = true
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

// freeRings gives all rings back. Nothing of the peer comes any more. mu is held.
func (s *stream) freeRings() {
	for _, p := range s.in.pieces {
		s.e.freePiece(p)
	}
	s.in.pieces = nil
}

// reclaim gives back rings that the peer has left and that are read. mu is held.
func (s *stream) reclaim() {
	rx := s.st.Receiver()
	for {
		if _, ok := rx.Reclaim(); !ok {
			break
		}
		if len(s.in.pieces) > 0 {
			s.e.freePiece(s.in.pieces[0])
			s.in.pieces = s.in.pieces[1:]
		}
	}
	if rx.Ring().Size > s.smallest() {
		s.e.watch(s)
	}
	if s.wantsRing() || rx.Ring().Size < s.in.least {
		s.e.growDue(s)
	}
}

// taken returns how many bytes of the stream were read. mu is held.
func (s *stream) taken() uint64 { return s.st.Receiver().ConsumedBytes() - s.counts.seldom().framingIn }

// written returns how many bytes Writes have taken. mu is held.
func (s *stream) written() uint64 { return s.st.Sender().SentBytes() - s.counts.seldom().framingOut }

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
	if s.end.gone.Load() {
		return net.ErrClosed
	}
	w.setDeadline(s.e, t)
	return nil
}
