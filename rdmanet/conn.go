package rdmanet

import (
	"io"
	"net"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

var (
	_ net.Conn      = (*Conn)(nil)
	_ io.ReaderFrom = (*Conn)(nil)
	_ io.WriterTo   = (*Conn)(nil)
)

// Conn is a connection whose bytes move by RDMA. It behaves as a *net.TCPConn
// does. All methods may be called concurrently; concurrent Reads are served one
// after the other, and so are concurrent Writes.
type Conn struct {
	// The order of locks: life's of a direction, keepAlive.mu, recv.mu, send.mu, and last
	// a waiter's. No lock but the first is ever held while waiting.

	life lifecycle
	*entry
	stream // unless something else carries it
}

func (c *Conn) opError(op string, err error) error {
	return opError(op, c.network.String(), c.laddr, c.raddr, err)
}

// LocalAddr returns the local address, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.laddr }

// RemoteAddr returns the peer's address, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.raddr }

// Device returns the name of the RDMA device that carries the connection.
func (c *Conn) Device() string { return c.via.deviceName() }

// Stats returns what the connection counted so far. It may be called at any
// time, also after Close.
func (c *Conn) Stats() ConnStats { return c.via.stats() }

func (s *stream) stats() ConnStats {
	s.recv.mu.Lock()
	r, rcvd, rbuf := s.recv.stats, s.recv.ring.ConsumedBytes(), s.recv.ring.Size()
	s.recv.mu.Unlock()
	s.send.mu.Lock()
	t, wbuf, gathered := s.send.statsNow(), s.send.ring.Size(), uint64(s.send.gatheredBytes())
	s.send.mu.Unlock()
	n := ConnStats{
		BytesRead: rcvd - r.framing, BytesWritten: t.bytes + gathered,
		MessagesSent: t.messages, MessagesReceived: r.messages,
		DoorbellsSent: t.doorbells, DoorbellsReceived: r.doorbells,
		CreditsSent: t.creditsSent, KeepAlivesSent: t.keepAlives, CreditsReceived: r.creditsReceived,
		CreditStalls: t.stalls, CreditStallTime: t.stallTime,
		BytesCopied: r.copied + t.copied, BytesPlaced: r.placed + t.placed,
		RingsGrown: r.grown, RescuedWakeups: uint64(s.rescued.Load()), ChecksumErrors: r.corrupt, ReadBuffer: int(rbuf), WriteBuffer: int(wbuf),
	}
	for d := dirRead; d <= dirWrite; d++ {
		n.Spins += s.waiter(d).spins.Load()
		n.Parks += s.waiter(d).parks.Load()
	}
	if q, ok := s.ep.qp.(verbs.QPStatter); ok {
		d := q.QPStats()
		n.WakeupsSent, n.WakeupsSuppressed = d.WakeupsSent, d.WakeupsSuppressed
	}
	return n
}
