package rdmanet

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
)

// newConn makes the Conn of an endpoint that met its peer. On an error the endpoint
// is the caller's.
func newConn(e *endpoint, network string, laddr, raddr netip.AddrPort, s sizes, peer cm.Handshake) (*Conn, error) {
	c := &Conn{
		ep: e, network: network,
		laddr: net.TCPAddrFromAddrPort(laddr), raddr: net.TCPAddrFromAddrPort(raddr),
		sq: newSendQueue(e.qp, e.sendCQ, sendDepth), chunk: chunkFor(peer.Size), depth: s.depth,
		torn: make(chan struct{}),
	}
	var err error
	if c.recv, err = ring.NewReceiver(e.firstRing, e.maxRing, s.depth); err != nil {
		return nil, err
	}
	if c.send, err = ring.NewSender(peer.Size, peer.MaxSize, peer.Depth); err != nil {
		return nil, err
	}
	c.sq.confirm = e.confirm
	if e.checksum {
		c.sums = new(checksums)
	}
	c.linger.Store(-1)
	c.keepAlive.persist = defaultKeepAlive
	c.waiter[dirRead] = waiter{try: c.tryRead, arm: c.armRead, budget: newSpinBudget()}
	c.waiter[dirWrite] = waiter{try: c.tryWrite, arm: c.armWrite, budget: newSpinBudget()}
	return c, nil
}

// event takes in what the connection manager says of a connected id. It runs on
// the driver's goroutine and must not wait.
func (c *Conn) event(ev *cm.Event) {
	switch ev.Type {
	case cm.Disconnected:
		c.term.disconnected()
		if c.term.closed() {
			c.wake(dirWrite) // ends a drain
			return
		}
		// Moves the QP to ERR where the device has not: what is posted comes back
		// flushed, behind all that had arrived, and wakes who waits.
		c.ep.abort()
	case cm.DeviceRemoval:
		c.fail(syscall.ENODEV, ev.Err)
	}
}
