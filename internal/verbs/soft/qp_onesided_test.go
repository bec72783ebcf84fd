//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// resident is how many bytes of m the kernel has backed.
func resident(t *testing.T, m *memory) int {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(m.fd, &st))
	return int(st.Blocks) * 512
}

// TestBackOnDemand: a write backs the pages that it touches and no others.
func TestBackOnDemand(t *testing.T) {
	a, b := newConnected(t, defaults())
	m, err := b.ctx.AllocMemory(1000*shm.PageSize, shm.PageSize)
	require.NoError(t, err)
	mr, err := b.pd.RegMR(m.Bytes()[8:], verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, mr.Close())
		require.NoError(t, m.Close())
	}()
	mem := m.(*memory)
	put := func(off, n, pages int) {
		t.Helper()
		a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: make([]byte, n),
			RemoteAddr: mr.Addr() - 8 + uint64(off), RKey: mr.RKey()})
		require.Equal(t, verbs.WCSuccess, a.next().Status)
		require.Equal(t, pages*shm.PageSize, resident(t, mem))
	}
	require.Equal(t, shm.PageSize, resident(t, mem))
	put(8, 8, 1)
	put(500*shm.PageSize-1, 1, 2)
	put(500*shm.PageSize-1, 2, 3)
	put(998*shm.PageSize, 2*shm.PageSize, 5)
	put(999*shm.PageSize, shm.PageSize, 5)
	put(498*shm.PageSize, 4*shm.PageSize, 7)
}

// TestBackFails: without memory the write fails, and nothing is touched.
func TestBackFails(t *testing.T) {
	a, b := newConnected(t, defaults())
	a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: make([]byte, 8),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	// A mapping that is gone takes the place of a system without memory. Of this page nothing is
	// known yet.
	a.qp.mu.Lock()
	require.NoError(t, unix.Mprotect(a.qp.peer.find(b.mr.RKey()).Mapped, unix.PROT_READ))
	a.qp.mu.Unlock()
	a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: make([]byte, 8),
		RemoteAddr: b.mr.Addr() + uint64(shm.PageSize), RKey: b.mr.RKey()})
	require.Equal(t, verbs.WCRemOpErr, a.next().Status)
}
