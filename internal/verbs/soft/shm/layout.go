//go:build linux && (amd64 || arm64)

package shm

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// HostOrder is the byte order of both processors the device runs on.
var HostOrder = binary.LittleEndian

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
	OffPosted   = 0
	OffConsumed = 4
	OffEmptied  = 8
	OffArmed    = 128
	OffStatus   = 132
	OffFilled   = 256
	offDecision = 264
	OffLens     = 384
	lineSize    = 128
	entrySize   = 16

	LapShift = 40
	LapMask  = 1<<24 - 1

	EntryWriteImm  = 1
	EntrySend      = 2
	EntrySendImm   = 3
	EntrySendInv   = 4
	EntryOpcode    = 0xf
	EntrySolicited = 1 << 4
	EntryData      = 1 << 5
)

// What armed says.
const (
	ArmedNot       = 0
	ArmedAny       = 1
	ArmedSolicited = 2
	// ArmedUnfenced is ArmedNot of a receiver that will call for a fence before it sleeps.
	ArmedUnfenced = 3
)

// Sleeps says what an armed word says of its receiver.
func Sleeps(armed uint32) bool { return armed == ArmedAny || armed == ArmedSolicited }

// Bounds of what a peer may offer.
const (
	MaxQueueShift  = 16
	maxBounceShift = 24
	// BounceShift makes our own bounce area 256 KiB; longer messages go in parts.
	BounceShift = 18
)

// LenRefused in lens is a receive whose SGEs were not valid when it was posted.
const LenRefused = ^uint32(0)

// Status is the receiver's state as its peer needs to know it, in one word.
type Status uint32

const (
	StatusDown Status = iota // not yet able to receive
	StatusUp
	StatusError
)

// MakeStatus makes the word of a state, of what a peer may do, and of its RNR timer.
func MakeStatus(s Status, access verbs.AccessFlags, minRNR uint8) Status {
	return s | Status(access&0xff)<<8 | Status(minRNR&31)<<16
}

// State, Access and MinRNR are the parts of the word.
func (s Status) State() Status             { return s & 0xff }
func (s Status) Access() verbs.AccessFlags { return verbs.AccessFlags(s >> 8 & 0xff) }
func (s Status) MinRNR() uint8             { return uint8(s >> 16 & 31) }

// Geometry is where things are in an inbox.
type Geometry struct {
	Shift       uint8 // log2 of the number of entries
	BounceShift uint8 // log2 of the bounce bytes
}

// EntriesOff is where the entries begin.
func (g Geometry) EntriesOff() int { return (OffLens + 4<<g.Shift + lineSize - 1) &^ (lineSize - 1) }

func (g Geometry) bounceOff() int { return PageUp(g.EntriesOff() + entrySize<<g.Shift) }

// BounceSize is how many bytes the bounce area has.
func (g Geometry) BounceSize() int { return 1 << g.BounceShift }

// Size is that of an inbox.
func (g Geometry) Size() int { return g.bounceOff() + PageUp(g.BounceSize()) }

// Check refuses what a peer may not offer.
func (g Geometry) Check() error {
	if g.Shift > MaxQueueShift || g.BounceShift > maxBounceShift || 1<<g.BounceShift < PageSize {
		return fmt.Errorf("%w: queue of 2^%d entries and 2^%d bounce bytes", verbs.ErrProtocol, g.Shift, g.BounceShift)
	}
	return nil
}

// Mapping is one mapping of an inbox, at either end. The words are those of the layout.
type Mapping struct {
	Geometry
	mask     uint64
	entries  unsafe.Pointer
	Posted   *uint32
	Armed    *uint32
	Status   *uint32
	Decision *uint32
	Data     []byte
}

func (m *Mapping) init(data []byte, g Geometry) {
	m.Geometry = g
	m.Data = data
	m.mask = 1<<g.Shift - 1
	m.entries = unsafe.Pointer(&data[g.EntriesOff()])
	m.Posted = m.Word(OffPosted)
	m.Armed = m.Word(OffArmed)
	m.Status = m.Word(OffStatus)
	m.Decision = m.Word(offDecision)
}

// WordAt and LongAt are aligned words of a mapping.
func WordAt(data []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&data[off])) }
func LongAt(data []byte, off int) *uint64 { return (*uint64)(unsafe.Pointer(&data[off])) }

// Word and Long are of what comes before the lens.
func (m *Mapping) Word(off int) *uint32 { return WordAt(m.Data, off) }
func (m *Mapping) Long(off int) *uint64 { return LongAt(m.Data, off) }

// LenOf is the word that says how many bytes receive n takes.
func (m *Mapping) LenOf(n uint32) *uint32 { return WordAt(m.Data, OffLens+int(n&uint32(m.mask))*4) }

// Bounce is the bounce area.
func (m *Mapping) Bounce() []byte { return m.Data[m.bounceOff():][:m.BounceSize()] }

// lap is how often entry n has gone round, from 1 on. The mask spares the shift a comparison.
func (m *Mapping) lap(n uint64) uint64 { return (n>>(m.Shift&63) + 1) & LapMask }

// Unmap ends the mapping, if there is one.
func (m *Mapping) Unmap() {
	if m.Data != nil {
		_ = Unmap(m.Data)
		*m = Mapping{}
	}
}
