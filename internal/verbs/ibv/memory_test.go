//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestMemoryKeptByItsMRs: memory that an MR covers is not unmapped, by whatever comes of the MR.
func TestMemoryKeptByItsMRs(t *testing.T) {
	lib := fakeVerbs(t)
	handles := cMemory[cMR](t, 1)
	registers, bound := true, false
	refuses := failingCall(t, 0, syscall.ENOMEM)
	works := purego.NewCallback(func() uintptr { return addressOf(&handles[0]) })
	lib.deregMR = purego.NewCallback(func() uintptr {
		if bound {
			return uintptr(syscall.EINVAL)
		}
		return 0
	})
	ctx := fakeContext(t, lib, verbs.TransportRoCE)
	p := &pd{ctx: ctx}
	mem, err := ctx.AllocMemory(2*pageSize, pageSize)
	require.NoError(t, err)
	register := func(buf []byte) (verbs.MR, error) {
		if lib.regMR = works; !registers {
			lib.regMR = refuses
		}
		return p.RegMR(buf, verbs.AccessLocalWrite)
	}
	whole, err := register(mem.Bytes())
	require.NoError(t, err)
	part, err := register(mem.Bytes()[pageSize+8:][:8])
	require.NoError(t, err)
	other, err := register(make([]byte, 8))
	require.NoError(t, err)
	registers = false
	_, err = register(mem.Bytes())
	require.ErrorIs(t, err, verbs.ErrNoMemory)

	require.EqualError(t, mem.Close(), "object still in use: 2 MRs cover the memory")
	bound = true
	require.ErrorIs(t, whole.Close(), verbs.ErrBusy)
	require.ErrorIs(t, mem.Close(), verbs.ErrBusy)
	bound = false
	require.NoError(t, whole.Close())
	require.ErrorIs(t, whole.Close(), verbs.ErrClosed)
	require.EqualError(t, mem.Close(), "object still in use: 1 MRs cover the memory")
	mem.Bytes()[pageSize-1] = 1
	require.NoError(t, part.Close())
	require.NoError(t, mem.Close())
	require.ErrorIs(t, mem.Close(), verbs.ErrClosed)
	require.NoError(t, other.Close())
	require.Zero(t, p.users.Count())
	require.Zero(t, ctx.users.Count())
}
