//go:build linux && (amd64 || arm64)

package control

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func newPair(t *testing.T) (a, b *Socket) {
	t.Helper()
	a, b, err := SocketPair()
	require.NoError(t, err)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestSocketMessages(t *testing.T) {
	a, b := newPair(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()

	require.NoError(t, a.Send([]byte("one"), nil))
	require.NoError(t, a.Send([]byte("two"), []int{int(w.Fd())}))

	buf := make([]byte, MaxMessage)
	n, fds, err := b.Recv(buf)
	require.NoError(t, err)
	require.Equal(t, "one", string(buf[:n]))
	require.Empty(t, fds)

	n, fds, err = b.Recv(buf)
	require.NoError(t, err)
	require.Equal(t, "two", string(buf[:n]))
	require.Len(t, fds, 1)
	flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.FD_CLOEXEC)
	CloseFDs(fds)
}

func TestSocketHangup(t *testing.T) {
	a, b := newPair(t)
	buf := make([]byte, MaxMessage)

	// b has not read "unread": the kernel reports a reset before "last".
	require.NoError(t, a.Send([]byte("unread"), nil))
	require.NoError(t, b.Send([]byte("last"), nil))
	require.NoError(t, b.Close())

	n, _, err := a.Recv(buf)
	require.NoError(t, err)
	require.Equal(t, "last", string(buf[:n]))
	_, _, err = a.Recv(buf)
	require.Equal(t, io.EOF, err)
	require.ErrorIs(t, a.Send([]byte("x"), nil), unix.EPIPE)
}

func TestSocketSendAfterReset(t *testing.T) {
	a, b := newPair(t)
	require.NoError(t, a.Send([]byte("unread"), nil))
	require.NoError(t, b.Close())
	require.ErrorIs(t, a.Send([]byte("x"), nil), unix.EPIPE)
}

func TestSocketCloseWakesRecv(t *testing.T) {
	a, _ := newPair(t)
	done := make(chan error, 1)
	go func() {
		_, _, err := a.Recv(make([]byte, 16))
		done <- err
	}()
	require.NoError(t, a.Close())
	if err := <-done; err != io.EOF { // as Close hangs up first
		require.ErrorIs(t, err, os.ErrClosed)
	}
}

func TestSocketReadDeadline(t *testing.T) {
	a, _ := newPair(t)
	require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, _, err := a.Recv(make([]byte, 16))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestSocketTooLong(t *testing.T) {
	a, b := newPair(t)
	require.NoError(t, a.Send(bytes.Repeat([]byte{1}, 100), nil))
	_, _, err := b.Recv(make([]byte, 99))
	require.ErrorIs(t, err, verbs.ErrProtocol)

	require.ErrorIs(t, a.Send(nil, nil), verbs.ErrInvalid)
	require.ErrorIs(t, a.Send(make([]byte, MaxMessage+1), nil), verbs.ErrInvalid)
	require.ErrorIs(t, a.Send([]byte{1}, make([]int, MaxFDs+1)), verbs.ErrInvalid)
}

func TestSocketTooManyFDs(t *testing.T) {
	a, b := newPair(t)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(event)
	fds := slices.Repeat([]int{event}, MaxFDs+1)
	before := leaktest.Take()
	sendRaw(t, a, []byte{1}, fds)
	_, _, err = b.Recv(make([]byte, 16))
	require.ErrorIs(t, err, verbs.ErrProtocol)
	require.Empty(t, before.LeakedFiles())

	// Exactly the permitted number is fine.
	require.NoError(t, a.Send([]byte{1}, fds[:MaxFDs]))
	_, got, err := b.Recv(make([]byte, 16))
	require.NoError(t, err)
	require.Len(t, got, MaxFDs)
	CloseFDs(got)

	// Descriptors with nothing to say what they are.
	sendRaw(t, a, nil, fds[:1])
	_, _, err = b.Recv(make([]byte, 16))
	require.ErrorIs(t, err, verbs.ErrProtocol)
	require.Empty(t, before.LeakedFiles())
}

func TestSocketPeerThatDoesNotRead(t *testing.T) {
	a, b := newPair(t)
	var err error
	for err == nil { // the last for sendTimeout
		err = a.Send(make([]byte, MaxMessage), nil)
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	// It is cut off: what was queued comes out, then the hang-up.
	buf := make([]byte, MaxMessage)
	for err = nil; err == nil; {
		_, _, err = b.Recv(buf)
	}
	require.Equal(t, io.EOF, err)
	require.True(t, errors.Is(a.Send([]byte{1}, nil), unix.EPIPE))
}

func TestSocketPeerCred(t *testing.T) {
	a, _ := newPair(t)
	pid, uid, err := a.PeerCred()
	require.NoError(t, err)
	require.EqualValues(t, os.Getpid(), pid)
	require.EqualValues(t, os.Geteuid(), uid)
}

// sendRaw sends what send refuses to, an empty message included.
func sendRaw(t *testing.T, s *Socket, msg []byte, fds []int) {
	t.Helper()
	oob := unix.UnixRights(fds...)
	hdr := unix.Msghdr{Control: unsafe.SliceData(oob)}
	hdr.SetControllen(len(oob))
	iov := unix.Iovec{Base: unsafe.SliceData(msg)}
	iov.SetLen(len(msg))
	if len(msg) > 0 {
		hdr.Iov = &iov
		hdr.SetIovlen(1)
	}
	var errno syscall.Errno
	require.NoError(t, s.rc.Write(func(fd uintptr) bool {
		_, _, errno = unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&hdr)), 0)
		return true
	}))
	require.Zero(t, errno)
}
