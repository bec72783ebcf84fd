package latency

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBucketsCoverEveryDurationInOrder(t *testing.T) {
	prev := -1
	for v := uint64(0); v < 1<<20; v++ {
		i := bucket(v)
		if i != prev && i != prev+1 { // require would take its time for each
			require.Failf(t, "a gap", "bucket %d follows bucket %d at value %d", i, prev, v)
		}
		prev = i
	}
	for i := range buckets {
		require.Equal(t, i, bucket(middle(i)), "the middle of bucket %d lies in it", i)
	}
	assert.Equal(t, buckets-1, bucket(1<<63), "what is too long for the scale lands in the last bucket")
}

func TestQuantileAgreesWithSortedValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	var all []time.Duration
	var sum time.Duration
	for range 10_000 {
		d := time.Duration(1) << rng.IntN(30)
		d += time.Duration(rng.Int64N(int64(d)))
		h.Record(d)
		all = append(all, d)
		sum += d
	}
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
		want := all[max(int(q*float64(len(all)))-1, 0)]
		assert.InEpsilon(t, float64(want), float64(h.Quantile(q)), 1.0/sub, "quantile %v", q)
	}
	assert.Equal(t, all[len(all)-1], h.Max())
	assert.Equal(t, sum, h.Sum())
	assert.EqualValues(t, len(all), h.Count())
}

func TestEdges(t *testing.T) {
	var h Histogram
	assert.Zero(t, h.Quantile(0.5), "empty")
	h.Record(-time.Second)
	assert.Zero(t, h.Quantile(1), "a clock that went backwards")
	h.Reset()
	h.Record(100 * time.Hour)
	assert.Equal(t, 100*time.Hour, h.Max())
	assert.LessOrEqual(t, h.Quantile(1), h.Max())
	h.Reset()
	assert.Zero(t, h.Count())
}

func TestRecordAllocatesNothing(t *testing.T) {
	h := new(Histogram)
	assert.Zero(t, testing.AllocsPerRun(100, func() { h.Record(123 * time.Microsecond) }))
}

func TestMerge(t *testing.T) {
	var one, other, both Histogram
	for i := range 1000 {
		d := time.Duration(i*i) * time.Nanosecond
		both.Record(d)
		if i%3 == 0 {
			one.Record(d)
		} else {
			other.Record(d)
		}
	}
	one.Merge(&other)
	assert.Equal(t, both, one)
	one.Merge(new(Histogram))
	assert.Equal(t, both, one)
}
