package rdmanet

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
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
	// Locking: a call takes life's lock of its direction, then keepAlive's, then rx, then
	// tx; never the other way round. rx guards what arrives, tx what is posted; both are
	// held for short, bounded times only, never while waiting.

	life    lifecycle
	ep      *endpoint
	network string
	laddr   *net.TCPAddr
	raddr   *net.TCPAddr

	term termination

	dl       sync.Mutex // guards the deadlines of ep.channel
	deadline [2]atomic.Int64
	waiter   [2]waiter
	busyPoll atomic.Int64 // of SetBusyPoll
	sums     *checksums   // nil without checksums
	pace     pacer        // guarded by the read lock

	rx       sync.Mutex
	recv     *ring.Receiver
	reported uint64        // bytes consumed, as the peer was last told
	reaped   uint32        // receives that wait to be posted again
	depth    uint32        // how many there are
	lent     uint32        // unread bytes that a call is copying, or has given out
	wantGrow bool          // the peer filled the ring; a larger one would help
	credited bool          // the peer gave room, of which what waits for some is to be told
	deaf     bool          // nothing that arrives is looked at any more
	busy     atomic.Bool   // progress was cut short: poll again before sleeping; read without rx
	statuses atomic.Uint32 // completion statuses that countStatus has counted; no lock guards it
	wc       [2]verbs.WC   // enough for a conversation; a stream is lent more
	rxStats  rxStats

	// What is seldom used lies between what readers and what writers write, which may
	// run on different processors: here at least 128 bytes.
	keepAlive keepAlive
	entry     entry         // in the registry of connections
	torn      chan struct{} // closed when the verbs objects are destroyed
	linger    atomic.Int64  // seconds; below 0 is the default

	tx        sync.Mutex
	pending   ring.Kind     // FIN, Close or Reset that waits for a slot; 0 if none
	wantBlock bool          // the writer waits for a block, not only for room
	rescued   atomic.Uint32 // sleepers that rescue woke; no lock guards it
	send      *ring.Sender
	sq        sendQueue
	chunk     int // largest data message
	blocks    sendBlocks
	gathered  *gathered       // nil until something is
	reserved  *sendBlock      // from Reserve to Commit; guarded by the write lock
	wr        [1]verbs.SendWR // of most messages; see requests
	control   [ring.KeyedCreditLen]byte
	txStats   txStats
}

type rxStats struct {
	messages, doorbells, creditsReceived, copied, placed, grown uint64
	framing, corrupt                                            uint64 // of checksums
}

type txStats struct {
	bytes, messages, doorbells, creditsSent, keepAlives, stalls, copied, placed uint64
	stallTime                                                                   time.Duration
}

func (c *Conn) opError(op string, err error) error {
	return opError(op, c.network, c.laddr, c.raddr, err)
}

// LocalAddr returns the local address, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.laddr }

// RemoteAddr returns the peer's address, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.raddr }

// Device returns the name of the RDMA device that carries the connection.
func (c *Conn) Device() string { return c.ep.device }

// Stats returns what the connection counted so far. It may be called at any
// time, also after Close.
func (c *Conn) Stats() ConnStats {
	c.rx.Lock()
	r, rcvd, rbuf := c.rxStats, c.recv.ConsumedBytes(), c.recv.Size()
	c.rx.Unlock()
	c.tx.Lock()
	t, wbuf, gathered := c.txStats, c.send.Size(), uint64(c.gatheredBytes())
	c.tx.Unlock()
	s := ConnStats{
		BytesRead: rcvd - r.framing, BytesWritten: t.bytes + gathered,
		MessagesSent: t.messages, MessagesReceived: r.messages,
		DoorbellsSent: t.doorbells, DoorbellsReceived: r.doorbells,
		CreditsSent: t.creditsSent, KeepAlivesSent: t.keepAlives, CreditsReceived: r.creditsReceived,
		CreditStalls: t.stalls, CreditStallTime: t.stallTime,
		BytesCopied: r.copied + t.copied, BytesPlaced: r.placed + t.placed,
		RingsGrown: r.grown, RescuedWakeups: uint64(c.rescued.Load()), ChecksumErrors: r.corrupt, ReadBuffer: int(rbuf), WriteBuffer: int(wbuf),
	}
	for i := range c.waiter {
		s.Spins += c.waiter[i].spins.Load()
		s.Parks += c.waiter[i].parks.Load()
	}
	if q, ok := c.ep.qp.(verbs.QPStatter); ok {
		d := q.QPStats()
		s.WakeupsSent, s.WakeupsSuppressed = d.WakeupsSent, d.WakeupsSuppressed
	}
	return s
}
