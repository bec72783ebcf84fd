package link

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stagingOf is how much send memory the lane has.
func (e *laneEnd) stagingOf() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.staging.memory)
}

// stagingPair returns a pair on a lane whose send memory grows, and its dialer's end.
func stagingPair(t *testing.T, cfg Config) (client, server *Stream, e *laneEnd) {
	t.Helper()
	cfg.CM = asynchronous()
	b := newBed(t, cfg)
	client, server = b.pair()
	if e = client.e; e.p.synchronous {
		t.Skip("no send memory")
	}
	require.Equal(t, firstStaging, e.stagingOf())
	return client, server, e
}

// beginWrite begins to write p, and returns what Write returns.
func beginWrite(s *Stream, p []byte) <-chan error {
	written := make(chan error, 1)
	go func() {
		_, err := s.Write(p)
		written <- err
	}()
	return written
}

// TestStagingGrows: a Write that finds too little send memory has more made, from which all that comes then is
// sent, while what is in the former completes. What is not used goes back, and is made again.
func TestStagingGrows(t *testing.T) {
	client, server, e := stagingPair(t, Config{FirstRing: mostStaging, MaxRing: mostStaging, Shrink: 20 * time.Millisecond, Budget: budgetOf(1 << 30)})
	sent, got := make([]byte, 4*mostStaging), make([]byte, 4*mostStaging)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(sent)
	for range 3 {
		_, letGo := meterSends(e) // nothing completes
		written := beginWrite(client, sent)
		require.Eventually(t, func() bool { return e.stagingOf() == mostStaging }, patience, time.Millisecond, "a Write that waits has no more memory made")
		letGo()
		_, err := io.ReadFull(readerOnly{server}, got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(sent, got))
		within(t, "the Write", func() { require.NoError(t, <-written) })
		require.Eventually(t, func() bool { return e.stagingOf() == firstStaging && e.buffers.slab.Registered() == 0 }, patience, time.Millisecond,
			"what is not used does not go back")
	}
}

// TestStagingWithoutMemory: where there is no more memory a Write goes on with what there is. One that waits has
// more when there is some again.
func TestStagingWithoutMemory(t *testing.T) {
	budget := budgetOf(1 << 30)
	client, server, e := stagingPair(t, Config{FirstRing: mostStaging, MaxRing: mostStaging, Shrink: 20 * time.Millisecond, Budget: budget})
	p, got := make([]byte, 4*mostStaging), make([]byte, 4*mostStaging)
	refused := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.counts.refusals > 0
	}
	budget.SetLimit(0)
	_, letGo := meterSends(e)
	written := beginWrite(client, p)
	require.Eventually(t, refused, patience, time.Millisecond, "a Write that waits asks for no more memory")
	letGo()
	_, err := io.ReadFull(readerOnly{server}, got)
	require.NoError(t, err)
	within(t, "the Write", func() { require.NoError(t, <-written) })
	require.Equal(t, firstStaging, e.stagingOf())

	_, letGo = meterSends(e)
	written = beginWrite(client, p)
	budget.SetLimit(1 << 30)
	require.Eventually(t, func() bool { return e.stagingOf() == mostStaging }, patience, time.Millisecond, "there is memory, and it asks no more")
	letGo()
	_, err = io.ReadFull(readerOnly{server}, got)
	require.NoError(t, err)
	within(t, "the Write", func() { require.NoError(t, <-written) })
}
