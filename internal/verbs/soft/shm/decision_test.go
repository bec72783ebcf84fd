//go:build linux && (amd64 || arm64)

package shm

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecidedOnce: of a confirmation and a withdrawal at the same time one comes second.
func TestDecidedOnce(t *testing.T) {
	in, out := openBoth(t, 4)
	for range 2000 {
		atomic.StoreUint32(in.Decision, DecisionOpen)
		var both sync.WaitGroup
		var err error
		var withdrawn bool
		both.Go(func() { err = out.Confirm() })
		both.Go(func() { withdrawn = in.Withdraw() })
		both.Wait()
		require.Equal(t, withdrawn, err != nil)
	}
}
