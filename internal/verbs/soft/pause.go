//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

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
	oneProcessor atomic.Bool // as of the last wait in a channel
	wakes        atomic.Uint32
	// pauser is nil if there is no pipe to be had.
	pauser = sync.OnceValue(newPollerPause)
)

// lookAtProcessors is to be called now and then.
func lookAtProcessors() {
	if one := runtime.GOMAXPROCS(0) == 1; one != oneProcessor.Load() {
		oneProcessor.Store(one)
	}
}

// mayPause pauses who was woken from within the process, if it is time.
func mayPause() {
	if !oneProcessor.Load() || wakes.Add(1)%wakesPerPause >= pausedWakes {
		return
	}
	if p := pauser(); p != nil {
		p.pause()
	}
}

// A pollerPause is a pipe of which nobody else has an end: not an eventfd that a peer could
// fill and make blocking.
type pollerPause struct {
	mu      sync.Mutex
	out     *os.File
	outFD   int
	raw     syscall.RawConn
	written bool
	poll    func(fd uintptr) bool // try; made once, as waking allocates nothing
	buf     [16]byte
}

func newPollerPause() *pollerPause {
	in, out, err := os.Pipe()
	if err != nil {
		return nil
	}
	p := &pollerPause{out: out, outFD: -1}
	if p.raw, err = in.SyscallConn(); err == nil {
		var raw syscall.RawConn
		if raw, err = out.SyscallConn(); err == nil {
			err = raw.Control(func(fd uintptr) { p.outFD = int(fd) })
		}
	}
	if err != nil {
		in.Close()
		out.Close()
		return nil
	}
	p.poll = p.try
	return p
}

// pause returns when the scheduler has asked the kernel what has happened.
func (p *pollerPause) pause() {
	p.mu.Lock()
	p.written = false
	_ = p.raw.Read(p.poll)
	p.mu.Unlock()
}

// try writes at its first call of a pause, and reads at the second.
func (p *pollerPause) try(fd uintptr) (over bool) {
	if p.written {
		_, _ = unix.Read(int(fd), p.buf[:])
		return true
	}
	p.written = true
	_, err := unix.Write(p.outFD, p.buf[:1])
	return err != nil
}
