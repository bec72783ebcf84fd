package rdmanet

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// A sendHalf is the way from the application to the peer: what is known of the peer's ring,
// the send queue, and the memory that is sent from.
type sendHalf struct {
	s  *stream
	ep *endpoint

	waiter   waiter
	reserved *sendBlock // from Reserve to Commit; guarded by the write lock of the Conn's lifecycle

	// mu guards the send CQ, what is posted, the key of the peer's ring, and all below. It is
	// held for one message, never while waiting, and recv.mu is not taken under it.
	mu        sync.Mutex
	pending   ring.Kind // FIN, Close or Reset that waits for a slot; 0 if none
	wantBlock bool      // the writer waits for a block, not only for room
	chunk     uint32    // largest data message
	ring      *ring.Sender
	sq        sendQueue
	blocks    sendBlocks
	gathered  *gathered       // nil until something is
	sums      *sendSums       // nil without checksums
	wr        [1]verbs.SendWR // of most messages; see requests
	control   [ring.KeyedCreditLen]byte
	stats     sendStats
	stalled   atomic.Int64 // since when a Write waits, on the scale of epoch, or 0; cleared under mu
}

type sendStats struct {
	bytes, messages, doorbells, creditsSent, keepAlives, stalls, copied, placed uint64
	stallTime                                                                   time.Duration
}

// stall counts a Write that waits, or has waited.
func (s *sendStats) stall(d time.Duration) {
	s.stalls++
	s.stallTime += d
}

// statsNow counts the Write that waits now, as far as it has. Called with mu held.
func (w *sendHalf) statsNow() sendStats {
	s := w.stats
	if since := w.stalled.Load(); since != 0 {
		s.stall(time.Since(epoch.Add(time.Duration(since))))
	}
	return s
}
