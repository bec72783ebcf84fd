//go:build linux && (amd64 || arm64)

package shm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openBoth makes an inbox and the outbox that maps it.
func openBoth(t *testing.T, n int) (*Inbox, *Outbox) {
	in, err := NewInbox(n)
	require.NoError(t, err)
	out, err := OpenOutbox(in.FD, in.Geometry)
	require.NoError(t, err)
	t.Cleanup(func() { out.Unmap(); in.Close() })
	return in, out
}

// TestQueueLaps goes round many times, and over the end of the laps' range.
func TestQueueLaps(t *testing.T) {
	in, out := openBoth(t, 4)
	for _, start := range []uint64{0, 4*(LapMask-2) + 1, 1<<32 - 6} {
		// Both ends begin in the middle of what a long run would have left.
		in.Head, out.Next = start, start
		for i := range uint64(4) {
			*(*uint64)(entryAt(in, start+i)) = in.lap(start+i-4) << LapShift
		}
		for i := range uint64(100) {
			_, _, ok := in.Peek()
			require.False(t, ok)
			depth := i%4 + 1
			for k := range depth {
				out.Publish(EntryWriteImm, uint32(i), k)
			}
			for k := range depth {
				w0, w1, ok := in.Peek()
				require.True(t, ok)
				require.EqualValues(t, i, uint32(w0))
				require.EqualValues(t, k, w1)
				in.Head++
			}
		}
	}
}

func entryAt(in *Inbox, n uint64) unsafe.Pointer {
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
	require.Equal(t, in.bounceOff(), backing(t, in.FD))

	g := in.Geometry
	fd, data, err := New("bare", g.Size(), 0, false)
	require.NoError(t, err)
	defer unix.Close(fd)
	defer Unmap(data)
	out, err := OpenOutbox(fd, g)
	require.NoError(t, err)
	defer out.Unmap()
	require.True(t, CanPopulate(), "Linux before 5.14 has no way to do that")
	require.Equal(t, g.bounceOff(), backing(t, fd))
}
