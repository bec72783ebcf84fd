//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Whether an accepted connection stands is decided once, for both ends, by one word of the
// listener's inbox, which the dialer has mapped when it has REP. The dialer takes it from
// open to confirmed before it tells anybody that it is connected; a listener that gives
// the dialer up takes it from open to withdrawn before it does. Whoever comes second finds
// what the first has decided: a dialer that was given up dials again, and has delivered
// nothing; a listener keeps a dialer that has confirmed, whether RTU was read or not.
//
// RTU is still what wakes the listener: a dialer that only sets the word has told nobody.
// One that sets it back, or to something else, can be given up although it has sent RTU,
// and that is all it gains.
const (
	DecisionOpen uint32 = iota
	DecisionConfirmed
	DecisionWithdrawn
)

// errWithdrawn is the dialer's error where the listener was first.
var errWithdrawn = fmt.Errorf("the listener gave the connection up before it was confirmed: %w", verbs.ErrTryAgain)

// Withdraw gives up whoever has not confirmed yet, and reports whether nobody has.
func (in *Inbox) Withdraw() bool {
	atomic.CompareAndSwapUint32(in.Decision, DecisionOpen, DecisionWithdrawn)
	return atomic.LoadUint32(in.Decision) != DecisionConfirmed
}

// Confirm is the dialer's side of it.
func (o *Outbox) Confirm() error {
	if atomic.CompareAndSwapUint32(o.Decision, DecisionOpen, DecisionConfirmed) {
		return nil
	}
	if d := atomic.LoadUint32(o.Decision); d != DecisionWithdrawn {
		return fmt.Errorf("%w: connection that somebody else has confirmed, %d", verbs.ErrProtocol, d)
	}
	return errWithdrawn
}
