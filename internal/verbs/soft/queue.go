//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"golang.org/x/sys/unix"
)

// An inbox is the memory through which a QP learns what its peer sent. The
// receiver makes it, the peer maps it too. Lines are 128 bytes, for processors
// that fetch cache lines in pairs; each line has one writer, but for armed:
//
//	0    posted   u32  receives posted in total                   receiver
//	4    consumed u32  entries taken in total (SRQ only)          receiver
//	8    emptied  u64  bounce bytes taken in total                receiver
//	128  armed    u32  whether the receiver sleeps; the producer clears   both
//	132  status   u32  state, access flags and RNR timer          receiver
//	256  filled   u64  bounce bytes produced in total             producer
//	264  decision u32  whether the connection stands              both, once: decision.go
//	384  lens     u32 x capacity  bytes each posted receive takes receiver
//	...  entries  16 B x capacity                                 producer
//	...  bounce   whole pages, committed when first asked for     producer
//
// An entry is two words. The second is the length and, for a SEND of at most four
// bytes, the data; the first is published last and holds
//
//	bits 0..31 immediate | 32..35 opcode | 36 solicited | 37 data in the entry | 40..63 lap
//
// The lap counts how often the queue has gone round, so an entry shows by itself
// that it is new: a message costs one transfer of one cache line.
const (
	offPosted   = 0
	offConsumed = 4
	offEmptied  = 8
	offArmed    = 128
	offStatus   = 132
	offFilled   = 256
	offDecision = 264
	offLens     = 384
	lineSize    = 128
	entrySize   = 16

	lapShift = 40
	lapMask  = 1<<24 - 1

	entryWriteImm  = 1
	entrySend      = 2
	entrySendImm   = 3
	entrySendInv   = 4
	entryOpcode    = 0xf
	entrySolicited = 1 << 4
	entryData      = 1 << 5
)

// What armed says.
const (
	armedNot       = 0
	armedAny       = 1
	armedSolicited = 2
	// armedUnfenced is armedNot of a receiver that will call for a fence before it sleeps.
	armedUnfenced = 3
)

// sleeps says what an armed word says of its receiver.
func sleeps(armed uint32) bool { return armed == armedAny || armed == armedSolicited }

// Bounds of what a peer may offer.
const (
	maxQueueShift  = 16
	maxBounceShift = 24
	// bounceShift makes our own bounce area 256 KiB; longer messages go in parts.
	bounceShift = 18
)

// lenRefused in lens is a receive whose SGEs were not valid when it was posted.
const lenRefused = ^uint32(0)

// status is the receiver's state as its peer needs to know it, in one word.
type status uint32

const (
	statusDown status = iota // not yet able to receive
	statusUp
	statusError
)

func makeStatus(s status, access verbs.AccessFlags, minRNR uint8) status {
	return s | status(access&0xff)<<8 | status(minRNR&31)<<16
}

func (s status) state() status             { return s & 0xff }
func (s status) access() verbs.AccessFlags { return verbs.AccessFlags(s >> 8 & 0xff) }
func (s status) minRNR() uint8             { return uint8(s >> 16 & 31) }

// geometry is where things are in an inbox.
type geometry struct {
	shift       uint8 // log2 of the number of entries
	bounceShift uint8 // log2 of the bounce bytes
}

func (g geometry) entriesOff() int { return (offLens + 4<<g.shift + lineSize - 1) &^ (lineSize - 1) }
func (g geometry) bounceOff() int  { return pageUp(g.entriesOff() + entrySize<<g.shift) }
func (g geometry) bounceSize() int { return 1 << g.bounceShift }

// size is that of an inbox.
func (g geometry) size() int { return g.bounceOff() + pageUp(g.bounceSize()) }

func (g geometry) check() error {
	if g.shift > maxQueueShift || g.bounceShift > maxBounceShift || 1<<g.bounceShift < pageSize {
		return fmt.Errorf("%w: queue of 2^%d entries and 2^%d bounce bytes", verbs.ErrProtocol, g.shift, g.bounceShift)
	}
	return nil
}

// shared is one mapping of an inbox, at either end.
type shared struct {
	geometry
	mask     uint64
	entries  unsafe.Pointer
	posted   *uint32
	armed    *uint32
	status   *uint32
	decision *uint32
	data     []byte
}

func (s *shared) init(data []byte, g geometry) {
	s.geometry = g
	s.data = data
	s.mask = 1<<g.shift - 1
	s.entries = unsafe.Pointer(&data[g.entriesOff()])
	s.posted = s.word(offPosted)
	s.armed = s.word(offArmed)
	s.status = s.word(offStatus)
	s.decision = s.word(offDecision)
}

// wordAt and longAt are aligned words of a mapping.
func wordAt(data []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&data[off])) }
func longAt(data []byte, off int) *uint64 { return (*uint64)(unsafe.Pointer(&data[off])) }

// word and long are of what comes before the lens.
func (s *shared) word(off int) *uint32   { return wordAt(s.data, off) }
func (s *shared) long(off int) *uint64   { return longAt(s.data, off) }
func (s *shared) lenOf(n uint32) *uint32 { return wordAt(s.data, offLens+int(n&uint32(s.mask))*4) }
func (s *shared) bounce() []byte         { return s.data[s.bounceOff():][:s.bounceSize()] }
func (s *shared) lap(n uint64) uint64    { return (n>>s.shift + 1) & lapMask }

