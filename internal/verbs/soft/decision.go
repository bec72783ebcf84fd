//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
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
	decisionOpen uint32 = iota
	decisionConfirmed
	decisionWithdrawn
)

// errWithdrawn is the dialer's error where the listener was first.
var errWithdrawn = fmt.Errorf("the listener gave the connection up before it was confirmed: %w", verbs.ErrTryAgain)

// withdraw gives up whoever has not confirmed yet, and reports whether nobody has.
func (in *inbox) withdraw() bool {
	atomic.CompareAndSwapUint32(in.decision, decisionOpen, decisionWithdrawn)
	return atomic.LoadUint32(in.decision) != decisionConfirmed
}

// confirm is the dialer's side of it.
func (o *outbox) confirm() error {
	if atomic.CompareAndSwapUint32(o.decision, decisionOpen, decisionConfirmed) {
		return nil
	}
	if d := atomic.LoadUint32(o.decision); d != decisionWithdrawn {
		return fmt.Errorf("%w: connection that somebody else has confirmed, %d", verbs.ErrProtocol, d)
	}
	return errWithdrawn
}

// withdraw gives the dialer up, and reports whether that is decided: otherwise it
// has confirmed. A QP that has ended is given up.
func (q *qp) withdraw() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.in == nil || q.in.withdraw()
}

// confirm decides that the connection stands.
func (q *qp) confirm() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.peer == nil {
		return errGoneAtOnce
	}
	return q.peer.out.confirm()
}

// errGoneAtOnce is that of a listener that hung up when it had answered.
var errGoneAtOnce = errors.New("the listener hung up before the connection was confirmed")

var _ verbs.Withdrawer = (*cmID)(nil)

// Withdraw implements verbs.Withdrawer.
func (id *cmID) Withdraw() bool {
	id.mu.Lock()
	state, qp := id.state, id.qp
	id.mu.Unlock()
	switch {
	case state == cmConnected || state == cmDisconnected:
		return false
	case state != cmAccepting || qp == nil:
		return true
	case qp.withdraw():
		id.fail(cmAccepting, nil)
		return true
	}
	id.stands(true)
	return false
}
