//go:build linux && (amd64 || arm64)

package control

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// outOfDescriptors leaves the process none but the spare, until restore.
func outOfDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	KeepSpare()
	restore, _, err := leaktest.TakeDescriptors()
	require.NoError(t, err)
	t.Cleanup(restore)
	return restore
}

// recvSparing receives a message that has an eventfd.
func recvSparing(s *Socket) error {
	buf := make([]byte, 16)
	if _, err := s.Peek(buf); err != nil {
		return err
	}
	return s.RecvSparing(buf, func(n, fd int) error {
		if n != 1 {
			return verbs.ErrProtocol
		}
		_, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		return err
	})
}

// spareIsHeld reports whether there is a spare, of the right kind.
func spareIsHeld() bool {
	spare.mu.Lock()
	defer spare.mu.Unlock()
	_, err := unix.FcntlInt(uintptr(spare.held), unix.F_GETFL, 0)
	return err == nil
}

// newEvent is a descriptor to be sent.
func newEvent(t *testing.T) int {
	t.Helper()
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(event) })
	return event
}

// TestSpare receives descriptors, one after the other, where the process may have no more.
func TestSpare(t *testing.T) {
	a, b := newPair(t)
	event := newEvent(t)
	restore := outOfDescriptors(t)
	for range 3 {
		require.NoError(t, a.Send([]byte{1}, []int{event}))
		_, _, err := b.Recv(make([]byte, 16))
		require.ErrorIs(t, err, unix.EMFILE)
		require.NoError(t, a.Send([]byte{1}, []int{event}))
		require.NoError(t, recvSparing(b))
		require.True(t, spareIsHeld())
		_, err = unix.Dup(event)
		require.ErrorIs(t, err, unix.EMFILE, "it left a number free")
	}
	restore()
	var count [8]byte
	_, err := unix.Read(event, count[:])
	require.NoError(t, err)
	require.EqualValues(t, 3, count[0])
}

// TestSpareLost has somebody take the number of the spare. It is had again when the next one comes free.
func TestSpareLost(t *testing.T) {
	a, b := newPair(t)
	event := newEvent(t)
	restore := outOfDescriptors(t)
	spare.mu.Lock()
	unix.Close(spare.held)
	spare.held = -1
	thief, err := unix.Dup(event)
	spare.mu.Unlock()
	require.NoError(t, err)

	require.NoError(t, a.Send([]byte{1}, []int{event}))
	require.ErrorIs(t, recvSparing(b), unix.EMFILE)
	require.False(t, spareIsHeld())

	require.NoError(t, unix.Close(thief))
	require.NoError(t, a.Send([]byte{1}, []int{event}))
	require.NoError(t, recvSparing(b))
	require.True(t, spareIsHeld())
	_, err = unix.Dup(event)
	require.ErrorIs(t, err, unix.EMFILE)
	restore()
}

// TestSpareAndHostilePeers has a peer send what is not wanted: nothing of it stays open, and the
// spare is there.
func TestSpareAndHostilePeers(t *testing.T) {
	event := newEvent(t)
	KeepSpare()
	for name, send := range map[string]struct {
		msg []byte
		fds []int
	}{
		"none":       {[]byte{1}, nil},
		"two":        {[]byte{1}, []int{event, event}},
		"more":       {[]byte{1}, []int{event, event, event, event, event}},
		"wrong one":  {[]byte{1, 2}, []int{event}},
		"no message": {nil, []int{event}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPair(t)
			before := len(leaktest.OpenFiles())
			sendRaw(t, a, send.msg, send.fds)
			err := b.RecvSparing(make([]byte, 16), func(n, _ int) error {
				require.Equal(t, 2, n)
				return verbs.ErrProtocol
			})
			require.ErrorIs(t, err, verbs.ErrProtocol)
			require.True(t, spareIsHeld())
			require.Equal(t, before, len(leaktest.OpenFiles()))
		})
	}
	a, b := newPair(t)
	require.NoError(t, a.Close())
	require.Error(t, b.RecvSparing(make([]byte, 16), nil))
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.RecvSparing(make([]byte, 16), nil), os.ErrClosed)
	require.True(t, spareIsHeld())
}
