package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A FallbackReason is why a dial or a listener on a network "tcp", "tcp4" or "tcp6"
// came to do without RDMA.
type FallbackReason uint8

// The reasons, in the words of the side that falls back.
const (
	FallbackNoDevice    FallbackReason = iota // there is no such RDMA device here, or no driver for any
	FallbackNoRoute                           // no device here reaches, or has, the address
	FallbackRefused                           // nobody takes RDMA there
	FallbackDenied                            // the peer, or the system, does not permit it
	FallbackVersion                           // the two ends have no version of the protocol in common
	FallbackUnreachable                       // there is a route, but no answer
	FallbackSlow                              // RDMA was not there yet when TCP was, or when its time was up while the listener had no place
	FallbackRemembered                        // it failed a short while ago, see Dialer.RetryRDMA
	FallbackResources                         // memory, descriptors or queue pairs ran out
	FallbackFailed                            // anything else, as a peer that broke the protocol
	fallbackReasons                           // how many there are
)

var fallbackNames = [...]string{
	"no device", "no route", "refused", "denied", "version", "unreachable", "slow", "remembered", "resources", "failed",
}

func (r FallbackReason) String() string {
	if int(r) < len(fallbackNames) {
		return fallbackNames[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// ErrSlow is the cause of a fallback by which a connection over TCP stood before the
// one over RDMA did, which was tried first.
var ErrSlow = errors.New("RDMA was slower than TCP")

// A FallbackError says why a connection or a listener does without RDMA. errors.Is
// and errors.As find the cause in it: ErrNoDevice, ErrNoRoute, syscall.ECONNREFUSED,
// syscall.EACCES, cm.ErrVersion, ErrSlow, and so on; for FallbackRemembered that of
// the dial that is remembered.
type FallbackError struct {
	Op      string   // "dial" or "listen"
	Network string   // "tcp", "tcp4" or "tcp6"
	Addr    net.Addr // where the connection goes to, or the listener's address
	Reason  FallbackReason
	Err     error // the cause
}

func (e *FallbackError) Error() string {
	err := e.Err
	if op, ok := err.(*net.OpError); ok && op.Op == e.Op && op.Addr != nil && e.Addr != nil && op.Addr.String() == e.Addr.String() {
		err = op.Err // the rest is said
	}
	return fmt.Sprintf("%s %s %v without RDMA (%v): %v", e.Op, e.Network, e.Addr, e.Reason, err)
}

// Unwrap returns the cause.
func (e *FallbackError) Unwrap() error { return e.Err }

// Timeout reports whether the cause was a timeout.
func (e *FallbackError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// fallbacks counts the fallbacks of this process, first of dials, then of listeners.
var fallbacks [2][fallbackReasons]atomic.Uint64

// fallbackCounts returns how often dials and listeners of this process fell back to
// TCP, by the name of the reason; reasons that never came up are left out.
func fallbackCounts() (dials, listens map[string]uint64) {
	var counts [2]map[string]uint64
	for op := range fallbacks {
		counts[op] = map[string]uint64{}
		for reason, name := range fallbackNames {
			if n := fallbacks[op][reason].Load(); n > 0 {
				counts[op][name] = n
			}
		}
	}
	return counts[0], counts[1]
}

// report makes a fallback known: it is counted, logged, and told to whoever asked. The
// first for each reason is logged at level Info, but for what is remembered, which was
// another reason when it happened.
func (e *FallbackError) report(logger *slog.Logger, tell func(*FallbackError)) {
	op, key, level := 0, "remote", slog.LevelDebug
	if e.Op == opListen {
		op, key = 1, "listener"
	}
	if first := fallbacks[op][e.Reason].Add(1) == 1; first && e.Reason != FallbackRemembered {
		level = slog.LevelInfo
	}
	logger.Log(context.Background(), level, "rdmanet: TCP without RDMA",
		"op", e.Op, "network", e.Network, key, e.Addr, "reason", e.Reason, "err", e.Err)
	if tell != nil {
		tell(e)
	}
}

// reasonOf sorts the failure of RDMA. Where several drivers were asked, that one has
// no device says less than what another, which has, says of the address.
func reasonOf(err error) FallbackReason {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	var refused *cm.RefusedError
	switch {
	case is(ErrSlow, verbs.ErrTryAgain): // the listener is behind
		return FallbackSlow
	case is(cm.ErrVersion):
		return FallbackVersion
	case errors.As(err, &refused) && refused.Code == cm.RefusedResources, is(ErrNoMemory, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE):
		return FallbackResources
	case is(verbs.ErrTCPPorts):
		return FallbackNoDevice
	case is(syscall.EACCES, syscall.EPERM):
		return FallbackDenied
	case is(syscall.ECONNREFUSED):
		return FallbackRefused
	case is(ErrNoRoute, syscall.EADDRNOTAVAIL):
		return FallbackNoRoute
	case is(ErrNoDevice, verbs.ErrNotSupported, syscall.ENODEV):
		return FallbackNoDevice
	case is(cm.ErrUnreachable, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, os.ErrDeadlineExceeded, context.DeadlineExceeded):
		return FallbackUnreachable
	}
	return FallbackFailed
}

// slowLasts bounds how long being slow is remembered. The way may be cut, which stays so;
// but as likely the server is behind with accepting, for which TCP's kernel does not wait.
const slowLasts = time.Second

// lasts says how long a failure is remembered, at most for keep: if it lies with the
// destination, or with the way to it, it will be there for a while. Others are this
// process's own, or soon over.
func lasts(err error, keep time.Duration) time.Duration {
	var refused *cm.RefusedError
	if errors.As(err, &refused) && refused.Code == cm.RefusedShutdown {
		return 0
	}
	switch reasonOf(err) {
	case FallbackResources, FallbackFailed:
		return 0
	case FallbackSlow:
		return min(keep, slowLasts)
	}
	return keep
}

// DefaultRetryRDMA is how long a destination that could only be reached by TCP is
// dialled without RDMA, unless Dialer.RetryRDMA says otherwise.
const DefaultRetryRDMA = 10 * time.Second
