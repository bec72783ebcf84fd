//go:build linux && (amd64 || arm64)

package control

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/wakeup"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	// MaxFDs is the most descriptors one message carries. It is even, so that
	// the aligned control buffer has room for exactly as many.
	MaxFDs = 8
	// sentFDs is the most that the kernel lets a peer send with one (SCM_MAX_FD). There is room for them all: the
	// kernel closes those for which there is none, and not as CloseFDs does.
	sentFDs = 253
	// MaxMessage is the size of the longest message; a receive buffer of this
	// size is never too small for an honest peer.
	MaxMessage = 4096
	// sendTimeout is how long a peer may leave its socket full before it is cut off.
	sendTimeout = time.Second
)

// FirstLinkMsg is the first number of a message of the link of a connected QP. Messages begin
// with a byte that says what they are, and 1..31 belong to the connection manager.
const FirstLinkMsg = 32

// A Socket is one end of a Unix SOCK_SEQPACKET connection, in Go's network
// poller. It is the control path between two ends of a connection and the sign
// of life of the peer's process: it stays open as long as the connection does.
// Any number of goroutines may send; one at a time receives.
type Socket struct {
	f  *os.File
	rc syscall.RawConn

	sendMu sync.Mutex // held over a send, so that its deadline is its own
}

// NewSocket puts fd, which must be non-blocking, into the poller and owns it,
// also when it fails.
func NewSocket(fd int) (*Socket, error) { return NewSocketOr(fd, nil) }

// NewSocketOr is NewSocket; where it fails, refused is called, if it is not nil, before fd
// is closed.
func NewSocketOr(fd int, refused func()) (*Socket, error) {
	f, rc, err := OpenPolled(fd, "rdma-soft-cm", refused)
	if err != nil {
		return nil, err
	}
	return &Socket{f: f, rc: rc}, nil
}

// PollFault, if it is set, is asked before a file is used with the poller: tests have it
// fail as for lack of memory.
var PollFault atomic.Pointer[func(*os.File) error]

// OpenPolled makes a file of fd, which must be non-blocking, in the poller. It owns fd, also where it
// fails; before it closes fd then it calls refused, if that is not nil.
func OpenPolled(fd int, name string, refused func()) (f *os.File, rc syscall.RawConn, err error) {
	f = os.NewFile(uintptr(fd), name)
	if f == nil {
		return nil, nil, os.NewSyscallError("socket", unix.EBADF)
	}
	err = f.SetReadDeadline(time.Time{}) // fails where the poller did not take it
	if fault := PollFault.Load(); fault != nil && err == nil {
		err = (*fault)(f)
	}
	if err == nil {
		rc, err = f.SyscallConn()
	}
	if err == nil {
		return f, rc, nil
	}
	if refused != nil {
		refused()
	}
	f.Close()
	return nil, nil, driver.PollerError(err)
}

// OpenSocket makes an unconnected descriptor of the right kind.
func OpenSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, shm.NoDescriptor("socket", err)
	}
	return fd, nil
}

// SocketPair makes two sockets that are connected to each other.
func SocketPair() (*Socket, *Socket, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, shm.NoDescriptor("socketpair", err)
	}
	a, err := NewSocket(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, nil, err
	}
	b, err := NewSocket(fds[1])
	if err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// Send sends msg and duplicates of fds as one message, all or nothing. A peer
// whose socket stays full for sendTimeout is cut off: both ends see a hang-up.
func (s *Socket) Send(msg []byte, fds []int) error {
	if len(msg) == 0 || len(msg) > MaxMessage || len(fds) > MaxFDs {
		return fmt.Errorf("message of %d bytes and %d descriptors: %w", len(msg), len(fds), verbs.ErrInvalid)
	}
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	// The deadline is set only for the rare send that has to wait.
	err := s.sendOnce(msg, fds)
	if err == unix.EAGAIN {
		if err := s.f.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
			return err
		}
		waitErr := s.rc.Write(func(fd uintptr) bool {
			err = SendTo(fd, msg, fds)
			return err != unix.EAGAIN
		})
		_ = s.f.SetWriteDeadline(time.Time{})
		if waitErr != nil {
			s.Shutdown()
			return fmt.Errorf("the peer does not read its control socket: %w", wakeup.Error(waitErr))
		}
	}
	switch err {
	case nil, os.ErrClosed:
		return err
	case unix.ECONNRESET:
		// The peer closed without reading all that it was sent: the same as
		// EPIPE, which the next send would get.
		err = unix.EPIPE
	case unix.ETOOMANYREFS:
		return fmt.Errorf("%w: too many descriptors are in flight (raise RLIMIT_NOFILE)", os.NewSyscallError("sendmsg", err))
	}
	return os.NewSyscallError("sendmsg", err)
}

// Signal is send of a message of a few bytes.
func (s *Socket) Signal(b ...byte) error { return s.Send(b, nil) }

// Try is send of a message without descriptors that fails with EAGAIN where it would have
// to wait.
func (s *Socket) Try(msg []byte) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return s.sendOnce(msg, nil)
}

