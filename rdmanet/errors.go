package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Causes that this package adds to those of package net. Test for them with
// errors.Is; they arrive wrapped in a *net.OpError. An option or an argument that
// cannot be is syscall.EINVAL.
var (
	// ErrProtocol means that the peer broke the protocol, as with a doorbell longer
	// than the ring or a credit for bytes it was never sent. Where that is about one
	// connection it is reset alone; where it is about the lane, all connections of that
	// lane end. Of a connection that stood, errors.Is also finds syscall.ECONNABORTED.
	ErrProtocol = ring.ErrProtocol

	// ErrChecksum means that bytes did not arrive as they were sent, on a connection with
	// checksums; see Dialer.Checksum. The end that found it has read all bytes before
	// them and none of them. errors.Is also finds syscall.ECONNRESET.
	ErrChecksum = ring.ErrChecksum

	// ErrNoChecksum means that one end wants checksums and the other is too old to know
	// them: update it, or do without.
	ErrNoChecksum = cm.ErrNoChecksum

	// ErrPeerGone means that the peer vanished without closing the connection: its
	// process died, its device was removed, or its host or the way there does not
	// answer. errors.Is also finds syscall.ECONNRESET, or in the last case
	// syscall.ETIMEDOUT.
	ErrPeerGone = verbs.ErrPeerGone

	// ErrNoDevice means that the RDMA device asked for is not present.
	ErrNoDevice = verbs.ErrNoDevice

	// ErrNoRoute means that no RDMA device reaches the address.
	ErrNoRoute = verbs.ErrNoRoute

	// ErrNoMemory means that memory for rings could not be had: the system refused
	// it, or the limit of SetMemoryLimit is reached.
	ErrNoMemory = verbs.ErrNoMemory

	// ErrReservation means that Commit was called without Reserve before it, or
	// with more bytes than were reserved.
	ErrReservation = errors.New("commit without a matching reserve")
)

// invalid is the error of an argument or an option that cannot be.
func invalid(format string, args ...any) error {
	return driver.Explain(fmt.Sprintf(format, args...), syscall.EINVAL)
}

// Operation names as package net has them in its OpErrors.
const (
	opAccept = "accept"
	opClose  = "close"
	opDial   = "dial"
	opListen = "listen"
	opRead   = "read"
	opSet    = "set"
	opWrite  = "write"

	opReadFrom = "readfrom"
	opWriteTo  = "writeto"

	opRawControl = "raw-control"
	opRawRead    = "raw-read"
	opRawWrite   = "raw-write"
)

// opError is the one place where a *net.OpError is made. nil and io.EOF pass
// as they are, and so does what is a *net.OpError already.
func opError(op, network string, src, dst net.Addr, err error) error {
	if isWhole(err) {
		return err
	}
	switch {
	case isBare(err):
	case isDNSError(err), isDialError(err): // say more than that it took too long
	case errors.Is(err, os.ErrClosed), errors.Is(err, verbs.ErrClosed):
		err = net.ErrClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = os.ErrDeadlineExceeded
	case errors.Is(err, context.Canceled):
		err = errCanceled
	case errors.Is(err, context.DeadlineExceeded):
		err = errDialTimeout
	case errors.Is(err, verbs.ErrProtocol) && !errors.Is(err, ErrProtocol):
		err = &protocolError{err}
	}
	return &net.OpError{Op: op, Net: network, Source: src, Addr: dst, Err: plain(err)}
}

// A detailed error has the name of its package and the address in its text, which a
// *net.OpError has already, and what is left of it without them: one of package cm.
type detailed interface {
	error
	Detail() string
}

// plain has the text of err say each thing once.
func plain(err error) error {
	if d, ok := alone(err).(detailed); ok {
		return &plainError{d}
	}
	return err
}

// alone is the only error that errors.Join has joined, or else err.
func alone(err error) error {
	for {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			return err
		}
		all := joined.Unwrap()
		if len(all) != 1 || all[0].Error() != err.Error() {
			return err
		}
		err = all[0]
	}
}

// A plainError is a detailed error with its Detail for a text.
type plainError struct{ of detailed }

func (e *plainError) Error() string   { return e.of.Detail() }
func (e *plainError) Unwrap() error   { return e.of }
func (e *plainError) Temporary() bool { return e.Timeout() }

func (e *plainError) Timeout() bool {
	t, ok := e.of.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// isWhole reports whether err is returned as it is: nil, io.EOF, and what is a *net.OpError itself.
func isWhole(err error) bool {
	_, already := err.(*net.OpError) // and not one somewhere inside it
	return already || err == nil || err == io.EOF
}

// isBare reports whether err is one of those by which calls mostly end, in which there is nothing to
// look for: to look makes an object, and http.Server ends a Read by a deadline with each request.
func isBare(err error) bool {
	switch err {
	case nil, io.EOF, os.ErrDeadlineExceeded, net.ErrClosed:
		return true
	}
	return false
}

func isDNSError(err error) bool {
	var dns *net.DNSError // on the heap
	return errors.As(err, &dns)
}

func isDialError(err error) bool {
	_, is := err.(*dialError)
	return is
}

// copyError is the error of a ReadFrom or WriteTo, also where the other side of the
// copy failed: as in package net it holds the error of the call that failed, and io.EOF
// passes as it is.
func (c *Conn) copyError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: c.network.String(), Source: c.localAddr(), Addr: c.remoteAddr(), Err: err}
}

// A protocolError is a broken protocol below that of the ring: of the handshake,
// the connection manager or the device. To the application it is the same.
type protocolError struct{ error }

func (e *protocolError) Is(target error) bool { return target == ErrProtocol }
func (e *protocolError) Unwrap() error        { return e.error }

// A dialError has the text and the behaviour of package net's own errors for a
// dial that was given up, which that package does not export.
type dialError struct {
	text    string
	timeout bool
	is      []error
}

var (
	errCanceled    error = &dialError{text: "operation was canceled", is: []error{context.Canceled}}
	errDialTimeout error = &dialError{text: "i/o timeout", timeout: true, is: []error{context.DeadlineExceeded, os.ErrDeadlineExceeded}}
)

func (e *dialError) Error() string   { return e.text }
func (e *dialError) Timeout() bool   { return e.timeout }
func (e *dialError) Temporary() bool { return e.timeout }
func (e *dialError) Unwrap() []error { return e.is }

// A connError is what ended a connection: the errno by which programs know it,
// and what is known beyond that.
type connError struct {
	errno  syscall.Errno
	detail error
}

// newConnError is the cause of a failure in the shape package net gives it.
func newConnError(errno syscall.Errno, detail error) error {
	if detail == nil {
		return errno
	}
	return &connError{errno, plain(detail)}
}

func (e *connError) Error() string   { return e.errno.Error() + ": " + e.detail.Error() }
func (e *connError) Unwrap() []error { return []error{e.errno, e.detail} }

// A *net.OpError asks these of what is in its *os.SyscallError.
func (e *connError) Timeout() bool   { return e.errno.Timeout() }
func (e *connError) Temporary() bool { return e.errno.Temporary() }

// inCall dresses an errno that a failed connection gives for the call that meets
// it, as os.NewSyscallError does for package net.
func inCall(op string, err error) error {
	if isBare(err) {
		return err
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}
	return &os.SyscallError{Syscall: op, Err: err}
}
