//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestKernelObjectsOfAllThreads: what looks for leaks finds the objects that any thread of
// the process has made, and those of threads that have ended.
func TestKernelObjectsOfAllThreads(t *testing.T) {
	ctx := openDevice(t)
	before, err := verbstest.KernelObjects()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("RDMANET_REQUIRE_RDMA") == "" {
		t.Skipf("objects are counted by the rdma tool: apt-get install iproute2\n%v", err)
	}
	require.NoError(t, err)
	const threads = 4
	pds := make(chan verbs.PD, 2*threads)
	end := make(chan struct{})
	var made, ended sync.WaitGroup
	for i := range 2 * threads {
		made.Add(1)
		ended.Go(func() {
			runtime.LockOSThread() // and ends it
			pd, err := ctx.AllocPD()
			assert.NoError(t, err)
			pds <- pd
			made.Done()
			if i%2 == 0 {
				<-end
			}
		})
	}
	made.Wait()
	now, err := verbstest.KernelObjects()
	require.NoError(t, err)
	require.Equal(t, before["pd"]+2*threads, now["pd"])
	close(end)
	ended.Wait()
	for range 2 * threads {
		pd := <-pds
		require.NotNil(t, pd)
		require.NoError(t, pd.Close())
	}
	now, err = verbstest.KernelObjects()
	require.NoError(t, err)
	require.Equal(t, before["pd"], now["pd"])
}
