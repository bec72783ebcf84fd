package rdmanet

import (
	"errors"
	"log/slog"
	"os"
	"syscall"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
)

// A listener that has no descriptors or no memory for a client keeps it waiting: see package
// shortage. Who is sent away dials again by itself: see Dialer.dialAddr.

// reportShortage reports that a client has to wait.
func (l *Listener) reportShortage(err error) {
	level := slog.LevelDebug
	if l.shortages.Tell(err) {
		level = slog.LevelWarn
	}
	asynclog.Log(l.logger, level, "rdmanet: no resources for a connection, clients wait", "listener", l.addr, "err", err)
}

// A shortageError is the cause of an Accept's error where clients wait for resources. It
// is temporary whatever the errno, where package net's is only without descriptors.
type shortageError struct {
	errno  syscall.Errno
	detail error
}

func (e *shortageError) Error() string {
	return e.errno.Error() + ": clients wait: " + e.detail.Error()
}
func (e *shortageError) Unwrap() []error { return []error{e.errno, e.detail} }
func (e *shortageError) Timeout() bool   { return false }
func (e *shortageError) Temporary() bool { return true }

// acceptShortage is what Accept returns for a shortage, in the shape of package net.
func (l *Listener) acceptShortage(err error) error {
	errno, _ := shortage.Errno(err)
	if errno == syscall.EAGAIN { // which of accept(2) means that nobody is there
		errno = syscall.ENOMEM
	}
	return l.opError(opAccept, os.NewSyscallError("accept4", &shortageError{errno, err}))
}

// Reasons of InfiniBand's connection manager for an end that lacks something
// (IBA 12.6.7.2): no QP, no resources.
const (
	rejectNoQP        cm.RejectReason = 1
	rejectNoResources cm.RejectReason = 3
)

// peerShort reports whether a dial failed for lack of something that may be there soon, at
// the listener, or of what descriptors all of a user's processes may have under way.
func peerShort(err error) bool {
	var refused *cm.RefusedError
	if errors.As(err, &refused) {
		return refused.Code == cm.RefusedResources
	}
	var rejected *cm.RejectedError
	if errors.As(err, &rejected) {
		return rejected.Reason == rejectNoQP || rejected.Reason == rejectNoResources
	}
	return errors.Is(err, syscall.ETOOMANYREFS)
}
