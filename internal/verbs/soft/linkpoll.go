//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// quietLinks has the links to which nothing has been said for a while.
var quietLinks linkPoller

// A linkPoller waits for the sockets of all links that have nothing to do, in one
// goroutine, and gives a link that is spoken to, or hung up on, a goroutine of its own:
// so an idle connection has none, and what a link does holds up no other. The
// goroutine is there as long as there are such links.
type linkPoller struct {
	mu      sync.Mutex
	set     *os.File // the epoll set, in Go's poller; nil until it is made
	raw     syscall.RawConn
	fd      int
	quiet   map[int32]*link // by descriptor; each is armed for one event
	running bool
	collect func(uintptr) bool
	events  [64]unix.EpollEvent // the goroutine's
	found   int
}

// add has l.run called again when there is something to read. False: the link has to
// wait by itself, since its socket is closed or there is no memory for this.
func (p *linkPoller) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := l.rx
	if s.closing || !p.open() {
		return false
	}
	op := unix.EPOLL_CTL_ADD
	if s.polled {
		op = unix.EPOLL_CTL_MOD
	}
	armed := false
	_ = s.rc.Control(func(fd uintptr) {
		// What has come already is an event, too.
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
		if armed = unix.EpollCtl(p.fd, op, int(fd), &ev) == nil; armed {
			s.polled = true
			p.quiet[int32(fd)] = l
		}
	})
	if armed && !p.running {
		p.running = true
		_ = p.set.SetReadDeadline(time.Time{})
		go p.run()
	}
	return armed
}

// prepare makes the epoll set, if that can be, so that it is there when descriptors are
// short.
func (p *linkPoller) prepare() {
	p.mu.Lock()
	p.open()
	p.mu.Unlock()
}

// open is prepare with mu held.
func (p *linkPoller) open() bool {
	if p.set != nil {
		return true
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	if unix.SetNonblock(fd, true) != nil {
		unix.Close(fd)
		return false
	}
	set := os.NewFile(uintptr(fd), "rdma-soft-links")
	raw, err := set.SyscallConn()
	if err != nil || polls(set) != nil {
		set.Close()
		return false
	}
	p.set, p.raw, p.fd, p.quiet = set, raw, fd, make(map[int32]*link)
	p.collect = func(uintptr) bool {
		for {
			n, err := unix.EpollWait(p.fd, p.events[:], 0)
			if err != unix.EINTR {
				p.found = max(n, 0)
				return p.found > 0
			}
		}
	}
	return true
}

// run wakes links until all are gone. Events of one that has left meanwhile are of a
// descriptor that nobody has or another link, for which it is one look in vain.
func (p *linkPoller) run() {
	for {
		p.found = 0
		err := p.raw.Read(p.collect)
		p.mu.Lock()
		for i := range p.events[:p.found] {
			fd := p.events[i].Fd
			if l := p.quiet[fd]; l != nil {
				delete(p.quiet, fd)
				go l.run()
			}
		}
		if len(p.quiet) == 0 {
			p.running = false
			p.mu.Unlock()
			return
		}
		if err != nil { // the last link left, and another came
			_ = p.set.SetReadDeadline(time.Time{})
		}
		p.mu.Unlock()
	}
}

// leave takes out a socket that is about to be closed, and returns the link that
// waits here for it, or nil.
func (p *linkPoller) leave(s *socket) (l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.closing = true
	if !s.polled {
		return nil
	}
	s.polled = false
	_ = s.rc.Control(func(fd uintptr) {
		// Closing it does this only when no child of a fork has it any more.
		_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, int(fd), nil)
		l = p.quiet[int32(fd)]
		delete(p.quiet, int32(fd))
	})
	if len(p.quiet) == 0 && p.running {
		_ = p.set.SetReadDeadline(longPast)
	}
	return l
}
