package rdmanet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"
	"github.com/rdmanet/go-rdmanet/internal/link"
)

// MaxReserve is the most that Reserve gives at once: 64 KiB.
const MaxReserve = link.BufferSize

var errInvalidRead = errors.New("rdmanet: the reader returned an impossible count")

// ReadFrom sends all that it reads from r until io.EOF, and returns how many bytes were
// sent. r reads straight into memory from which the bytes are sent, as long as there is
// any. Other writes of the Conn may come between two reads from r. Nothing is read from r
// while nothing can be sent; but where this end was closed for writing, or the peer has
// closed, r is read all the same, so that a copy of nothing succeeds as over TCP. A file,
// also in an io.LimitedReader, is left behind the last byte that was sent; of other readers
// more may have been read. Errors, also those of r, come in a *net.OpError of "readfrom".
func (c *Conn) ReadFrom(r io.Reader) (total int64, err error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	for err == nil {
		var n int
		n, err = c.stream.readFrom(c, r)
		total += int64(n)
	}
	if err == io.EOF {
		err = nil
	}
	return total, c.copyError(opReadFrom, err)
}

// readFromScratch is readFrom by ordinary memory, where there is none to send
// from, or Write copies in any case.
func (c *Conn) readFromScratch(r io.Reader) (int, error) {
	buf := pool.Get(MaxReserve)
	defer pool.Put(buf)
	n, rerr := r.Read(buf)
	if n < 0 || n > len(buf) {
		return 0, errInvalidRead
	}
	if n > 0 {
		if sent, err := c.Write(buf[:n]); err != nil {
			giveBack(r, n-sent)
			return sent, err
		}
	}
	return n, rerr
}

// giveBack leaves a file where the copy has ended, before the n bytes that were read of it and not sent: sendfile(2)
// takes no more than it sends, so a program may go on from there.
func giveBack(r io.Reader, n int) {
	limited, _ := r.(*io.LimitedReader)
	if limited != nil {
		r = limited.R
	}
	f, ok := r.(interface { // what package net takes for a file
		io.Seeker
		syscall.Conn
	})
	if !ok || n == 0 {
		return
	}
	if _, err := f.Seek(int64(-n), io.SeekCurrent); err == nil && limited != nil { // else it is a pipe
		limited.N += int64(n)
	}
}

// Reserve returns n bytes, at most MaxReserve, for the caller to fill: of memory that the
// device sends from or, where it needs none or has none left, of Go. Commit sends them.
// It waits if all such memory is being sent. The memory is the caller's until Commit,
// also after a Close in between, and as long as the Conn itself is reachable; a second
// Reserve before the Commit returns the same memory, n bytes of it. An n below 1 or above
// MaxReserve is syscall.EINVAL. Reserve and Commit are for one goroutine; other goroutines
// may Write meanwhile.
func (c *Conn) Reserve(n int) ([]byte, error) {
	if !c.ok() {
		return nil, syscall.EINVAL
	}
	if n < 1 || n > MaxReserve {
		return nil, c.opError(opWrite, invalid("cannot reserve %d bytes: choose 1 to %d", n, MaxReserve))
	}
	if !c.life.lock(dirWrite) {
		return nil, c.opError(opWrite, net.ErrClosed)
	}
	buf, err := c.stream.reserve(n)
	if c.life.isClosed() {
		c.stream.dropPins(c) // Close may have looked before
	}
	c.exit(c.life.unlock(dirWrite))
	return buf, c.opError(opWrite, inCall(opWrite, err))
}

// Commit sends the first n bytes of what Reserve returned, without copying them where
// that is memory which the device sends from, and ends the use of that memory; 0 sends
// nothing. It waits while the peer's ring is full and fails as Write does; what was sent before a failure
// is not told. An n below 0, or above what was reserved, and a Commit without a Reserve before it fail with
// ErrReservation; what was reserved stays so then.
func (c *Conn) Commit(n int) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if !c.life.lock(dirWrite) {
		c.stream.releaseReserve()
		return c.opError(opWrite, net.ErrClosed)
	}
	err := c.stream.commit(n)
	if c.life.isClosed() {
		c.stream.dropPins(c) // what was not sent stays reserved
	}
	c.exit(c.life.unlock(dirWrite))
	return c.opError(opWrite, inCall(opWrite, err))
}

var errNothingReserved = fmt.Errorf("%w: nothing is reserved", ErrReservation)

func errCommit(n, reserved int) error {
	return fmt.Errorf("%w: %d bytes of %d", ErrReservation, n, reserved)
}
