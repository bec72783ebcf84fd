//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sockMsg is what sendmsg and recvmsg need beside the bytes: they are lent for a call
// that does not wait, so that neither the calls nor sockets at rest cost memory.
type sockMsg struct {
	hdr   unix.Msghdr
	iov   unix.Iovec
	oob   [oobSize]byte
	small [8]byte
}

// oobSize is that of the control message with maxFDs descriptors: unix.CmsgSpace(4 * maxFDs).
const oobSize = unix.SizeofCmsghdr + 4*maxFDs

var sockMsgs = sync.Pool{New: func() any { return new(sockMsg) }}

func getSockMsg(buf []byte) *sockMsg {
	m := sockMsgs.Get().(*sockMsg)
	m.iov.Base = &buf[0]
	m.iov.SetLen(len(buf))
	m.hdr = unix.Msghdr{Iov: &m.iov}
	m.hdr.SetIovlen(1)
	return m
}

// getSignal is getSockMsg of a few bytes, which it has itself.
func getSignal(b ...byte) *sockMsg {
	m := sockMsgs.Get().(*sockMsg)
	n := copy(m.small[:], b)
	m.iov.Base = &m.small[0]
	m.iov.SetLen(n)
	m.hdr = unix.Msghdr{Iov: &m.iov}
	m.hdr.SetIovlen(1)
	return m
}

func (m *sockMsg) put() {
	m.iov, m.hdr = unix.Iovec{}, unix.Msghdr{}
	sockMsgs.Put(m)
}

// attach adds at most maxFDs descriptors to a message that is to be sent.
func (m *sockMsg) attach(fds []int) {
	if len(fds) == 0 {
		return
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&m.oob))
	h.Level, h.Type = unix.SOL_SOCKET, unix.SCM_RIGHTS
	h.SetLen(unix.CmsgLen(4 * len(fds)))
	for i, fd := range fds {
		hostOrder.PutUint32(m.oob[unix.SizeofCmsghdr+4*i:], uint32(fd))
	}
	m.hdr.Control = &m.oob[0]
	m.hdr.SetControllen(unix.CmsgSpace(4 * len(fds)))
}

// send makes the call, again if a signal has interrupted it.
func (m *sockMsg) send(fd uintptr) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&m.hdr)), unix.MSG_NOSIGNAL)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// recv makes the call, again if a signal has interrupted it. The flags and the control
// message are in m then.
func (m *sockMsg) recv(fd uintptr) (n int, err error) {
	m.hdr.Control = &m.oob[0]
	return m.receive(fd, oobSize, unix.MSG_CMSG_CLOEXEC)
}

// peek is recv that leaves the message, with its descriptors, in the socket.
func (m *sockMsg) peek(fd uintptr) (n int, err error) { return m.receive(fd, 0, unix.MSG_PEEK) }

func (m *sockMsg) receive(fd uintptr, room int, flags uintptr) (n int, err error) {
	for {
		m.hdr.SetControllen(room)
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&m.hdr)), flags)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// rights are the descriptors that came with a message.
func (m *sockMsg) rights() ([]int, error) { return parseRights(m.oob[:m.hdr.Controllen]) }
