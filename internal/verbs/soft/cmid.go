//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/event"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// The connection manager: cmid.go is the id and its life, cmbind.go how it gets
// its addresses, cmlisten.go and cmhalfopen.go a listener and its half-open dialers,
// cmdial.go and cmaccept.go the two sides of the exchange in control/messages.go, cmlink.go
// what follows it.

// cmState is where a cmID stands (rdma_cm's enum rdma_cm_state).
type cmState uint8

const (
	cmIdle cmState = iota
	cmBound
	cmListening
	cmAddrResolved
	cmRouteResolved
	cmConnecting   // REQ is on its way, or REP was received
	cmRequested    // REQ was received and waits for Accept or Reject
	cmAccepting    // REP was sent and waits for RTU
	cmConnected    // data flows
	cmDisconnected // it did
	cmFailed       // it never will
	cmClosed
)

var cmStateNames = [...]string{
	"idle", "bound", "listening", "address resolved", "route resolved", "connecting",
	"requested", "accepting", "connected", "disconnected", "failed", "closed",
}

func (s cmState) String() string { return cmStateNames[s] }

// cmID is driver.CMID.
//
// mu is never held while the sink runs, while a QP is called, or while the peer
// is waited for. The goroutines of an id, one that dials or one per half-open dialer of a
// listener, and the link of its QP report through the methods that lock mu and
// look at the state; after Close they find cmClosed and undo what they hold.
type cmID struct {
	dev    *device // its name is the name space of addresses
	events event.Queue

	mu     sync.Mutex
	state  cmState
	hungUp bool // the link of a dialer has ended before its goroutine has told that the connection stands
	rtuDue bool // an accepted id's connection stands, and the RTU that says so has yet to be read

	done      chan struct{} // closed by Close
	opts      driver.CMOptions
	ctx       verbs.Context
	qp        *qp
	claim     *portClaim // of the local address
	companion *os.File   // goes with the address where that is shared, or nil
	local     netip.AddrPort
	remote    netip.AddrPort

	hangup error // with hungUp: why, nil for in good order

	// sock is the connection to the peer. From attach on the QP owns it; closing it once more is
	// harmless.
	sock *control.Socket

	listen  *listener        // of a listening id; of an accepted one its parent
	request *control.ConnMsg // of an accepted id until it is answered
	rtuWait *runtimer.Timer  // of an accepted id while it waits for RTU
}

// CreateID makes an id on the named device; "" is the usual one.
func (softDriver) CreateID(device string, sink driver.CMSink) (driver.CMID, error) {
	dev, err := findDevice(device)
	if err != nil {
		return nil, err
	}
	if sink == nil {
		return nil, fmt.Errorf("no sink for the events: %w", verbs.ErrInvalid)
	}
	return newID(dev, sink), nil
}

// newID makes an idle id.
func newID(dev *device, sink driver.CMSink) *cmID {
	id := &cmID{dev: dev, done: make(chan struct{})}
	id.events.Init(sink)
	return id
}

func (id *cmID) SetSink(sink driver.CMSink) { id.events.SetSink(sink) }

func (id *cmID) SetOptions(opts driver.CMOptions) error {
	switch {
	case opts.AckTimeout > 31:
		return fmt.Errorf("AckTimeout %d is more than 31: %w", opts.AckTimeout, verbs.ErrInvalid)
	case opts.HandshakeTimeout < 0:
		return fmt.Errorf("HandshakeTimeout %v is negative: %w", opts.HandshakeTimeout, verbs.ErrInvalid)
	case opts.MaxHalfOpen < 0:
		return fmt.Errorf("MaxHalfOpen %d is negative: %w", opts.MaxHalfOpen, verbs.ErrInvalid)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("SetOptions", cmIdle); err != nil {
		return err
	}
	id.opts = opts
	return nil
}

// expect fails unless the id is in one of the states. Called with mu held.
func (id *cmID) expect(call string, states ...cmState) error {
	switch {
	case slices.Contains(states, id.state):
		return nil
	case id.state == cmClosed:
		return fmt.Errorf("%s: %w", call, verbs.ErrClosed)
	}
	return fmt.Errorf("%s on an id that is %v: %w", call, id.state, verbs.ErrState)
}

func (id *cmID) Verbs() verbs.Context {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.ctx
}

func (id *cmID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return displayedPort(id.local)
}

func (id *cmID) RemoteAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return displayedPort(id.remote)
}

func displayedPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(displayed(a.Addr()), a.Port())
}

// Close destroys the id. Waiting for a running sink comes last, so that the sink
// finds everything closed.
func (id *cmID) Close() error {
	id.mu.Lock()
	was := id.state
	if was == cmClosed {
		id.mu.Unlock()
		id.events.Close() // the first Close may still be waiting for it
		return verbs.ErrClosed
	}
	id.state = cmClosed
	close(id.done)
	qp, sock, listen, claim, companion := id.qp, id.sock, id.listen, id.claim, id.companion
	id.qp, id.request, id.claim, id.companion = nil, nil, nil, nil
	id.confirmed()
	id.mu.Unlock()

	switch was {
	case cmListening:
		listen.close(claim.shared)
	case cmConnecting:
		sock.Close()
	case cmRequested:
		refuse(sock, driver.RejectConsumer, nil)
		listen.answered()
	case cmAccepting, cmConnected:
		qp.disconnect()
	}
	if claim != nil {
		if was != cmListening && claim.fd < 0 && !claim.ephemeral {
			leave(id.dev.name, claim.addr.Port()) // whoever reads the connection's socket lets go of it
		}
		claim.release()
	}
	if companion != nil {
		companion.Close()
	}
	id.events.Close()
	return nil
}

// confirmed ends the wait for RTU. Called with mu held.
func (id *cmID) confirmed() {
	if id.rtuWait != nil {
		id.rtuWait.Stop()
		id.rtuWait = nil
	}
}
