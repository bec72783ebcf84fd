//go:build linux && (amd64 || arm64)

package soft

import "unsafe"

const (
	cacheLine = 64
	// prefetchAhead is how far before its use memory of the peer is asked for: as
	// long as fetching it takes, and the messages of that time are small.
	prefetchAhead = 8 * cacheLine
	// maxPrefetch is the longest message for which that pays. Longer copies keep the
	// processor's own prefetcher busy.
	maxPrefetch = 8 * cacheLine
)

// prefetchWrite asks for the cache line at p, which the peer's processor has, to write
// to it soon. p may be anywhere: a line that cannot be had is not an error.
//
//go:noescape
func prefetchWrite(p unsafe.Pointer)

// prefetchBehind asks for the memory of the WRITEs that come next, if they follow the
// one to dst as closely as in a ring. A small message costs little but the wait for
// its cache lines to come over, and that can overlap with the messages before it.
func prefetchBehind(dst []byte) {
	if len(dst) > maxPrefetch {
		return
	}
	p := unsafe.Add(unsafe.Pointer(unsafe.SliceData(dst)), prefetchAhead)
	for n := len(dst); n > 0; n -= cacheLine {
		prefetchWrite(p)
		p = unsafe.Add(p, cacheLine)
	}
}
