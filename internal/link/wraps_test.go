package link

import (
	"bytes"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A firstCompletesCQ tells that the first request behind base has completed as soon as it was posted, and keeps
// the others' completions to itself until it is let go. The lane's lock is held when it is polled.
type firstCompletesCQ struct {
	verbs.CQ
	e     *laneEnd
	base  uint64
	told  bool
	letGo *atomic.Bool
}

func (q *firstCompletesCQ) Poll(wcs []verbs.WC) (int, error) {
	if q.letGo.Load() {
		return q.CQ.Poll(wcs)
	}
	if q.told || q.e.sq.posted <= q.base || q.e.sq.signaled != q.e.sq.posted {
		return 0, nil
	}
	q.told = true
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if n, err := q.CQ.Poll(wcs[:1]); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// TestWrapBesideCompletions: what is staged for two messages, since the ring wraps, stays until the second has
// completed, though the first completes before the second is posted.
func TestWrapBesideCompletions(t *testing.T) {
	const ring = 4 << 10
	client, server := newBed(t, Config{CM: asynchronous(), FirstRing: ring, MaxRing: ring, Idle: patience}).pair()
	want := bytes.Repeat([]byte("wraps "), 200)
	for range 7 { // up to 600 bytes before the end of the ring
		_, err := client.Write(make([]byte, (ring-600)/7))
		require.NoError(t, err)
		_, err = io.ReadFull(server, make([]byte, (ring-600)/7))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return client.Status().Writable >= len(want) }, patience, time.Millisecond)

	e, letGo := client.e, new(atomic.Bool)
	taken := func() []*staged { // that are not known to be sent; mu is held
		e.reap()
		return slices.Clone(e.staging.entries)
	}
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(taken()) > 0 {
			return false
		}
		e.sq.posted += sendDepth/2 + 1 // as many small messages: it looks at what has completed before each request
		e.sq.signaled = e.sq.posted
		e.sq.cq = &firstCompletesCQ{CQ: e.sq.cq, e: e, base: e.sq.posted, letGo: letGo}
		return true
	}, patience, time.Millisecond)

	sent := client.Status().Sent
	_, err := client.Write(want)
	require.NoError(t, err)
	require.Equal(t, sent+2, client.Status().Sent)
	e.mu.Lock()
	posted, completed, left := e.sq.posted, e.sq.completed, taken()
	letGo.Store(true)
	e.mu.Unlock()
	require.Equal(t, posted-1, completed, "the first has completed, and the second is not known to have")
	require.Len(t, left, 1)
	require.Equal(t, posted, left[0].last)

	got := make([]byte, len(want))
	_, err = io.ReadFull(server, got)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(taken()) == 0
	}, patience, time.Millisecond)
}
