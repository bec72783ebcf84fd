//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"os"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestDeviceLostWhileOpened: the first event of a context may be that its device is lost, before whoever
// opens it has it. The race detector sees what is not set by then.
func TestDeviceLostWhileOpened(t *testing.T) {
	lib := fakeVerbs(t)
	lib.queryDevice = purego.NewCallback(func() uintptr { return 0 })
	lib.getAsyncEvent = failingCall(t, ^uintptr(0), syscall.EIO)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	c := &cMemory[cContext](t, 1)[0]
	c.asyncFD = int32(r.Fd())
	for range 200 {
		ctx, err := newContext(lib, &device{lib: lib, name: "none0", transport: verbs.TransportRoCE}, addressOf(c), nil)
		require.NoError(t, err)
		<-ctx.async.done
	}
}
