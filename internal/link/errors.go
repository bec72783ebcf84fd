package link

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

var (
	// ErrLinkClosed means that this end has closed the link.
	ErrLinkClosed = errors.New("link: closed")
	// errRetired is returned to a dial whose link takes no more: another link may.
	errRetired = errors.New("the listener takes no more streams")
	// errGone is the end of a link whose peer has left or broken it off.
	errGone = fmt.Errorf("%w: the link has ended", verbs.ErrPeerGone)
	// errRemoved is the end of a link whose device is gone.
	errRemoved = errors.New("the device was removed")
	// errNoAnswer is the end of a link whose peer cannot be reached any more.
	errNoAnswer = fmt.Errorf("%w: it does not answer", verbs.ErrPeerGone)
	// errAccused is the end of a link whose peer has ended it so.
	errAccused = fmt.Errorf("%w: the peer says that this end broke the protocol", errGone)
	// errGaveWay is a dialer that has connected and says nothing, while others wait.
	errGaveWay = errors.New("link: the dialer was silent while others waited")
	// errCorrupt is the end of a stream at the end that has sent what did not arrive so.
	errCorrupt = fmt.Errorf("%w: the peer found it in what this end sent", ring.ErrChecksum)
	// errSilent is a dialer that has connected and says nothing.
	errSilent = errors.New("link: the dialer has not spoken")
)

// goneBy is errGone with what the connection manager says of it, which may be nil, but for what is
// said already: the peer of the lane, whose address is not that of a stream, and that it is gone.
func goneBy(err error) error {
	var of *cm.ConnectionError
	if errors.As(err, &of) {
		err = of.Err
	}
	if err == nil || err == verbs.ErrPeerGone {
		return errGone
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// An AddressError is why a dial failed that has not got as far as asking anybody.
type AddressError struct{ Err error }

func (e *AddressError) Error() string { return e.Err.Error() }
func (e *AddressError) Unwrap() error { return e.Err }

// An Error is why a stream has failed, in the shape that package net gives it.
type Error struct {
	Errno syscall.Errno
	Err   error
}

func (e *Error) Error() string   { return e.Errno.Error() + ": " + e.Err.Error() }
func (e *Error) Unwrap() []error { return []error{e.Errno, e.Err} }

// A *net.OpError asks these.
func (e *Error) Timeout() bool   { return e.Errno.Timeout() }
func (e *Error) Temporary() bool { return e.Errno.Temporary() }

// ended is why a stream fails whose link has ended. A link that this end has ended because
// the peer lied says ECONNABORTED, one whose device was removed ENODEV,
// one whose peer does not answer ETIMEDOUT, every other ECONNRESET.
func ended(cause error) error {
	errno := syscall.ECONNRESET
	switch {
	case lied(cause):
		errno = syscall.ECONNABORTED
	case errors.Is(cause, errRemoved), errors.Is(cause, verbs.ErrNoDevice):
		errno = syscall.ENODEV
	case errors.Is(cause, errNoAnswer):
		errno = syscall.ETIMEDOUT
	}
	return &Error{errno, cause}
}

// lied reports whether err is that the peer broke the protocol.
func lied(err error) bool {
	return errors.Is(err, ring.ErrProtocol) || errors.Is(err, verbs.ErrProtocol)
}

// refusals are what the codes of REFUSED and RESET tell an application.
var refusals = map[lane.Code]string{
	lane.CodePort:      "the listener has another stream of that port",
	lane.CodeGoingAway: "the listener takes no more streams",
	lane.CodeNoMemory:  "the peer has no memory for the stream",
	lane.CodeClosed:    "the listener was closed",
	lane.CodeProtocol:  "the peer says that this end broke the protocol",
}

// reset is why a stream fails that the peer has broken off.
func reset(code lane.Code) error {
	if code == lane.CodeChecksum {
		return &Error{syscall.ECONNRESET, errCorrupt}
	}
	if text := refusals[code]; text != "" {
		return &Error{syscall.ECONNRESET, errors.New(text)}
	}
	return syscall.ECONNRESET
}
