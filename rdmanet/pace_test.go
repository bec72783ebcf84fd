package rdmanet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A pacedReader is a pacer and what it is told.
type pacedReader struct {
	pacer
	received, sent uint64
}

// find has n messages of size bytes arrive after some looks that found nothing.
func (r *pacedReader) find(misses, n, size int) {
	r.received += uint64(n)
	r.misses = 0
	for range misses {
		r.missed()
	}
	r.empty = true
	if r.found(r.received, n*size) {
		r.start(r.sent)
	}
}

// stream makes the reader one that paces.
func (r *pacedReader) stream(t *testing.T) {
	t.Helper()
	for range paceAfter {
		require.Zero(t, r.gap)
		r.find(1, 1, 64)
	}
	require.Equal(t, minGap, r.gap)
}

func manyProcs(t *testing.T, n int32) {
	old := procs.Load()
	procs.Store(n)
	t.Cleanup(func() { procs.Store(old) })
}

func TestPaceStream(t *testing.T) {
	manyProcs(t, 2)
	var r pacedReader
	r.stream(t)
	for want := 2 * minGap; want < maxGap; want *= 2 {
		r.find(0, fewMessages-1, 64)
		require.Equal(t, want, r.gap, "too few came together")
	}
	r.find(0, 2, 64)
	r.find(0, 2, 64)
	require.Equal(t, maxGap, r.gap)
	r.find(0, manyMessages, 64)
	require.Equal(t, maxGap, r.gap, "just right")
	r.find(0, manyMessages+1, 64)
	require.Equal(t, maxGap/2, r.gap)
	r.find(fewMisses+1, fewMessages, 64)
	require.Equal(t, maxGap/2, r.gap, "a writer that was held up goes on")
	r.find(0, 1, 64)
	require.Zero(t, r.gap, "one message needs no gap")
	r.stream(t)
}

// TestNoPace: what is no stream of small messages is looked for at once.
func TestNoPace(t *testing.T) {
	manyProcs(t, 2)
	for name, find := range map[string]func(*pacedReader){
		"an echo, by how long an answer takes": func(r *pacedReader) { r.find(fewMisses+1, 1, 64) },
		"an echo, by what was sent":            func(r *pacedReader) { r.sent++; r.find(1, 1, 64) },
		"long messages":                        func(r *pacedReader) { r.find(1, 1, maxPaced+1) },
	} {
		t.Run(name, func(t *testing.T) {
			var r pacedReader
			for range 10 * paceAfter {
				find(&r)
				require.Zero(t, r.gap)
			}
		})
	}
	t.Run("long messages later", func(t *testing.T) {
		var r pacedReader
		r.stream(t)
		r.find(0, 4, maxPaced+1)
		require.Zero(t, r.gap)
	})
	t.Run("one processor", func(t *testing.T) {
		manyProcs(t, 1)
		var r pacedReader
		for range 10 * paceAfter {
			r.find(0, 1, 64)
			require.Zero(t, r.gap)
		}
	})
}

func TestPause(t *testing.T) {
	p := pacer{gap: time.Millisecond}
	began := time.Now()
	p.pause()
	require.GreaterOrEqual(t, time.Since(began), p.gap)
}
