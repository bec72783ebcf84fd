//go:build linux && (amd64 || arm64)

package shm

import (
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestCreditWraps(t *testing.T) {
	in, out := openBoth(t, 4)
	out.Next = 1<<32 - 2
	*in.Posted = 1<<32 - 2
	n, err := out.Ready()
	require.NoError(t, err)
	require.Zero(t, n)
	*in.Posted += 4
	n, err = out.Ready()
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
	*in.Posted++
	_, err = out.Ready()
	require.ErrorIs(t, err, verbs.ErrProtocol)
	*in.Posted = 1<<32 - 3
	_, err = out.Ready()
	require.ErrorIs(t, err, verbs.ErrProtocol, "fewer than before")
}

func TestTakeWake(t *testing.T) {
	in, out := openBoth(t, 4)
	for _, c := range []struct {
		armed     uint32
		solicited bool
		wake      bool
		left      uint32
	}{
		{ArmedNot, true, false, ArmedNot},
		{ArmedAny, false, true, ArmedNot},
		{ArmedAny, true, true, ArmedNot},
		{ArmedSolicited, false, false, ArmedSolicited},
		{ArmedSolicited, true, true, ArmedNot},
		{77, true, false, 77},
	} {
		*in.Armed = c.armed
		require.Equal(t, c.wake, out.TakeWake(c.solicited), "%+v", c)
		require.Equal(t, c.left, *in.Armed)
	}
}

// TestPublishAfterTheFence: who has seen that no fence is needed, and publishes when the receiver has called for
// its fence and arms once more, wakes it, or the receiver finds the entry.
func TestPublishAfterTheFence(t *testing.T) {
	in, out := openBoth(t, 4)
	const over = math.MaxInt64
	var begun, published atomic.Int64
	wakes := false // what the sender was told
	go func() {
		for i := int64(1); ; i++ {
			for begun.Load() < i {
				runtime.Gosched()
			}
			if begun.Load() == over {
				return
			}
			clear(lines[:]) // the publication is late where the processor has to fetch the lines before it
			out.publish((*uint64)(out.entries), uint64(i), true)
			wakes = out.TakeWake(true)
			published.Store(i)
		}
	}()
	defer begun.Store(over)
	first := (*uint64)(in.entries)
	end := time.Now().Add(time.Second)
	i := int64(1)
	for ; i <= 1000 || time.Now().Before(end); i++ {
		atomic.StoreUint32(in.Armed, ArmedNot)
		for j := range lines {
			lines[j] = byte(i)
		}
		begun.Store(i)
		for range i % 500 { // meets the publication at ever different moments
			_ = begun.Load()
		}
		atomic.SwapUint32(in.Armed, ArmedAny)
		found := atomic.LoadUint64(first) == uint64(i)
		for published.Load() < i {
			runtime.Gosched()
		}
		require.True(t, found || wakes, "entry %d was missed", i)
	}
	t.Logf("%d entries", i-1)
}

var lines [8 * cacheline.Size]byte
