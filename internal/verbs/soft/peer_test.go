//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestManyMRs: a peer's MRs that are used in turns stay mapped, four thousand of them, or 64 where
// the process has mapped many.
func TestManyMRs(t *testing.T) {
	a, b := newConnected(t, defaults())
	keys := map[uint32]bool{}
	write := func() {
		t.Helper()
		mr, err := b.pd.RegMR(b.mem.Bytes()[:shm.PageSize], verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		require.NoError(t, err)
		t.Cleanup(func() { _ = mr.Close() })
		a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte{1}, RemoteAddr: mr.Addr(), RKey: mr.RKey()})
		require.Equal(t, verbs.WCSuccess, a.next().Status)
		keys[mr.RKey()] = true
	}
	has := func() int {
		a.qp.mu.Lock()
		defer a.qp.mu.Unlock()
		return len(a.qp.peer.mrs)
	}
	before := shm.MappedMRs.Load()
	for range sureMapped + 10 {
		write()
	}
	atFirst := has() - len(keys) // what the offer brought
	require.LessOrEqual(t, atFirst, maxOffered)
	require.EqualValues(t, len(keys), shm.MappedMRs.Load()-before)

	shm.MappedMRs.Add(shm.ManyMRs)
	full := has()
	for range 10 {
		write()
		require.Equal(t, full, has(), "one makes room for one")
	}
	shm.MappedMRs.Add(-shm.ManyMRs)

	for has() < maxMapped {
		write()
	}
	write()
	require.Equal(t, maxMapped, has())
	for key := range keys { // the peer's end takes them back in any order
		a.qp.dropMR(linkOf(a), key)
	}
	require.Less(t, has(), sureMapped)
	require.LessOrEqual(t, shm.MappedMRs.Load(), before)
}
