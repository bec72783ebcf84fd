package link

import (
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// fullBatches is a CQ that gives, as long as on says so, whole batches only: whoever polls it
// always finds that there may be more.
type fullBatches struct {
	verbs.CQ
	on *atomic.Bool
}

func (c fullBatches) Poll(wcs []verbs.WC) (n int, err error) {
	for empty := 0; n < len(wcs) && empty < 10_000; {
		k, err := c.CQ.Poll(wcs[n:])
		if n += k; err != nil || !c.on.Load() {
			return n, err
		}
		if k == 0 {
			empty++
			runtime.Gosched()
		}
	}
	return n, nil
}

// TestDeadlineUnderFlood: a Read keeps its deadline, and one that has its data returns, while
// a neighbour on the lane is sent so much that each poll finds a whole batch.
func TestDeadlineUnderFlood(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	loud, mouth := b.pair()
	e := client.e
	require.Same(t, e, loud.e)
	var on atomic.Bool
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.polling.role.Holder() != 0 { // somebody polls, or may
			return false
		}
		e.p.recvCQ = fullBatches{e.p.recvCQ, &on}
		return true
	}, patience, time.Millisecond)
	on.Store(true)
	done := make(chan error, 2)
	go func() {
		_, err := io.Copy(io.Discard, readerOnly{loud})
		done <- err
	}()
	go func() {
		var err error
		for err == nil && on.Load() {
			_, err = mouth.Write([]byte{1})
		}
		done <- err
	}()
	for range 5 {
		require.NoError(t, client.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		within(t, "a Read with a deadline", func() {
			_, err := client.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		})
		require.NoError(t, client.SetReadDeadline(time.Time{}))
		within(t, "an echo", func() {
			say(t, server, client)
			say(t, client, server)
		})
	}
	on.Store(false)
	require.NoError(t, <-done)
	require.NoError(t, mouth.Close())
	require.NoError(t, <-done)
}
