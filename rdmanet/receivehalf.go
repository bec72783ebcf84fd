package rdmanet

import (
	"sync"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// A receiveHalf is the way from the peer to the application: the receive ring, what arrives
// in it, and the credits owed for what was read.
type receiveHalf struct {
	s  *stream
	ep *endpoint

	waiter waiter
	pace   pacer       // guarded by the read lock of the Conn's lifecycle
	busy   atomic.Bool // progress was cut short: poll again before sleeping; set under mu

	// mu guards the receive CQ, the posting of receives, what this half has of the endpoint
	// (receive ring, its keys, what is granted), and all below. It is held for one batch of
	// completions or a copy of a few KiB, and never while waiting. send.mu may be taken
	// under it.
	mu       sync.Mutex
	ring     *ring.Receiver
	reported uint64       // bytes consumed, as the peer was last told
	reaped   uint32       // receives that wait to be posted again
	depth    uint32       // how many there are
	borrowed uint32       // unread bytes that a call is copying, or has given out
	wantGrow bool         // the peer filled the ring; a larger one would help
	credited bool         // the peer gave room, of which what waits for some is to be told
	done     bool         // nothing that arrives is looked at any more
	wc       [2]verbs.WC  // enough for a conversation; a stream borrows more
	sums     *receiveSums // nil without checksums
	stats    receiveStats
}

type receiveStats struct {
	messages, doorbells, creditsReceived, copied, placed, grown uint64
	framing, corrupt                                            uint64 // of checksums
}