func (s *shared) unmap() {
	if s.data != nil {
		_ = munmap(s.data)
		*s = shared{}
	}
}

// inbox is the receiver's end; qp.recvCQ.mu guards it.
type inbox struct {
	shared
	fd       int
	head     uint64 // entries taken
	emptied  uint64 // bounce bytes taken
	backed   bool   // the bounce area is committed
	unfenced bool   // armed is armedUnfenced
	streak   uint32 // entries taken since the CQ was armed
}

// geometryFor is that of our inboxes for n posted receives.
func geometryFor(n int) geometry {
	return geometry{shift: uint8(bits.Len(uint(max(n, 1) - 1))), bounceShift: bounceShift}
}

// newInbox makes an inbox for n posted receives.
func newInbox(n int) (*inbox, error) {
	g := geometryFor(n)
	fd, data, err := newSealed("rdma-soft-inbox", g.size(), g.bounceOff(), false)
	if err != nil {
		return nil, err
	}
	in := &inbox{fd: fd}
	in.init(data, g)
	return in, nil
}

func (in *inbox) close() {
	in.unmap()
	unix.Close(in.fd)
}

// commitBounce backs the bounce area.
func (in *inbox) commitBounce() error {
	if in.backed {
		return nil
	}
	if err := fallocate(in.fd, in.bounceOff(), pageUp(in.bounceSize())); err != nil {
		return err
	}
	in.backed = true
	return nil
}

// peek returns the next entry, copied once, if the peer has published it.
func (in *inbox) peek() (w0, w1 uint64, ok bool) {
	p := unsafe.Add(in.entries, int(in.head&in.mask)*entrySize)
	w0 = atomic.LoadUint64((*uint64)(p))
	if w0>>lapShift != in.lap(in.head) {
		return 0, 0, false
	}
	return w0, atomic.LoadUint64((*uint64)(unsafe.Add(p, 8))), true
}

// outbox is the producer's end: the peer's inbox, mapped. qp.mu guards it.
type outbox struct {
	shared
	next   uint64 // entries published
	credit uint32 // receives posted, as last seen
	filled uint64 // bounce bytes produced
}

// openOutbox maps the inbox that a peer offers. A peer that has not backed its entries would
// have SIGBUS here where there is no memory, so that is seen to.
func openOutbox(fd int, g geometry) (*outbox, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	size, err := checkSealed(fd)
	if err != nil {
		return nil, err
	}
	if size != int64(g.size()) {
		return nil, fmt.Errorf("%w: inbox of %d bytes where its geometry needs %d", verbs.ErrProtocol, size, g.size())
	}
	mapped := g.size()
	if err := countMapped(int64(mapped)); err != nil {
		return nil, err
	}
	data, err := mapPeer(fd, 0, mapped, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		allMapped.Add(-int64(mapped))
		return nil, err
	}
	o := &outbox{}
	o.init(data, g)
	if canPopulate() {
		if err := populate(data[:g.bounceOff()]); err != nil {
			o.unmap()
			return nil, err
		}
	}
	return o, nil
}

func (o *outbox) unmap() {
	allMapped.Add(-int64(len(o.data)))
	o.shared.unmap()
}

// publish puts an entry into the queue; the caller has seen that there is room, and
// looks at armed next.
func (o *outbox) publish(op uint64, imm uint32, w1 uint64) {
	p := unsafe.Add(o.entries, int(o.next&o.mask)*entrySize)
	*(*uint64)(unsafe.Add(p, 8)) = w1
	w0 := uint64(imm) | op<<32 | o.lap(o.next)<<lapShift
	if atomic.LoadUint32(o.armed) == armedUnfenced && remoteFences.Load() {
		publishUnfenced((*uint64)(p), w0)
	} else {
		// The atomic store orders everything before it, and on both processors also
		// the load of armed after it.
		atomic.StoreUint64((*uint64)(p), w0)
	}
	if o.next++; o.next%(cacheLine/entrySize) == 0 {
		prefetchWrite(unsafe.Add(o.entries, int((o.next+2*cacheLine/entrySize)&o.mask)*entrySize))
	}
}

// takeWake reports whether the receiver sleeps and wants to be woken for this
// entry, and if so takes the duty to do it.
func (o *outbox) takeWake(solicited bool) bool {
	for range 4 {
		a := atomic.LoadUint32(o.armed)
		if a != armedAny && (a != armedSolicited || !solicited) {
			return false
		}
		if atomic.CompareAndSwapUint32(o.armed, a, armedNot) {
			return true
		}
	}
	return true // a peer that plays with the word is woken
}

// ready returns how many receives are left for entries of ours, from a fresh look
// at what the peer has posted.
func (o *outbox) ready() (uint32, error) {
	o.credit = atomic.LoadUint32(o.posted)
	left := o.credit - uint32(o.next)
	if left > uint32(o.mask)+1 {
		return 0, fmt.Errorf("%w: %d receives posted in a queue of %d", verbs.ErrProtocol, left, o.mask+1)
	}
	return left, nil
}
