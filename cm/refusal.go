package cm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"unicode/utf8"

	"github.com/rdmanet/go-rdmanet/internal/protocol"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// MaxRefusalText is how many bytes of text a Refusal carries.
const MaxRefusalText = 120

const (
	refusalMagic  = "RDMX"
	refusalHeader = 8
)

// RefusalCode is why the passive end refuses a connection.
type RefusalCode uint16

// The codes. Others may come from newer peers.
const (
	RefusedVersion      RefusalCode = 1 // no common protocol version
	RefusedMalformed    RefusalCode = 2 // malformed handshake
	RefusedBusy         RefusalCode = 3 // too many connections are waiting to be accepted
	RefusedResources    RefusalCode = 4 // out of memory, queue pairs or another resource; it may be asked again
	RefusedNotPermitted RefusalCode = 5 // not permitted
	RefusedShutdown     RefusalCode = 6 // shutting down
	RefusedChecksum     RefusalCode = 7 // checksums are wanted, and the active end does not know them
	RefusedFailure      RefusalCode = 8 // the passive end failed otherwise
)

func (c RefusalCode) String() string {
	switch c {
	case RefusedVersion:
		return "no common protocol version"
	case RefusedMalformed:
		return "malformed handshake"
	case RefusedBusy:
		return "too many connections are waiting to be accepted"
	case RefusedResources:
		return "out of resources"
	case RefusedNotPermitted:
		return "not permitted"
	case RefusedShutdown:
		return "shutting down"
	case RefusedChecksum:
		return "checksums are wanted"
	case RefusedFailure:
		return "failure at the passive end"
	}
	return fmt.Sprintf("refusal code %d", uint16(c))
}

// A Refusal is what the passive end says in the private data of Reject.
// docs/PROTOCOL.md, section 12.
type Refusal struct {
	Version    uint8 // the highest version of the protocol that the passive end speaks
	MinVersion uint8 // the lowest
	Code       RefusalCode
	Text       string // for people; UTF-8 without NUL
}

// NewRefusal is a Refusal with the version of docs/PROTOCOL.md that this library speaks. A
// program with a protocol of its own sets the versions of that.
func NewRefusal(code RefusalCode, text string) Refusal {
	return Refusal{Version: protocol.Version, MinVersion: protocol.Version, Code: code, Text: text}
}

// AppendBinary appends the refusal as it goes on the wire. Text is cut to what
// fits, at the end of a character, and before a NUL.
func (r *Refusal) AppendBinary(b []byte) ([]byte, error) {
	if r.MinVersion == 0 || r.MinVersion > r.Version {
		return b, malformedRefusal("versions %d to %d", r.MinVersion, r.Version)
	}
	if r.Code == 0 {
		return b, malformedRefusal("code 0")
	}
	b = append(b, refusalMagic...)
	b = append(b, r.Version, r.MinVersion)
	b = binary.LittleEndian.AppendUint16(b, uint16(r.Code))
	room := MaxRefusalText
	for _, c := range r.Text { // an invalid byte comes as U+FFFD
		room -= utf8.RuneLen(c)
		if c == 0 || room < 0 {
			break
		}
		b = utf8.AppendRune(b, c)
	}
	return b, nil
}

// MarshalBinary is AppendBinary to nothing.
func (r *Refusal) MarshalBinary() ([]byte, error) {
	return r.AppendBinary(make([]byte, 0, refusalHeader+MaxRefusalText))
}

// ParseRefusal reads a refusal from private data, which may be padded with zeros.
// It fails with a *MalformedError.
func ParseRefusal(b []byte) (Refusal, error) {
	var r Refusal
	if len(b) < refusalHeader {
		return r, malformedRefusal("%d bytes, fewer than its header has", len(b))
	}
	if string(b[:4]) != refusalMagic {
		return r, malformedRefusal("it begins with % x", b[:4])
	}
	r.Version, r.MinVersion = b[4], b[5]
	if r.MinVersion == 0 || r.MinVersion > r.Version {
		return r, malformedRefusal("versions %d to %d", r.MinVersion, r.Version)
	}
	r.Code = RefusalCode(binary.LittleEndian.Uint16(b[6:]))
	if r.Code == 0 {
		return r, malformedRefusal("code 0")
	}
	text := b[refusalHeader:]
	for len(text) > 0 && text[len(text)-1] == 0 {
		text = text[:len(text)-1]
	}
	if len(text) > MaxRefusalText {
		return r, malformedRefusal("text of %d bytes", len(text))
	}
	for _, c := range text {
		if c == 0 {
			return r, malformedRefusal("data past the end of its text")
		}
	}
	if !utf8.Valid(text) {
		return r, malformedRefusal("text is not UTF-8")
	}
	r.Text = string(text)
	return r, nil
}

func malformedRefusal(format string, args ...any) error {
	return &MalformedError{What: "refusal", Detail: fmt.Sprintf(format, args...)}
}

// ErrRefused means that the peer's application refused, and said why. See RefusedError.
var ErrRefused = errors.New("connection refused by the application")

// A RefusedError is a Refusal that arrived.
type RefusedError struct{ Refusal }

func (e *RefusedError) Error() string {
	s := "the peer refuses: " + e.Code.String()
	if e.Code == RefusedVersion {
		s += fmt.Sprintf(", it speaks version %s, this end %s",
			versionRange(e.MinVersion, e.Version), versionRange(protocol.Version, protocol.Version))
	}
	if e.Text != "" {
		// Quoted, for the peer may have put anything there.
		s += fmt.Sprintf(": %q", e.Text)
	}
	return s
}

// Is matches ErrRefused, and by its code ErrVersion, verbs.ErrProtocol (malformed),
// verbs.ErrNoMemory (resources), EACCES (not permitted) or ErrNoChecksum.
func (e *RefusedError) Is(target error) bool {
	switch target {
	case ErrRefused:
		return true
	case ErrVersion:
		return e.Code == RefusedVersion
	case verbs.ErrProtocol:
		return e.Code == RefusedMalformed
	case verbs.ErrNoMemory:
		return e.Code == RefusedResources
	case syscall.EACCES:
		return e.Code == RefusedNotPermitted
	case ErrNoChecksum:
		return e.Code == RefusedChecksum
	}
	return false
}
