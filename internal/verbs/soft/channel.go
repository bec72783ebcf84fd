//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// compChannel is verbs.CompChannel: an eventfd in Go's network poller, of which
// every peer that may have to wake us holds a duplicate. What happens in this process
// wakes without it.
//
// The eventfd is never read on the way: the poller is edge-triggered and each
// write is an edge, for both directions. A read could block, since a peer may
// clear O_NONBLOCK of the description we share with it; for the same reason a
// peer that fills the counter is undone in unclog only.
type compChannel struct {
	ctx  *devContext
	fd   int // the eventfd
	file *os.File
	raw  syscall.RawConn
	rd   channelWait
	wr   channelWait

	mu     sync.Mutex
	cqs    []*cq
	closed bool
}

func newChannel(ctx *devContext) (verbs.CompChannel, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, shm.NoMemory("eventfd", 8, err)
	}
	file, raw, err := control.OpenPolled(fd, "rdma-soft-channel", nil)
	if err != nil {
		return nil, err
	}
	ch := &compChannel{ctx: ctx, fd: fd, file: file, raw: raw}
	ch.rd.init(raw.Read, file.SetReadDeadline)
	ch.wr.init(raw.Write, file.SetWriteDeadline)
	return ch, nil
}

func (ch *compChannel) WaitRead(try func() bool) error { return ch.rd.wait(try) }

func (ch *compChannel) WaitWrite(try func() bool) error { return ch.wr.wait(try) }

func (ch *compChannel) SetReadDeadline(t time.Time) error  { return ch.rd.SetDeadline(t) }
func (ch *compChannel) SetWriteDeadline(t time.Time) error { return ch.wr.SetDeadline(t) }

func (ch *compChannel) GetEvent() (verbs.CQ, error) {
	var got *cq
	err := ch.WaitRead(func() bool {
		ch.mu.Lock()
		defer ch.mu.Unlock()
		for i, c := range ch.cqs {
			if c.takeEvent() {
				got = c
				// The next call asks the others first.
				ch.cqs = append(slices.Delete(ch.cqs, i, i+1), c)
				return true
			}
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// one is what is written to an eventfd.
var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// signal wakes the waiters, from within the process.
func (ch *compChannel) signal() {
	ch.rd.Wake()
	ch.wr.Wake()
}

// writeEvent adds one to an eventfd; false if it is full.
func writeEvent(fd int) bool {
	for {
		_, err := unix.Write(fd, one)
		if err != unix.EINTR {
			return err != unix.EAGAIN
		}
	}
}

// unclog empties an eventfd that somebody has filled, and signals. Whoever filled it may also have made
// it blocking: RWF_NOWAIT does not care.
func (ch *compChannel) unclog() {
	// A peer may ask for it when the channel is closed, and its number another file's.
	_ = ch.raw.Control(func(fd uintptr) { emptyEvent(int(fd)) })
	ch.signal()
}

// emptyEvent sets the counter of an eventfd to zero and returns what it was. Before Linux 5.8, where
// one cannot be read so, it does nothing.
func emptyEvent(fd int) uint64 {
	var buf [8]byte
	if n, err := unix.Preadv2(fd, [][]byte{buf[:]}, -1, unix.RWF_NOWAIT); err != nil || n < len(buf) {
		return 0
	}
	return shm.HostOrder.Uint64(buf[:])
}

func (ch *compChannel) add(c *cq) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return verbs.ErrClosed
	}
	ch.cqs = append(ch.cqs, c)
	return nil
}

func (ch *compChannel) remove(c *cq) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.cqs = without(ch.cqs, c)
}

func (ch *compChannel) Close() error {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return verbs.ErrClosed
	}
	if n := len(ch.cqs); n > 0 {
		ch.mu.Unlock()
		return fmt.Errorf("%w: %d CQs use the completion channel", verbs.ErrBusy, n)
	}
	ch.closed = true
	ch.mu.Unlock()
	ch.ctx.users.Release()
	return ch.file.Close() // waits for who looks for an event, which takes mu
}
