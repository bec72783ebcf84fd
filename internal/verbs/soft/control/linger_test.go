//go:build linux && (amd64 || arm64)

package control

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestLingering: a peer that sends a socket whose close takes as long as it likes, and lets go of it, keeps nobody
// who closes it, or what it came by.
func TestLingering(t *testing.T) {
	for name, receive := range map[string]func(t *testing.T, s *Socket){
		"received": func(t *testing.T, s *Socket) {
			_, fds, err := s.Recv(make([]byte, 8))
			require.NoError(t, err)
			CloseFDs(fds)
		},
		"too many": func(t *testing.T, s *Socket) {
			_, _, err := s.Recv(make([]byte, 8))
			require.ErrorIs(t, err, verbs.ErrProtocol)
		},
		"unread": func(*testing.T, *Socket) {},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, err := SocketPair()
			require.NoError(t, err)
			fds := []int{lingering(t)}
			if name == "too many" {
				null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
				require.NoError(t, err)
				defer unix.Close(null)
				for len(fds) <= MaxFDs {
					fds = append([]int{null}, fds...)
				}
			}
			var sent error
			require.NoError(t, a.Control(func(fd uintptr) { sent = SendTo(fd, []byte{1}, fds) }))
			require.NoError(t, sent)
			unix.Close(fds[len(fds)-1])
			lingersNot(t, func() {
				receive(t, b)
				b.Close()
			})
			a.Close()
		})
	}
}

// lingersNot sees that f ends long before a lingering socket would let it.
func lingersNot(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it lingers")
	}
}

// lingering is a TCP socket that has more to send than its peer takes in, and lingers for that when it is closed.
func lingering(t *testing.T) int {
	t.Helper()
	const typ = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	l, err := unix.Socket(unix.AF_INET, typ, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(l) })
	require.NoError(t, unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(l, 1))
	addr, err := unix.Getsockname(l)
	require.NoError(t, err)
	fd, err := unix.Socket(unix.AF_INET, typ&^unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Connect(fd, addr)) // nobody accepts it
	require.NoError(t, unix.SetNonblock(fd, true))
	for buf := make([]byte, 1<<20); err == nil; {
		_, err = unix.Write(fd, buf)
	}
	require.ErrorIs(t, err, unix.EAGAIN)
	require.NoError(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 600}))
	return fd
}

// TestLingeringInQueue: nor who stops to listen.
func TestLingeringInQueue(t *testing.T) {
	name := "@rdmanet/test/linger" + strconv.Itoa(os.Getpid())
	fd, err := HoldName(name)
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(fd, true))
	require.NoError(t, unix.Listen(fd, 2))
	l, err := NewSocket(fd)
	require.NoError(t, err)
	fd, err = OpenSocket()
	require.NoError(t, err)
	s, err := NewSocket(fd)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Connect(name))
	sock := lingering(t)
	require.NoError(t, s.Send([]byte{1}, []int{sock}))
	unix.Close(sock)
	lingersNot(t, func() { l.CloseListening() })
}

// TestLingeringBehind: nor does it help the peer to have it wait behind a message of nothing, or in a socket that it
// sends.
func TestLingeringBehind(t *testing.T) {
	for name, send := range map[string]func(t *testing.T, to uintptr, sock int){
		"nothing": func(t *testing.T, to uintptr, sock int) {
			require.NoError(t, SendTo(to, nil, nil))
			require.NoError(t, SendTo(to, []byte{1}, []int{sock}))
		},
		"a socket": func(t *testing.T, to uintptr, sock int) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			defer CloseFDs(pair[:])
			require.NoError(t, SendTo(uintptr(pair[0]), []byte{1}, []int{sock}))
			require.NoError(t, SendTo(to, []byte{1}, pair[1:]))
			unix.Close(pair[1])
			pair[1] = -1
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, err := SocketPair()
			require.NoError(t, err)
			defer a.Close()
			sock := lingering(t)
			require.NoError(t, a.Control(func(fd uintptr) { send(t, fd, sock) }))
			unix.Close(sock)
			lingersNot(t, func() { b.Close() })
		})
	}
}
