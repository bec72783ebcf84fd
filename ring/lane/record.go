package lane

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A record on the wire, little-endian. What a kind does not use is zero.
//
//	  0         1      2        4       8        12     14
//	+---------+------+--------+-------+--------+------+-------+
//	| version | kind | stream | epoch | number | code | count |
//	+---------+------+--------+-------+--------+------+-------+
//	  16            24      28      32            40      44
//	+-------------+-------+-------+-------------+-------+-------+
//	| ring: addr  | rkey  | size  | total       | opens | sum   |
//	+-------------+-------+-------+-------------+-------+-------+
//	  48     50      51                                       64
//	+------+-------+--------------------------------------------+
//	| port | stage | 0                                          |
//	+------+-------+--------------------------------------------+
const (
	// RecordLen is the length of a record on the wire.
	RecordLen = 64
	// RecordVersion is the version of records that this package speaks.
	RecordVersion = 1

	// MinRing and MaxRing bound the size of a stream's ring in bytes, which is a power of two.
	MinRing = 4 * Granule
	MaxRing = 64 << 20
)

// A Kind says what a record is about.
type Kind uint8

// The kinds of record. Those without a stream are about the lane.
const (
	// KindOpen opens a stream in a place. It has the dialer's ring, its port, which is that of
	// the place, one that the dialer has bound, or one that the stream had at another listener, and
	// how many streams the dialer has opened.
	KindOpen Kind = iota + 1
	// KindAccepted accepts Count streams, those with the ids from Stream on.
	KindAccepted
	// KindRefused ends a stream that was not accepted. Nothing of it was delivered.
	KindRefused
	// KindRing offers the peer another ring to write to.
	KindRing
	// KindMoved answers KindRing: the sender's next byte goes to the beginning of that ring.
	KindMoved
	// KindFIN ends the data of the stream, which had Total bytes.
	KindFIN
	// KindClose is KindFIN from an end that does not read any more either. Nothing of the
	// stream follows.
	KindClose
	// KindReset breaks the stream off. Nothing of it follows.
	KindReset
	// KindRelease gives an id back to the listener that the dialer has not taken, or whose stream was
	// refused.
	KindRelease
	// KindPlaces grants Count places, with the ids from Stream on. Place i has the ring at
	// Ring.Addr+i*Ring.Size and the port Port+i.
	KindPlaces
	// KindWant tells that Count more dials wait for a place.
	KindWant
	// KindRecall asks for Count places back that were not taken.
	KindRecall
	// KindGoAway tells, in stages, that the listener takes no more streams.
	KindGoAway
	// KindAbort ends the lane, since the peer broke the rule whose number is Code. Nothing
	// follows.
	KindAbort

	numKinds
)

// Fields that a kind may have beside the header.
const (
	hasStream = 1 << iota
	hasCode
	hasCount
	hasRing
	hasTotal
	hasOpens
	hasSum
	hasPort
	hasStage
)

var kinds = [numKinds]struct {
	name string
	has  uint16
}{
	KindOpen:     {"OPEN", hasStream | hasRing | hasOpens | hasPort},
	KindAccepted: {"ACCEPTED", hasStream | hasCount},
	KindRefused:  {"REFUSED", hasStream | hasCode},
	KindRing:     {"RING", hasStream | hasRing},
	KindMoved:    {"MOVED", hasStream},
	KindFIN:      {"FIN", hasStream | hasTotal | hasSum},
	KindClose:    {"CLOSE", hasStream | hasTotal | hasSum},
	KindReset:    {"RESET", hasStream | hasCode},
	KindRelease:  {"RELEASE", hasStream},
	KindPlaces:   {"PLACES", hasStream | hasCount | hasRing | hasPort},
	KindWant:     {"WANT", hasCount},
	KindRecall:   {"RECALL", hasCount},
	KindGoAway:   {"GOAWAY", hasOpens | hasStage},
	KindAbort:    {"ABORT", hasCode},
}

