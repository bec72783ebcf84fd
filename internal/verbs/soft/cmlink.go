//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// conclude ends a dial with ev; false means that nobody wants to know any more.
// The event must be delivered by the caller.
func (id *cmID) conclude(ev *driver.CMEvent) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != cmConnecting {
		return false
	}
	id.events.Push(*ev)
	switch {
	case ev.Type != driver.CMEstablished:
		id.state = cmFailed
	case id.hungUp: // the peer accepted, and has closed since
		id.disconnected(id.hangup)
	default:
		id.state = cmConnected
	}
	return true
}

// fail moves an id that is accepting to failed, with an event if there is one to
// give, and reports whether it did. The event must be delivered by the caller.
func (id *cmID) fail(ev *driver.CMEvent) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != cmAccepting {
		return false
	}
	id.state = cmFailed
	id.confirmed()
	if ev != nil {
		id.events.Push(*ev)
	}
	return true
}

// onMessage takes the peer's messages from the QP's link, on its goroutine. RTU is
// the only one due: the end of a connection is the link's own matter.
func (id *cmID) onMessage(msg []byte) error {
	if err := control.CheckSignal(msg, control.MsgRTU); err != nil {
		return err
	}
	news := id.stands(false)
	id.mu.Lock()
	qp, due := id.qp, id.rtuDue
	id.rtuDue = false
	id.mu.Unlock()
	if !news && !due {
		return control.BadMessage("RTU out of turn")
	}
	if qp != nil { // nil: closed since
		qp.retry() // what was posted before the dialer was up
	}
	return nil
}

// end tells the application that the peer ended the connection; err is nil if it did so in good
// order. It is for the QP's link, on its goroutine.
func (id *cmID) end(err error) {
	id.mu.Lock()
	switch id.state {
	case cmConnecting:
		// The dialer's goroutine is about to tell how the dial ended.
		id.hungUp, id.hangup = true, err
	case cmAccepting:
		if err == nil {
			err = verbs.ErrPeerGone
		}
		id.state = cmFailed
		id.confirmed()
		err = fmt.Errorf("the dialer left before the connection stood: %w", err)
		id.events.Push(driver.CMEvent{Type: driver.CMConnectError, ID: id, Err: err})
	case cmConnected:
		id.disconnected(err)
	}
	id.mu.Unlock()
	id.events.Deliver()
}

// disconnected is called with mu held. Nothing of a connection lingers in a
// network, so that the time of waiting is over at once.
func (id *cmID) disconnected(err error) {
	id.state = cmDisconnected
	id.events.Push(driver.CMEvent{Type: driver.CMDisconnected, ID: id, Err: err})
	id.events.Push(driver.CMEvent{Type: driver.CMTimewaitExit, ID: id})
}

// Disconnect is nothing new to an id whose peer has disconnected.
func (id *cmID) Disconnect() error {
	id.mu.Lock()
	if err := id.expect("Disconnect", cmConnected, cmAccepting, cmDisconnected); err != nil {
		id.mu.Unlock()
		return err
	}
	if id.state == cmDisconnected {
		id.mu.Unlock()
		return nil
	}
	id.confirmed()
	id.disconnected(nil)
	qp := id.qp
	id.mu.Unlock()
	qp.disconnect()
	id.events.Deliver()
	return nil
}

var _ driver.PeerChecker = (*cmID)(nil)

// PeerGone implements driver.PeerChecker. The kernel hangs up for a process as it ends, before anybody can
// wait for that.
func (id *cmID) PeerGone() bool {
	id.mu.Lock()
	sock := id.sock
	id.mu.Unlock()
	return sock != nil && sock.HungUp()
}
