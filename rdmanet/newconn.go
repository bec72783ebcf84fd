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
	c := new(Conn)
	c.entry = &c.place
	c.place = entry{
		via: &c.stream, network: idOf(network), torn: make(chan struct{}),
		laddr: net.TCPAddrFromAddrPort(laddr), raddr: net.TCPAddrFromAddrPort(raddr),
	}
	st, r, w := &c.stream, &c.recv, &c.send
	st.owner, st.ep = c, e
	r.s, r.ep, r.depth = st, e, s.depth
	w.s, w.ep, w.chunk = st, e, chunkFor(peer.Size)
	var err error
	if r.ring, err = ring.NewReceiver(e.firstRing, e.maxRing, s.depth); err != nil {
		return nil, err
	}
	if w.ring, err = ring.NewSender(peer.Size, peer.MaxSize, peer.Depth); err != nil {
		return nil, err
	}
	w.sq = newSendQueue(e.qp, e.sendCQ, sendDepth)
	w.sq.confirm = e.confirm
	if e.checksum {
		r.sums, w.sums = new(receiveSums), new(sendSums)
	}
	r.waiter = waiter{arm: func() bool { return st.arm(r) }, budget: newSpinBudget()}
	w.waiter = waiter{arm: func() bool { return st.arm(w) }, budget: newSpinBudget()}
	c.linger.Store(-1)
	c.keepAlive.persist = &defaultKeepAlive
	return c, nil
}

// event takes in what the connection manager says of a connected id. It runs on
// the driver's goroutine and must not wait.
func (c *Conn) event(ev *cm.Event) {
	switch ev.Type {
	case cm.Disconnected:
		c.term.disconnected()
		if c.term.closed() {
			c.endWait(dirWrite) // ends a drain
			return
		}
		// Moves the QP to ERR where the device has not: what is posted comes back
		// flushed, behind all that had arrived, and wakes who waits.
		c.ep.abort()
	case cm.DeviceRemoval:
		c.fail(syscall.ENODEV, ev.Err)
	}
}