// sendOnce makes the call. sendMu is held.
func (s *Socket) sendOnce(msg []byte, fds []int) (err error) {
	if closed := s.rc.Write(func(fd uintptr) bool { err = SendTo(fd, msg, fds); return true }); closed != nil {
		return wakeup.Error(closed)
	}
	return err
}

// SendTo makes the call, again if a signal has interrupted it.
func SendTo(fd uintptr, msg []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		if err := unix.Sendmsg(int(fd), msg, oob, nil, unix.MSG_NOSIGNAL); err != unix.EINTR {
			return err
		}
	}
}

// Recv waits for the next message and returns its length and the descriptors
// that came with it, which the caller must close; they are close-on-exec. At
// hang-up, orderly or not, it returns io.EOF. A message that is longer than buf
// or brings more than MaxFDs descriptors is a verbs.ErrProtocol.
func (s *Socket) Recv(buf []byte) (n int, fds []int, err error) {
	n, fds, err = s.recv(buf, MaxFDs)
	if err != nil {
		CloseFDs(fds)
		return 0, nil, err
	}
	return n, fds, nil
}

// recv is Recv with at most max descriptors, which the caller must close also with an error.
func (s *Socket) recv(buf []byte, max int) (n int, fds []int, err error) {
	room := sentFDs
	if max == 1 {
		room = 1 // that of the spare
	}
	in := incoming{buf: buf, oob: make([]byte, unix.CmsgLen(4*room)), max: max, flags: unix.MSG_CMSG_CLOEXEC}
	if err := s.rc.Read(in.try); err != nil {
		return 0, nil, wakeup.Error(err)
	}
	return in.n, in.fds, in.err
}

// Peek waits for the next message as recv does and returns its length, but leaves it to
// recv, and with it the descriptors: they take none of this process yet.
func (s *Socket) Peek(buf []byte) (n int, err error) {
	in := incoming{buf: buf, flags: unix.MSG_PEEK}
	if err := s.rc.Read(in.try); err != nil {
		return 0, wakeup.Error(err)
	}
	return in.n, in.err
}

// HungUp reports whether the peer has hung up, whatever is left to be read.
func (s *Socket) HungUp() bool {
	gone := true // as a closed socket is
	_ = s.rc.Control(func(fd uintptr) { gone = polled(fd, unix.POLLRDHUP) })
	return gone
}

// OnHangup has f called once the peer has hung up, whatever is left to be read, by a
// goroutine that waits for it. stop ends that, and with it f; nobody may receive before.
func (s *Socket) OnHangup(f func()) (stop func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if s.rc.Read(func(fd uintptr) bool { return polled(fd, unix.POLLRDHUP) }) == nil {
			f()
		}
	}()
	return func() {
		_ = s.SetReadDeadline(wakeup.Past)
		<-ended
		_ = s.SetReadDeadline(time.Time{})
	}
}

// An incoming message is what recv waits for.
type incoming struct {
	buf   []byte
	oob   []byte // for descriptors; empty to leave them and the message where they are
	max   int    // of descriptors
	flags int
	n     int
	fds   []int
	err   error
	reset bool
}

// try reports whether there is one, or an error.
func (in *incoming) try(fd uintptr) bool {
	for {
		n, oobn, flags, _, err := unix.Recvmsg(int(fd), in.buf, in.oob, in.flags)
		switch {
		case err == unix.EAGAIN:
			return false
		case err == unix.EINTR:
		case err == nil:
			if len(in.oob) == 0 {
				flags &^= unix.MSG_CTRUNC
			}
			in.n = n
			in.fds, in.err = parseRights(in.oob[:oobn])
			in.check(flags)
			return true
		case err != unix.ECONNRESET:
			in.err = os.NewSyscallError("recvmsg", err)
			return true
		case in.reset:
			in.err = io.EOF
			return true
		default:
			// The peer closed without reading all that we sent. What it had sent
			// itself is still queued behind this error.
			in.reset = true
		}
	}
}

// check checks what has come.
func (in *incoming) check(flags int) {
	switch {
	case in.err != nil:
	case flags&unix.MSG_TRUNC != 0:
		in.err = fmt.Errorf("message longer than %d bytes: %w", len(in.buf), verbs.ErrProtocol)
	case len(in.fds) > in.max:
		in.err = fmt.Errorf("more than %d descriptors in a message: %w", in.max, verbs.ErrProtocol)
	case flags&unix.MSG_CTRUNC != 0 && (len(in.fds) < in.max || in.max > 1):
		// The kernel stopped half-way for lack of descriptor numbers.
		in.err = fmt.Errorf("%w: no room for those of a message (raise RLIMIT_NOFILE)", os.NewSyscallError("recvmsg", unix.EMFILE))
	case flags&unix.MSG_CTRUNC != 0:
		in.err = fmt.Errorf("more than %d descriptors in a message: %w", in.max, verbs.ErrProtocol)
	case in.n == 0 && len(in.fds) > 0:
		in.err = fmt.Errorf("descriptors without a message: %w", verbs.ErrProtocol)
	case in.n == 0:
		in.err = io.EOF
	}
}

