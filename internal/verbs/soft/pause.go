//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"golang.org/x/sys/unix"
)

// With one processor, goroutines that wake each other without the kernel leave the scheduler
// always something to run, and only if there is nothing does it ask the kernel what has
// happened; the system's monitor does every ten milliseconds. Others of the process, who
// wait for a socket or a pipe, would wait for that. So some wake-ups in a row take a
// pause in the network poller: as many conversations as these rest together, and then the
// scheduler looks.
const (
	wakesPerPause = 256
	pausedWakes   = 8
)

var (
	oneProcessor atomic.Bool // when last looked at
	wakes        atomic.Uint32
	pauser       struct {
		atomic.Pointer[pollerPause]
		making sync.Mutex
	}
)

// lookAtProcessors is to be called now and then: asking takes a lock of the scheduler's.
func lookAtProcessors() {
	one := runtime.GOMAXPROCS(0) == 1
	if one != oneProcessor.Load() {
		oneProcessor.Store(one)
	}
	if one {
		preparePause()
	}
}

// preparePause makes the pipe. Without one, for lack of descriptors for example, nobody pauses,
// and it is tried again at the next look.
func preparePause() {
	pauser.making.Lock()
	defer pauser.making.Unlock()
	if pauser.Load() != nil {
		return
	}
	if p, err := newPollerPause(); err == nil {
		pauser.Store(p)
	}
}

// mayPause pauses who was woken from within the process, if it is time.
func mayPause() {
	if !oneProcessor.Load() || wakes.Add(1)%wakesPerPause >= pausedWakes {
		return
	}
	if p := pauser.Load(); p != nil {
		p.pause()
	}
}

// A pollerPause is a pipe of which nobody else has an end: not an eventfd that a peer could
// fill and make blocking.
type pollerPause struct {
	mu      sync.Mutex
	out     int
	raw     syscall.RawConn
	written bool
	ended   uint64                // pauses
	poll    func(fd uintptr) bool // try; made once, as waking allocates nothing
	buf     [16]byte
}

func newPollerPause() (*pollerPause, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	_, raw, err := control.OpenPolled(fds[0], "rdma-soft-pause", nil)
	if err != nil {
		unix.Close(fds[1])
		return nil, err
	}
	p := &pollerPause{out: fds[1], raw: raw}
	p.poll = p.try
	return p, nil
}

// pause returns when the scheduler has asked the kernel what has happened.
func (p *pollerPause) pause() {
	p.mu.Lock()
	p.written = false
	_ = p.raw.Read(p.poll)
	p.ended++
	p.mu.Unlock()
}

// try writes at its first call of a pause, and reads at the second.
func (p *pollerPause) try(fd uintptr) (over bool) {
	if p.written {
		_, _ = unix.Read(int(fd), p.buf[:])
		return true
	}
	p.written = true
	_, err := unix.Write(p.out, p.buf[:1])
	return err != nil
}