// String returns the kind's name.
func (k Kind) String() string {
	if k == 0 || k >= numKinds {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kinds[k].name
}

// A Code is the reason why a stream was refused or reset.
type Code uint16

// The codes. A refusal has one of the first four, a reset has any.
const (
	// CodePort: the stream cannot have that port: another has it, or it is none that a listener
	// gives.
	CodePort Code = iota + 1
	// CodeGoingAway: the listener takes no more streams. Dial another.
	CodeGoingAway
	// CodeNoMemory: there is no memory for the stream.
	CodeNoMemory
	// CodeClosed: the listener was closed.
	CodeClosed
	// CodeReset: the application reset the stream.
	CodeReset
	// CodeProtocol: the peer broke a rule of the stream.
	CodeProtocol
	// CodeChecksum: bytes did not arrive as they were sent.
	CodeChecksum

	numCodes
)

// lastRefusal is the highest code of a refusal.
const lastRefusal = CodeClosed

// A Stage is a step of GOAWAY.
type Stage uint8

// The stages, in their order.
const (
	// StageAnnounce, from the listener: the dialer is to open no more streams. No place is
	// granted after it.
	StageAnnounce Stage = iota + 1
	// StageStopped, from the dialer: it has opened Opens streams, and opens no more.
	StageStopped
	// StageFinal, from the listener: it serves the first Opens streams and ignores later ones.
	StageFinal

	numStages
)

// A Ring is memory that the peer may write to.
type Ring struct {
	Addr uint64 // the remote address, and the key, of a WRITE to it
	RKey uint32
	Size uint32 // a power of two from MinRing to MaxRing
}

// valid reports whether count such rings may lie one behind the other.
func (r Ring) valid(count uint64) bool {
	return r.Size >= MinRing && r.Size <= MaxRing && r.Size&(r.Size-1) == 0 && r.Addr <= math.MaxUint64-uint64(r.Size)*count
}

// A Record is a control message of a lane. Its kind says which fields after Number it has; the
// others are zero.
type Record struct {
	Kind   Kind
	Stream ID
	Epoch  uint32 // Config.Epoch
	Number uint32 // how many records were sent before on this lane, modulo 2^32

	Code  Code // the number of a Rule, if Kind is KindAbort
	Count uint16
	Ring  Ring
	Total uint64 // bytes of the stream
	Opens uint32 // how many streams were opened on this lane, this one included: see Stage for GOAWAY
	Sum   uint32 // CRC-32C of the bytes of the stream on a lane with checksums, else 0
	Port  uint16
	Stage Stage
}

// Put writes r to the first RecordLen bytes of b. It panics if b is shorter. If the protocol does
// not allow r, the error is that of ParseRecord, and b is unchanged.
func (r Record) Put(b []byte) error {
	_ = b[RecordLen-1]
	if err := r.check(); err != nil {
		return err
	}
	clear(b[:RecordLen])
	b[0], b[1] = RecordVersion, byte(r.Kind)
	le := binary.LittleEndian
	le.PutUint16(b[2:], uint16(r.Stream))
	le.PutUint32(b[4:], r.Epoch)
	le.PutUint32(b[8:], r.Number)
	le.PutUint16(b[12:], uint16(r.Code))
	le.PutUint16(b[14:], r.Count)
	le.PutUint64(b[16:], r.Ring.Addr)
	le.PutUint32(b[24:], r.Ring.RKey)
	le.PutUint32(b[28:], r.Ring.Size)
	le.PutUint64(b[32:], r.Total)
	le.PutUint32(b[40:], r.Opens)
	le.PutUint32(b[44:], r.Sum)
	le.PutUint16(b[48:], r.Port)
	b[50] = byte(r.Stage)
	return nil
}

// ParseRecord decodes a record. b must be a copy that the peer cannot write to. The error is a
// *ProtocolError, whose Rule tells which field is wrong.
func ParseRecord(b []byte) (Record, error) {
	if len(b) != RecordLen {
		return Record{}, violation(RuleRecordLength, 0, uint64(len(b)), RecordLen)
	}
	if b[0] != RecordVersion {
		return Record{}, violation(RuleVersion, 0, uint64(b[0]), RecordVersion)
	}
	for _, v := range b[51:] {
		if v != 0 {
			return Record{}, violation(RuleReserved, 0, uint64(v), 0)
		}
	}
	le := binary.LittleEndian
	r := Record{
		Kind: Kind(b[1]), Stream: ID(le.Uint16(b[2:])), Epoch: le.Uint32(b[4:]), Number: le.Uint32(b[8:]),
		Code: Code(le.Uint16(b[12:])), Count: le.Uint16(b[14:]),
		Ring:  Ring{Addr: le.Uint64(b[16:]), RKey: le.Uint32(b[24:]), Size: le.Uint32(b[28:])},
		Total: le.Uint64(b[32:]), Opens: le.Uint32(b[40:]), Sum: le.Uint32(b[44:]),
		Port: le.Uint16(b[48:]), Stage: Stage(b[50]),
	}
	if err := r.check(); err != nil {
		return Record{}, err
	}
	return r, nil
}

// RecordHeader returns the kind and the stream of an encoded record that ParseRecord takes.
func RecordHeader(b []byte) (Kind, ID) {
	return Kind(b[1]), ID(binary.LittleEndian.Uint16(b[2:]))
}

// check checks a record by itself.
func (r *Record) check() error {
	if r.Kind == 0 || r.Kind >= numKinds {
		return violation(RuleKind, 0, uint64(r.Kind), uint64(numKinds-1))
	}
	has := kinds[r.Kind].has
	if has&hasStream != 0 && r.Stream-1 >= MaxStream { // 0 wraps around
		return violation(RuleStream, 0, uint64(r.Stream), uint64(MaxStream))
	}
	if has|r.fields() != has {
		return violation(RuleReserved, 0, uint64(r.fields()&^has), 0)
	}
	return r.checkFields(has)
}

// fields returns which fields of r are not zero.
func (r *Record) fields() (has uint16) {
	for _, f := range [...]struct {
		set bool
		bit uint16
	}{
		{r.Stream != 0, hasStream}, {r.Code != 0, hasCode}, {r.Count != 0, hasCount}, {r.Ring != Ring{}, hasRing},
		{r.Total != 0, hasTotal}, {r.Opens != 0, hasOpens}, {r.Sum != 0, hasSum}, {r.Port != 0, hasPort}, {r.Stage != 0, hasStage},
	} {
		if f.set {
			has |= f.bit
		}
	}
	return has
}

// checkFields checks the values of the fields that r has.
func (r *Record) checkFields(has uint16) error {
	count := uint64(1)
	if r.Kind == KindPlaces {
		count = uint64(r.Count)
	}
	codes := numCodes - 1
	switch r.Kind {
	case KindRefused:
		codes = lastRefusal
	case KindAbort:
		codes = Code(lastLaneRule)
	}
	switch {
	case has&hasCount != 0 && r.Count == 0, has&hasCount != 0 && uint64(r.Stream)+uint64(r.Count) > uint64(MaxStream)+1:
		return violation(RuleCount, r.Stream, uint64(r.Count), uint64(MaxStream-r.Stream)+1)
	case has&hasRing != 0 && !r.Ring.valid(count):
		return violation(RuleRing, r.Stream, uint64(r.Ring.Size), MaxRing)
	case has&hasCode != 0 && (r.Code == 0 || r.Code > codes):
		return violation(RuleCode, r.Stream, uint64(r.Code), uint64(codes))
	case has&hasPort != 0 && (r.Port == 0 || uint64(r.Port)+count-1 > math.MaxUint16):
		return violation(RulePort, r.Stream, uint64(r.Port), math.MaxUint16)
	case has&hasStage != 0 && (r.Stage == 0 || r.Stage >= numStages):
		return violation(RuleStage, 0, uint64(r.Stage), uint64(numStages-1))
	}
	return nil
}
