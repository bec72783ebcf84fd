package rdmanet

import (
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// What a call needs for as long as it runs is no part of a Conn, of which there may be
// many that do nothing.

// completions are what one poll of a CQ brings at most.
type completions [16]verbs.WC

var freeCompletions = sync.Pool{New: func() any { return new(completions) }}

func takeCompletions() *completions { return freeCompletions.Get().(*completions) }

func (wcs *completions) giveBack() { freeCompletions.Put(wcs) }

// maxMessageWRs is the most requests one message takes: the header of a frame, two pieces
// where the ring wraps, and the SEND of a doorbell where it cannot ride on the last of
// them.
const maxMessageWRs = 4

// requests are those of a message that is not a single WRITE of inline data.
type requests struct {
	wrs  [maxMessageWRs]verbs.SendWR
	sge  [2]verbs.SGE
	bell [sentLen]byte
}

var freeRequests = sync.Pool{New: func() any { return new(requests) }}

func takeRequests() *requests { return freeRequests.Get().(*requests) }

func (r *requests) giveBack() { freeRequests.Put(r) }
