package lane

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/ring"
)

// A Rule is a rule of the protocol that a peer has broken. It is an error, so that
// errors.Is(err, lane.RuleOverflow) asks for one.
type Rule uint8

// The rules. Their numbers are on the wire.
const (
	// RuleType: the immediate is of no known type.
	RuleType Rule = iota + 1
	// RuleReserved: bits or bytes that must be zero are not.
	RuleReserved
	// RuleStream: the id of a stream is 0 or above the highest.
	RuleStream
	// RuleNothing: a credit or a return of slots is of nothing.
	RuleNothing
	// RuleRecordLength: a record is not of 64 bytes, or came without a control immediate.
	RuleRecordLength
	// RuleVersion: a record is of another version.
	RuleVersion
	// RuleKind: a record is of no known kind.
	RuleKind
	// RuleRing: a ring has a size that no ring has, or ends beyond the address space.
	RuleRing
	// RuleCode: a record has a code that its kind does not know.
	RuleCode
	// RuleCount: a record counts nothing, or ids beyond the highest.
	RuleCount
	// RulePort: a place or an OPEN has port 0, or one above the highest.
	RulePort
	// RuleStage: a GOAWAY is of no known stage.
	RuleStage
	// RuleEpoch: a record is not of this lane.
	RuleEpoch
	// RuleNumber: a record is not the one that follows the last.
	RuleNumber
	// RuleDepth: more messages came than receives were posted.
	RuleDepth
	// RuleReturn: more receives came back than were used up.
	RuleReturn
	// RuleRole: a record came that only the other role may send.
	RuleRole
	// RulePlace: a place was granted twice, or a stream opened without one.
	RulePlace
	// RuleOpenNumber: an OPEN, or a GOAWAY, counts the opened streams wrongly.
	RuleOpenNumber
	// RuleNotOpen: a message came for a stream that is not open.
	RuleNotOpen
	// RuleAfterEnd: a message came for a stream that its sender has ended.
	RuleAfterEnd
	// RuleRelease: an id was released that is neither a place nor of a stream that was refused.
	RuleRelease
	// RuleGoAway: GOAWAY came out of order, or something that it rules out came after it.
	RuleGoAway
	// RuleRecall: places that were asked back were neither given back nor taken in time.
	RuleRecall

	// RuleOverflow: data came for which the stream's ring has no room.
	RuleOverflow
	// RuleStraddle: data went past the end of the stream's ring.
	RuleStraddle
	// RuleCredit: a credit came for bytes that were not sent.
	RuleCredit
	// RuleOffer: a second ring was offered before the peer moved to the first.
	RuleOffer
	// RuleMove: the peer moved to a ring that was not offered.
	RuleMove
	// RuleAfterFIN: data, or a second FIN, came after FIN.
	RuleAfterFIN
	// RuleTotal: a stream ended with another number of bytes than arrived.
	RuleTotal
	// RuleFrame: data that is not a frame came on a lane with checksums.
	RuleFrame

	numRules
)

var ruleTexts = [numRules]string{
	RuleType:         "immediate of unknown type",
	RuleReserved:     "reserved bits are not zero",
	RuleStream:       "no such stream id",
	RuleNothing:      "credit or slots of nothing",
	RuleRecordLength: "record of a wrong length",
	RuleVersion:      "record of another version",
	RuleKind:         "record of unknown kind",
	RuleRing:         "ring that cannot be",
	RuleCode:         "unknown code",
	RuleCount:        "count out of range",
	RulePort:         "no such port",
	RuleStage:        "unknown stage of GOAWAY",
	RuleEpoch:        "record of another epoch",
	RuleNumber:       "record out of order",
	RuleDepth:        "more messages than receives",
	RuleReturn:       "more receives returned than used",
	RuleRole:         "record of the other role",
	RulePlace:        "no such place",
	RuleOpenNumber:   "opens counted wrongly",
	RuleNotOpen:      "stream is not open",
	RuleAfterEnd:     "message after the end of its stream",
	RuleRelease:      "release of neither a place nor a refused stream",
	RuleGoAway:       "GOAWAY out of turn",
	RuleRecall:       "places that were asked back are kept",
	RuleOverflow:     "data beyond the free room of the ring",
	RuleStraddle:     "data across the end of the ring",
	RuleCredit:       "credit for bytes that were not sent",
	RuleOffer:        "ring offered before the last move",
	RuleMove:         "move to a ring that was not offered",
	RuleAfterFIN:     "message after FIN",
	RuleTotal:        "stream ends with another number of bytes",
	RuleFrame:        "data that is no frame",
}

// Error returns what the peer did against the rule.
func (r Rule) Error() string {
	if r == 0 || r >= numRules {
		return fmt.Sprintf("rule %d", uint8(r))
	}
	return ruleTexts[r]
}

// A Scope is what ends when a rule is broken.
type Scope uint8

// The scopes.
const (
	// ScopeLane: the lane ends, since its two ends no longer agree. Other lanes of the link go on.
	ScopeLane Scope = iota
	// ScopeStream: the stream is reset.
	ScopeStream
)

// lastLaneRule is the highest rule about the lane.
const lastLaneRule = RuleOverflow - 1

// Scope returns what ends when a peer breaks r.
func (r Rule) Scope() Scope {
	if r > lastLaneRule {
		return ScopeStream
	}
	return ScopeLane
}

// A ProtocolError tells what a peer did wrong. It matches ring.ErrProtocol and its Rule.
type ProtocolError struct {
	Rule   Rule
	Stream ID     // 0 where the rule is not about one stream
	Got    uint64 // what the peer said
	Limit  uint64 // the most that was allowed, or the only value
}

// Error implements error.
func (e *ProtocolError) Error() string {
	what, end := "", "end the lane"
	if e.Stream != 0 {
		what = fmt.Sprintf("stream %d: ", e.Stream)
	}
	if e.Rule.Scope() == ScopeStream {
		end = "reset the stream"
	}
	return fmt.Sprintf("lane: peer broke the protocol: %s%v (got %d, limit %d); %s", what, e.Rule, e.Got, e.Limit, end)
}

// Is reports whether target is ring.ErrProtocol or e.Rule.
func (e *ProtocolError) Is(target error) bool {
	return target == ring.ErrProtocol || target == e.Rule
}

// violation is kept out of line so that the checks around it stay inlinable.
//
//go:noinline
func violation(rule Rule, id ID, got, limit uint64) error {
	return &ProtocolError{Rule: rule, Stream: id, Got: got, Limit: limit}
}

// misuse returns an error about a wrong argument. It matches ring.ErrConfig.
//
//go:noinline
func misuse(format string, args ...any) error {
	return fmt.Errorf("lane: %w: "+format, append([]any{ring.ErrConfig}, args...)...)
}