// Silent reports whether there is nothing to read, not even a hang-up.
func (s *Socket) Silent() (silent bool) {
	_ = s.rc.Control(func(fd uintptr) { silent = !readable(fd) })
	return silent
}

// Await waits until there is something to read, and leaves it there.
func (s *Socket) Await() { _ = s.rc.Read(readable) }

// readable reports whether a call of recv would not wait.
func readable(fd uintptr) bool { return polled(fd, unix.POLLIN) }

// polled reports whether poll(2) has that event, a hang-up or an error to tell.
func polled(fd uintptr, event int16) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: event}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return err != nil || n > 0
		}
	}
}

// Accept waits for a connection to a listening socket and returns it with the
// name that its other end has bound.
func (s *Socket) Accept() (fd int, name string, err error) {
	var sa unix.Sockaddr
	var acceptErr error
	err = s.rc.Read(func(lfd uintptr) bool {
		for {
			fd, sa, acceptErr = unix.Accept4(int(lfd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if acceptErr != unix.EINTR && acceptErr != unix.ECONNABORTED {
				return acceptErr != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return -1, "", wakeup.Error(err)
	}
	if acceptErr != nil {
		return -1, "", shm.NoDescriptor("accept4", acceptErr)
	}
	if u, ok := sa.(*unix.SockaddrUnix); ok {
		name = u.Name
	}
	return fd, name, nil
}

// Connect connects to a listening socket by its name. It never waits: EAGAIN
// says that the listener's backlog is full.
func (s *Socket) Connect(name string) error {
	var connErr error
	err := s.rc.Control(func(fd uintptr) {
		for {
			connErr = unix.Connect(int(fd), &unix.SockaddrUnix{Name: name})
			if connErr != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return wakeup.Error(err)
	}
	return os.NewSyscallError("connect", connErr)
}

// parseRights returns the descriptors in the control messages oob, even with an error.
func parseRights(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	for i := range msgs {
		if msgs[i].Header.Level != unix.SOL_SOCKET || msgs[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		got, perr := unix.ParseUnixRights(&msgs[i])
		fds = append(fds, got...)
		err = errors.Join(err, perr)
	}
	return fds, err
}

// CloseFDs closes descriptors that nobody has taken. To close the last one of a socket takes as long as its
// SO_LINGER says, while its peer takes in nothing, and whoever sent it may have let go of it.
func CloseFDs(fds []int) {
	for _, fd := range fds {
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_UNIX {
			discard(uintptr(fd)) // others may wait in it; Linux lets them be five deep
		}
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
		unix.Close(fd)
	}
}

// Control calls f with the descriptor, which stays open meanwhile.
func (s *Socket) Control(f func(fd uintptr)) error { return s.rc.Control(f) }

// SetReadDeadline bounds the recv calls in progress and to come; the zero time
// takes the bound away.
func (s *Socket) SetReadDeadline(t time.Time) error { return s.f.SetReadDeadline(t) }

// Shutdown hangs up: recv at both ends gets io.EOF after what is queued.
func (s *Socket) Shutdown() {
	_ = s.rc.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

// Close closes the socket; a recv in progress ends with os.ErrClosed or io.EOF.
func (s *Socket) Close() error {
	_ = s.rc.Control(discard)
	return s.f.Close()
}

// CloseListening closes a listening socket that is not shared, and the connections that wait to be accepted.
func (s *Socket) CloseListening() error {
	_ = s.rc.Control(func(fd uintptr) {
		_ = unix.Shutdown(int(fd), unix.SHUT_RDWR) // none comes after this
		for {
			conn, _, err := unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			discard(uintptr(conn))
			unix.Close(conn)
		}
	})
	return s.f.Close()
}

// discard takes what is left to be read from a socket that is to be closed: the kernel would close the descriptors
// in it, and not as CloseFDs does.
func discard(fd uintptr) {
	if listens, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens != 0 {
		return
	}
	_ = unix.Shutdown(int(fd), unix.SHUT_RDWR) // nothing comes after this
	// With each message its sender is told, and so an empty one is not the end.
	_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	buf := make([]byte, MaxMessage) // of a stream, which a peer has sent, there may be much
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred)+unix.CmsgSpace(4*sentFDs))
	for {
		_, oobn, _, _, err := unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		if err == unix.EINTR || err == unix.ECONNRESET {
			continue
		}
		if err != nil || oobn == 0 {
			return
		}
		fds, _ := parseRights(oob[:oobn])
		CloseFDs(fds)
	}
}

// PeerCred returns who the peer of a connected socket was when it connected, or when it
// began to listen. That does not change.
func (s *Socket) PeerCred() (pid int32, uid uint32, err error) {
	var cred *unix.Ucred
	var optErr error
	err = s.rc.Control(func(fd uintptr) {
		cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return 0, 0, wakeup.Error(err)
	}
	if optErr != nil {
		return 0, 0, os.NewSyscallError("getsockopt", optErr)
	}
	return cred.Pid, cred.Uid, nil
}
