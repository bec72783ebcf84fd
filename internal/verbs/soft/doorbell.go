//go:build linux && (amd64 || arm64)

package soft

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A doorbell wakes the peer: it is the eventfd of its completion channel, or that
// channel itself.
//
// No flag says that a write to an eventfd is not to block, and a hostile peer can fill the counter and
// clear O_NONBLOCK, which belongs to the description that both have. So it is rung outside the QP's
// lock, and watched: a write that blocks is let go by emptying the eventfd, and the peer loses its
// connection. That costs a timer while a peer is rung, and nothing for one that is not.
type doorbell struct {
	fd    int
	users atomic.Int32
	local atomic.Pointer[compChannel] // the peer's if it is one of this process, or nil

	begun, ended atomic.Uint64 // writes
	watched      atomic.Bool
	seen         uint64            // begun at the last look; of who watches
	stuck        func(filled bool) // is told that a write was, and whether the peer's doing is the reason
}

const (
	// watchTime is how long a write may take, or twice that.
	watchTime = 100 * time.Millisecond
	// emptyTime is the pause between two tries to let a write go.
	emptyTime = time.Millisecond
	// filledCount is more than any number of wake-ups.
	filledCount = 1 << 48
)

func newDoorbell(fd int) (*doorbell, error) {
	// Anything else that takes writes could block us or mean something.
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return nil, noProc(err)
	}
	if name != "anon_inode:[eventfd]" {
		return nil, fmt.Errorf("%w: %s where an eventfd is expected", verbs.ErrProtocol, name)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		return nil, fmt.Errorf("%w: eventfd that blocks", verbs.ErrProtocol)
	}
	d := &doorbell{fd: fd}
	d.users.Store(1)
	return d, nil
}

// noProc adds what to mount to the error of a call with a path in /proc of what exists.
func noProc(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w (mount -t proc proc /proc)", err)
	}
	return err
}

func (d *doorbell) hold() { d.users.Add(1) }

// holdOpen is hold for one who does not know whether anybody else holds it; false if nobody does.
func (d *doorbell) holdOpen() bool {
	for n := d.users.Load(); n > 0; n = d.users.Load() {
		if d.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (d *doorbell) release() {
	if d.users.Add(-1) == 0 {
		unix.Close(d.fd)
	}
}

// ring wakes the peer; false if its eventfd is full. The caller holds d.
func (d *doorbell) ring() bool {
	if ch := d.local.Load(); ch != nil {
		ch.signal()
		return true
	}
	d.begun.Add(1)
	if !d.watched.Load() && d.watched.CompareAndSwap(false, true) {
		time.AfterFunc(watchTime, d.look)
	}
	ok := writeEvent(d.fd)
	d.ended.Add(1)
	return ok
}

// look looks at the writes, again and again as long as there are any.
func (d *doorbell) look() {
	if !d.holdOpen() {
		return
	}
	defer d.release()
	pause := watchTime
	ended, begun := d.ended.Load(), d.begun.Load()
	switch {
	case ended < d.seen:
		// Either it blocks, or its thread waits for a processor. Who is to wake up may not have
		// looked yet, and needs to be told then.
		d.stuck(max(eventCount(d.fd), emptyEvent(d.fd)) >= filledCount)
		pause = emptyTime
	case begun == d.seen && begun == ended:
		d.watched.Store(false)
		if d.begun.Load() == begun || !d.watched.CompareAndSwap(false, true) {
			return
		}
	}
	d.seen = begun
	time.AfterFunc(pause, d.look)
}

// eventCount is the counter of an eventfd, as the kernel tells it: reading one that a peer has made a semaphore
// takes one from it and tells no more than that. It is 0 where there is no /proc.
func eventCount(fd int) uint64 {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0
	}
	_, info, _ = bytes.Cut(info, []byte("eventfd-count:"))
	info, _, _ = bytes.Cut(info, []byte("\n"))
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(info)), 16, 64)
	return n
}
