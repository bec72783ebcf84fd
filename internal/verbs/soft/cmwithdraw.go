//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// withdraw gives the dialer up, and reports whether that is decided: otherwise it
// has confirmed. A QP that has ended is given up.
func (q *qp) withdraw() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.in == nil || q.in.Withdraw()
}

// confirm decides that the connection stands.
func (q *qp) confirm() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.peer == nil {
		return errGoneAtOnce
	}
	return q.peer.out.Confirm()
}

// errGoneAtOnce is that of a listener that hung up when it had answered.
var errGoneAtOnce = errors.New("the listener hung up before the connection was confirmed")

var _ driver.Withdrawer = (*cmID)(nil)

// Withdraw implements driver.Withdrawer.
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
		id.fail(nil)
		return true
	}
	id.stands(true)
	return false
}
