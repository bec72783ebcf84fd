package lane

import "fmt"

// The immediate of a message. Everything not listed is a violation, so that the unused
// space stays free for later versions; a word of zeros is one.
//
//	 31 30 29                       16 15                        0
//	+-----+---------------------------+---------------------------+
//	|  1  | stream                    | length, 0 is 65,536       |  Data
//	|  2  | stream                    | granules, not 0           |  Credit
//	+-----+-----+---------------------+---------------------------+
//	|  3  |  1  | 0                   | receives, not 0           |  Slots
//	|  3  |  2  | 0                   | 0                         |  Control
//	+-----+-----+---------------------+---------------------------+
//
// The number is the host's. On the wire it is in network byte order, as all immediates
// are, and so it is as the first four bytes of a SEND where a device has no immediates.
const (
	immTypeShift   = 30
	immStreamShift = 16
	immKindShift   = 28
	immLowMask     = 1<<16 - 1
	immData        = 1
	immCredit      = 2
	immLane        = 3
	immSlots       = 1
	immControl     = 2
)

// An ID names a stream among those of its lane, from 1 to MaxStream. 0 is none.
type ID uint16

const (
	// MaxStream is the highest id of a stream.
	MaxStream ID = 1<<14 - 1
	// MaxMessage is the most bytes that one data message carries.
	MaxMessage = 1 << 16
	// Granule is the unit of credits, in bytes.
	Granule = 64
	// maxGranules is the most granules that one credit gives.
	maxGranules = 1<<16 - 1
)

// A Type is the type of a Doorbell.
type Type uint8

// The types of doorbell.
const (
	// TypeData announces bytes written to a stream's ring.
	TypeData Type = iota + 1
	// TypeCredit gives back room in a stream's ring.
	TypeCredit
	// TypeSlots gives back receives of the lane.
	TypeSlots
	// TypeControl announces a Record.
	TypeControl
)

// String returns the type's name.
func (t Type) String() string {
	switch t {
	case TypeData:
		return "Data"
	case TypeCredit:
		return "Credit"
	case TypeSlots:
		return "Slots"
	case TypeControl:
		return "Control"
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// A Doorbell is the immediate of a message, decoded.
type Doorbell struct {
	Type   Type
	Stream ID // Data and Credit
	// N is the bytes of Data, 1 to MaxMessage; the granules of Credit, 1 to 65,535;
	// the receives of Slots, 1 to 65,535; 0 of Control.
	N uint32
}

// dataImm is the immediate of n bytes of a stream, 1 to MaxMessage.
func dataImm(id ID, n uint32) uint32 {
	return immData<<immTypeShift | uint32(id)<<immStreamShift | n&immLowMask
}

// Imm encodes d. A doorbell that the wire cannot express encodes as 0, which
// ParseDoorbell refuses.
func (d Doorbell) Imm() uint32 {
	stream := uint32(d.Stream)<<immStreamShift | d.N&immLowMask
	named := d.Stream-1 < MaxStream // 0 wraps around
	switch {
	case d.Type == TypeData && named && d.N-1 < MaxMessage:
		return dataImm(d.Stream, d.N)
	case d.Type == TypeCredit && named && d.N-1 < maxGranules:
		return immCredit<<immTypeShift | stream
	case d.Type == TypeSlots && d.Stream == 0 && d.N-1 < immLowMask:
		return immLane<<immTypeShift | immSlots<<immKindShift | d.N
	case d.Type == TypeControl && d.Stream == 0 && d.N == 0:
		return immLane<<immTypeShift | immControl<<immKindShift
	}
	return 0
}

// ParseDoorbell decodes an immediate. One that Imm does not produce is a *ProtocolError
// with RuleType, RuleReserved, RuleStream or RuleNothing.
func ParseDoorbell(imm uint32) (Doorbell, error) {
	d := Doorbell{Type: TypeData, Stream: ID(imm>>immStreamShift) & MaxStream, N: (imm-1)&immLowMask + 1}
	if imm>>immTypeShift == immData && d.Stream != 0 {
		return d, nil
	}
	return parseOther(imm)
}

// parseOther decodes what is not the immediate of data.
func parseOther(imm uint32) (Doorbell, error) {
	low := imm & immLowMask
	switch imm >> immTypeShift {
	case immData:
		return Doorbell{}.named() // of no stream
	case immCredit:
		return Doorbell{Type: TypeCredit, Stream: ID(imm>>immStreamShift) & MaxStream, N: low}.named()
	case immLane:
		return parseLane(imm>>immKindShift&3, imm&(1<<immKindShift-1))
	}
	return Doorbell{}, violation(RuleType, 0, uint64(imm), 0)
}

// named returns an error if d has no stream, or gives nothing.
func (d Doorbell) named() (Doorbell, error) {
	if d.Stream == 0 {
		return Doorbell{}, violation(RuleStream, 0, 0, uint64(MaxStream))
	}
	if d.N == 0 {
		return Doorbell{}, violation(RuleNothing, d.Stream, 0, maxGranules)
	}
	return d, nil
}

// parseLane decodes the words that are about no stream.
func parseLane(kind, rest uint32) (Doorbell, error) {
	switch {
	case kind != immSlots && kind != immControl:
		return Doorbell{}, violation(RuleType, 0, uint64(kind), immControl)
	case kind == immControl && rest != 0, rest > immLowMask:
		return Doorbell{}, violation(RuleReserved, 0, uint64(rest), 0)
	case kind == immControl:
		return Doorbell{Type: TypeControl}, nil
	case rest == 0:
		return Doorbell{}, violation(RuleNothing, 0, 0, immLowMask)
	}
	return Doorbell{Type: TypeSlots, N: rest}, nil
}
