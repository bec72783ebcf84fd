// Package latency records durations without allocating, for the benchmarks and
// the examples: both time every message, and neither may disturb what it times.
//
// It is kept by hand: hdrhistogram-go, of which a fixed scale is all that is needed here, would
// have the module that users import require gonum.
package latency

import (
	"math"
	"math/bits"
	"time"
)

// A power of two is cut into 64 equal buckets, so a quantile is off by less than
// one part in 64; durations below 128 ns have a bucket each.
const (
	subBits = 6
	sub     = 1 << subBits
	// maxBits bounds what is told apart: 2^42 ns is 73 minutes.
	maxBits = 42
	buckets = (maxBits-subBits)*sub + sub
)

// Histogram counts durations. The zero value is empty and ready for use. It is
// not safe for concurrent use.
type Histogram struct {
	counts [buckets]uint64
	n      uint64
	sum    time.Duration
	max    time.Duration
}

// Record adds one duration. A negative one counts as zero.
func (h *Histogram) Record(d time.Duration) {
	if d < 0 {
		d = 0
	}
	h.counts[bucket(uint64(d))]++
	h.n++
	h.sum += d
	if d > h.max {
		h.max = d
	}
}

// Merge adds all that other has recorded.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.n += other.n
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

// Reset empties the histogram.
func (h *Histogram) Reset() { *h = Histogram{} }

// Count is the number of durations recorded.
func (h *Histogram) Count() uint64 { return h.n }

// Sum is the total of all durations recorded.
func (h *Histogram) Sum() time.Duration { return h.sum }

// Max is the longest duration recorded, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that a share q, from 0 to 1, of those recorded
// did not exceed. It is 0 when nothing was recorded.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(h.n)))
	rank = min(max(rank, 1), h.n)
	var seen uint64
	for i, c := range h.counts {
		seen += c
		if seen >= rank {
			return min(time.Duration(middle(i)), h.max)
		}
	}
	return h.max
}

func bucket(v uint64) int {
	shift := max(bits.Len64(v)-subBits-1, 0)
	return min(shift<<subBits+int(v>>shift), buckets-1)
}

// middle is the value in the middle of a bucket: the inverse of bucket.
func middle(i int) uint64 {
	if i < 2*sub {
		return uint64(i)
	}
	shift := i>>subBits - 1
	low := uint64(i-shift<<subBits) << shift
	return low + 1<<shift/2
}
