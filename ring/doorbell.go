package ring

import "fmt"

// The immediate of a doorbell:
//
//	 31   28  27  26                                       0
//	+-------+---+-------------------------------------------+
//	| kind  | g |                  length                   |
//	+-------+---+-------------------------------------------+
//
// g is the grown bit. Grown and length belong to Data and are 0 for every other
// kind. Everything not listed is a violation, so that the unused space stays free
// for later versions.
const (
	immKindShift = 28
	immGrown     = 1 << 27
	immLenMask   = 1<<27 - 1
)

// Kind says what a doorbell announces.
type Kind uint8

// The kinds of doorbell.
const (
	// KindData announces bytes written to the ring.
	KindData Kind = 1
	// KindCredit announces that the credit block was written.
	KindCredit Kind = 2
	// KindFIN ends the sender's stream: no data follows.
	KindFIN Kind = 3
	// KindClose is FIN from a sender that will not read any more either.
	KindClose Kind = 4
	// KindReset aborts the connection.
	KindReset Kind = 5
	// KindKeepAlive asks for nothing; that it arrives is its meaning.
	KindKeepAlive Kind = 6
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case KindData:
		return "Data"
	case KindCredit:
		return "Credit"
	case KindFIN:
		return "FIN"
	case KindClose:
		return "Close"
	case KindReset:
		return "Reset"
	case KindKeepAlive:
		return "KeepAlive"
	case KindCorrupt:
		return "Corrupt"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Doorbell is what the immediate of one message says.
type Doorbell struct {
	Kind  Kind
	Len   uint32 // bytes written to the ring, 1 to MaxSize; Data only
	Grown bool   // the bytes begin the area by which the ring grew; Data only
}

// Imm encodes d. A doorbell that the wire cannot express encodes as 0, which
// ParseDoorbell refuses.
func (d Doorbell) Imm() uint32 {
	if d.Kind == KindData {
		if d.Len-1 >= MaxSize { // 0 wraps around
			return 0
		}
		imm := uint32(KindData)<<immKindShift | d.Len
		if d.Grown {
			imm |= immGrown
		}
		return imm
	}
	if d.Kind > KindKeepAlive || d.Len != 0 || d.Grown {
		return 0
	}
	return uint32(d.Kind) << immKindShift
}

// ParseDoorbell decodes an immediate. It returns an error matching ErrProtocol for
// one that Imm does not produce.
func ParseDoorbell(imm uint32) (Doorbell, error) {
	d := Doorbell{Kind: Kind(imm >> immKindShift), Len: imm & immLenMask, Grown: imm&immGrown != 0}
	if d.Kind == KindData && d.Len-1 < MaxSize {
		return d, nil
	}
	return d.control()
}

// control accepts what Imm produces for the kinds that carry no data.
func (d Doorbell) control() (Doorbell, error) {
	if d.Kind <= KindData || d.Kind > KindKeepAlive || d.Len != 0 || d.Grown {
		return Doorbell{}, d.refusal()
	}
	return d, nil
}

// refusal names what is wrong with a doorbell that Imm does not produce.
func (d Doorbell) refusal() error {
	switch {
	case d.Kind == 0 || d.Kind > KindKeepAlive:
		return violation("doorbell of unknown kind", uint64(d.Kind), uint64(KindKeepAlive))
	case d.Kind != KindData && d.Grown:
		return violation("grown bit on a doorbell without data", 1, 0)
	case d.Kind != KindData:
		return violation("length on a doorbell without data", uint64(d.Len), 0)
	case d.Len == 0:
		return violation("data doorbell of length zero", 0, MaxSize)
	}
	return violation("data doorbell longer than any ring", uint64(d.Len), MaxSize)
}
