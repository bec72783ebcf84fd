//go:build linux && (amd64 || arm64)

package shm

import (
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
)

const (
	// prefetchAhead is how far before its use memory of the peer is asked for: as
	// long as fetching it takes, and the messages of that time are small.
	prefetchAhead = 8 * cacheline.Size
	// maxPrefetch is the longest message for which that pays. Longer copies keep the
	// processor's own prefetcher busy.
	maxPrefetch = 8 * cacheline.Size
)

// PrefetchBehind asks for the memory of the WRITEs that come next, if they follow the
// one to dst as closely as in a ring. A small message costs little but the wait for
// its cache lines to come over, and that can overlap with the messages before it.
func PrefetchBehind(dst []byte) {
	if len(dst) > maxPrefetch {
		return
	}
	cacheline.FetchToWrite(unsafe.Add(unsafe.Pointer(unsafe.SliceData(dst)), prefetchAhead), len(dst))
}
