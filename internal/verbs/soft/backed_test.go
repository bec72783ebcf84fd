//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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
	m, err := b.ctx.AllocMemory(1000*pageSize, pageSize)
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
		require.Equal(t, pages*pageSize, resident(t, mem))
	}
	require.Equal(t, pageSize, resident(t, mem))
	put(8, 8, 1)
	put(500*pageSize-1, 1, 2)
	put(500*pageSize-1, 2, 3)
	put(998*pageSize, 2*pageSize, 5)
	put(999*pageSize, pageSize, 5)
	put(498*pageSize, 4*pageSize, 7)
}

// TestBackedUnits: the bits of a large MR are few.
func TestBackedUnits(t *testing.T) {
	for size, pages := range map[int]int{1: 1, 64 * pageSize: 1, maxBackedBits * pageSize: 1, (maxBackedBits + 1) * pageSize: 2, 1 << 46: 1 << 46 / maxBackedBits / pageSize} {
		b := makeBackedPages(size)
		require.Equal(t, pages*pageSize, 1<<b.shift, "size %d", size)
		require.LessOrEqual(t, len(b.bits), maxBackedBits/64+1)
		require.Less(t, (size-1)>>b.shift/64, len(b.bits), "size %d", size)
	}
}

// TestBackFails: without memory the write fails, and nothing is touched.
func TestBackFails(t *testing.T) {
	a, b := newConnected(t, defaults())
	a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: make([]byte, 8),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	// A mapping that is gone takes the place of a system without memory.
	a.qp.mu.Lock()
	r := a.qp.peer.find(b.mr.RKey())
	r.backed = makeBackedPages(len(r.mapped))
	require.NoError(t, unix.Mprotect(r.mapped, unix.PROT_READ))
	a.qp.mu.Unlock()
	a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: make([]byte, 8),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
	require.Equal(t, verbs.WCRemOpErr, a.next().Status)
}

// TestTrimBacked: memory that waits for its next connection has given back what its
// peer backed, and is empty.
func TestTrimBacked(t *testing.T) {
	ctx := soft0.open()
	m, err := newMemory(ctx, 100*pageSize, pageSize)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.free()) }()
	m.data[50*pageSize] = 1 // as a peer does
	require.Equal(t, 2*pageSize, resident(t, m))
	require.NoError(t, m.trim())
	require.Equal(t, pageSize, resident(t, m))
	require.Zero(t, m.data[50*pageSize])
}

// TestRenewCools: a receiver is not hot for the sender of the next connection.
func TestRenewCools(t *testing.T) {
	in, out := openBoth(t, 4)
	in.hot, in.calm = true, calmEntries
	*in.armed = armedHot
	in.renew()
	require.False(t, in.hot)
	require.Zero(t, in.calm)
	require.EqualValues(t, armedNot, *out.armed)
}

// TestInboxUnknown: an inbox whose peer may have published behind what it has looked at is
// not for a next connection, in which those entries would look new.
func TestInboxUnknown(t *testing.T) {
	require.True(t, canPopulate(), "Linux before 5.14 backs everything at once")
	in, out := openBoth(t, 256)
	*in.posted = 256
	for range 256 {
		require.False(t, in.unknown() && out.next < in.first())
		_, err := out.ready()
		require.NoError(t, err)
		out.publish(entryWriteImm, 0, 0)
	}
	require.True(t, in.unknown())
	ln := &line{agreed: true}
	in.sharing.show(ln)
	require.False(t, ln.keepInbox(in))
	require.NoError(t, in.commitEntries())
	require.False(t, in.unknown())
	require.True(t, ln.keepInbox(in))
}
