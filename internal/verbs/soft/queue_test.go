//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestGeometry(t *testing.T) {
	for shift := uint8(0); shift <= maxQueueShift; shift++ {
		g := geometry{shift: shift, bounceShift: bounceShift}
		require.NoError(t, g.check())
		n := 1 << shift
		require.GreaterOrEqual(t, g.entriesOff(), offLens+4*n)
		require.Zero(t, g.entriesOff()%lineSize)
		require.GreaterOrEqual(t, g.bounceOff(), g.entriesOff()+entrySize*n)
		require.Zero(t, g.bounceOff()%pageSize)
		require.Equal(t, g.bounceOff()+g.bounceSize(), g.size())
	}
}

func TestStatusWord(t *testing.T) {
	s := makeStatus(statusUp, verbs.AccessRemoteRead|verbs.AccessLocalWrite, 31)
	require.Equal(t, statusUp, s.state())
	require.Equal(t, verbs.AccessRemoteRead|verbs.AccessLocalWrite, s.access())
	require.EqualValues(t, 31, s.minRNR())
}

// openBoth makes an inbox and the outbox that maps it.
func openBoth(t *testing.T, n int) (*inbox, *outbox) {
	in, err := newInbox(n)
	require.NoError(t, err)
	out, err := openOutbox(in.fd, in.geometry)
	require.NoError(t, err)
	t.Cleanup(func() { out.unmap(); in.close() })
	return in, out
}

// TestQueueLaps goes round many times, and over the end of the laps' range.
func TestQueueLaps(t *testing.T) {
	in, out := openBoth(t, 4)
	for _, start := range []uint64{0, 4*(lapMask-2) + 1, 1<<32 - 6} {
		// Both ends begin in the middle of what a long run would have left.
		in.head, out.next = start, start
		for i := range uint64(4) {
			*(*uint64)(entryAt(in, start+i)) = in.lap(start+i-4) << lapShift
		}
		for i := range uint64(100) {
			_, _, ok := in.peek()
			require.False(t, ok)
			depth := i%4 + 1
			for k := range depth {
				out.publish(entryWriteImm, uint32(i), k)
			}
			for k := range depth {
				w0, w1, ok := in.peek()
				require.True(t, ok)
				require.EqualValues(t, i, uint32(w0))
				require.EqualValues(t, k, w1)
				in.head++
			}
		}
	}
}

func TestCreditWraps(t *testing.T) {
	in, out := openBoth(t, 4)
	out.next = 1<<32 - 2
	*in.posted = 1<<32 - 2
	n, err := out.ready()
	require.NoError(t, err)
	require.Zero(t, n)
	*in.posted += 4
	n, err = out.ready()
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
	*in.posted++
	_, err = out.ready()
	require.ErrorIs(t, err, verbs.ErrProtocol)
	*in.posted = 1<<32 - 3
	_, err = out.ready()
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
		{armedNot, true, false, armedNot},
		{armedAny, false, true, armedNot},
		{armedAny, true, true, armedNot},
		{armedSolicited, false, false, armedSolicited},
		{armedSolicited, true, true, armedNot},
		{77, true, false, 77},
	} {
		*in.armed = c.armed
		require.Equal(t, c.wake, out.takeWake(c.solicited), "%+v", c)
		require.Equal(t, c.left, *in.armed)
	}
}

func entryAt(in *inbox, n uint64) unsafe.Pointer {
	return unsafe.Add(in.entries, int(n&in.mask)*entrySize)
}

// backing is how many bytes of a memfd are backed with memory.
func backing(t *testing.T, fd int) int {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	return int(st.Blocks) * 512
}

// TestInboxBacked has the entries of an inbox backed from the beginning, and those of a peer that
// has not done so when it is met.
func TestInboxBacked(t *testing.T) {
	in, _ := openBoth(t, 256)
	require.Equal(t, in.bounceOff(), backing(t, in.fd))

	g := in.geometry
	fd, data, err := newSealed("bare", g.size(), 0, false)
	require.NoError(t, err)
	defer unix.Close(fd)
	defer munmap(data)
	out, err := openOutbox(fd, g)
	require.NoError(t, err)
	defer out.unmap()
	require.True(t, canPopulate(), "Linux before 5.14 has no way to do that")
	require.Equal(t, g.bounceOff(), backing(t, fd))
}
