package rdmanet

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// A linked carries a Conn by a stream of a link: one QP for many connections.
type linked struct {
	place     entry
	s         *link.Stream
	left      atomic.Int32  // of the stream and the calls, what has not ended
	shutDown  atomic.Bool   // shut was called
	failed    atomic.Bool   // the cause was counted
	copied    atomic.Uint64 // bytes
	placed    atomic.Uint64 // bytes that were not
	deadlines sync.Mutex    // of two concurrent calls one is the last for both directions
	peeked    atomic.Bool   // the application has what await returned

	buffer   *link.Buffer // of reserve; nil where memory of Go does as well, or there is no other
	reserved []byte       // likewise: memory of Go, kept for the next
	length   int          // how many of the bytes it asked for
	held     atomic.Bool
}

var _ carrier = (*linked)(nil)

// newLinkedConn makes the Conn of a stream that has just been opened, and has the process
// know of it.
func newLinkedConn(s *link.Stream, network string, accepted bool) *Conn {
	l := &linked{s: s}
	l.place = entry{
		via: l, network: idOf(network), torn: make(chan struct{}),
		laddr: s.LocalAddr().(*net.TCPAddr), raddr: s.RemoteAddr().(*net.TCPAddr),
	}
	l.left.Store(2)
	s.OnFinish(l.leave)
	c := &Conn{entry: &l.place}
	c.linger.Store(-1)
	live.add(c.entry, accepted)
	runtime.AddCleanup(c, (*linked).dropped, l)
	return c
}

// dropped closes a connection that nobody can close any more, unless it was closed. Calls keep
// their Conn, so none is inside.
func (l *linked) dropped() {
	if l.shutDown.Load() {
		return
	}
	l.shut(l.place.linger.Load() == 0)
	l.releasePins()
	l.finish(l.place.drainLimit(), nil)
}

// cause counts the first failure of the stream, with the completion status that it was seen by:
// where no request has failed all that were posted are flushed.
func (l *linked) cause(err error) error {
	if err == nil {
		return nil
	}
	errno := error(syscall.ECONNRESET)
	var failure *link.Error // on the heap
	if errors.As(err, &failure) {
		errno = failure.Errno
	} else if err != errno {
		return err
	}
	if l.failed.Swap(true) {
		return err
	}
	counts := l.place.failures()
	counts.errnos.count(errno)
	var status verbs.WCStatus
	switch {
	case errors.As(err, &status):
		counts.statuses[min(status, maxStatus)].Add(1)
	case errors.Is(err, verbs.ErrPeerGone):
		counts.statuses[verbs.WCWRFlushErr].Add(1)
	}
	return err
}

func (l *linked) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	l.releasePeek()
	n, err := l.s.Read(p)
	l.copied.Add(uint64(n))
	return n, l.cause(err)
}

func (l *linked) await(limit int) ([]byte, error) {
	b, err := l.s.Lend(limit)
	return b, l.cause(err)
}

func (l *linked) consumed(n int, placed bool) {
	if placed {
		l.placed.Add(uint64(n))
	}
	l.s.Take(n)
}

func (l *linked) unlend() { l.s.Return() }

func (l *linked) holdPeek() { l.peeked.Store(true) }

func (l *linked) releasePeek() bool {
	if !l.peeked.Load() || !l.peeked.CompareAndSwap(true, false) {
		return false
	}
	l.s.Return()
	return true
}

// dropPins: nobody can call Discard or Commit any more when c is collected.
func (l *linked) dropPins(c *Conn) {
	if l.peeked.Load() || l.held.Load() {
		runtime.AddCleanup(c, (*linked).releasePins, l)
	}
}

func (l *linked) releasePins() {
	l.releasePeek()
	l.releaseReserve()
}

func (l *linked) write(p []byte) (int, error) {
	n, err := l.s.Write(p)
	if l.s.Synchronous() {
		l.placed.Add(uint64(n))
	} else {
		l.copied.Add(uint64(n))
	}
	return n, l.cause(err)
}

func (l *linked) reserve(n int) ([]byte, error) {
	if !l.held.Load() {
		b, err := l.s.TakeBuffer()
		if l.cause(err) != nil {
			return nil, err
		}
		if b == nil && l.reserved == nil {
			l.reserved = make([]byte, MaxReserve)
		}
		l.buffer = b
		l.held.Store(true)
	} else if _, err := l.write(nil); err != nil {
		return nil, err
	}
	l.length = n
	return l.memory()[:n:n], nil
}

// memory is what was reserved.
func (l *linked) memory() []byte {
	if l.buffer != nil {
		return l.buffer.Bytes()
	}
	return l.reserved
}

func (l *linked) releaseReserve() {
	if l.held.CompareAndSwap(true, false) && l.buffer != nil {
		l.buffer.Free()
	}
}

func (l *linked) commit(n int) (err error) {
	if !l.held.Load() {
		return errNothingReserved
	}
	if n < 0 || n > l.length {
		return errCommit(n, l.length)
	}
	switch {
	case n == 0:
	case l.buffer != nil:
		_, err = l.send(l.buffer, n)
	default:
		_, err = l.write(l.reserved[:n])
	}
	l.releaseReserve()
	return err
}

func (l *linked) send(b *link.Buffer, n int) (int, error) {
	sent, err := l.s.Send(b, n)
	l.placed.Add(uint64(sent))
	return sent, l.cause(err)
}

// readFrom does not hold the write lock while r reads, which may take for ever.
func (l *linked) readFrom(c *Conn, r io.Reader) (int, error) {
	if !c.life.lock(dirWrite) {
		return 0, c.opError(opWrite, net.ErrClosed)
	}
	b, err := l.s.TakeBuffer()
	c.exit(c.life.unlock(dirWrite))
	if l.cause(err) != nil {
		return 0, c.opError(opWrite, inCall(opWrite, err))
	}
	if b == nil {
		return c.readFromScratch(r, MaxReserve)
	}
	defer b.Free() // also if r panics
	n, rerr := r.Read(b.Bytes())
	if n < 0 || n > len(b.Bytes()) {
		return 0, errInvalidRead
	}
	if n > 0 {
		if !c.life.lock(dirWrite) {
			return 0, c.opError(opWrite, net.ErrClosed)
		}
		sent, err := l.send(b, n)
		c.exit(c.life.unlock(dirWrite))
		if err != nil {
			return sent, c.opError(opWrite, inCall(opWrite, err))
		}
	}
	return n, rerr
}

func (l *linked) closeRead() error  { return inShutdown(l.s.CloseRead()) }
func (l *linked) closeWrite() error { return inShutdown(l.s.CloseWrite()) }

func inShutdown(err error) error {
	if err == syscall.ENOTCONN {
		return os.NewSyscallError("shutdown", err)
	}
	return err
}

func (l *linked) setDeadlines(t time.Time, from, to direction) {
	l.deadlines.Lock()
	defer l.deadlines.Unlock()
	if from == dirRead {
		_ = l.s.SetReadDeadline(t) // fails if it was closed, and then nobody waits
	}
	if to == dirWrite {
		_ = l.s.SetWriteDeadline(t)
	}
}

func (l *linked) setBusyPoll(d time.Duration) { l.s.SetBusyPoll(d) }

// growReadBuffer: rings grow and shrink by themselves, and not below what was asked for.
func (l *linked) growReadBuffer(bytes int) { l.s.SetReadBuffer(max(bytes, MinReadBuffer)) }

func (l *linked) configureKeepAlive(change func(old net.KeepAliveConfig) net.KeepAliveConfig) {
	l.s.SetKeepAlive(change)
}

func (l *linked) shut(reset bool) {
	l.shutDown.Store(true)
	if err := l.s.Status().Err; err != nil {
		_ = l.cause(err) // what no call has seen
	}
	if reset {
		_ = l.s.Reset() // fails if it was closed, which it was not
	} else {
		_ = l.s.Close()
	}
}

// finish: what the peer's library has not taken in after linger the lane keeps for it.
func (l *linked) finish(linger time.Duration, _ *Conn) {
	l.s.FinishWithin(linger)
	l.leave()
}

// leave is called when the stream is finished, and when no call is inside the Conn any more.
func (l *linked) leave() {
	if l.left.Add(-1) == 0 {
		l.place.gone()
	}
}

func (l *linked) lane() (id, link uint64) { return l.s.Lane() }

func (l *linked) deviceName() string { return l.s.Device() }
func (l *linked) hasChecksum() bool  { return l.s.Checksum() }

func (l *linked) stats() ConnStats {
	s := l.s.Status()
	return ConnStats{
		BytesRead: s.Read, BytesWritten: s.Written, MessagesSent: s.Sent, MessagesReceived: s.Received,
		DoorbellsSent: s.Sent + s.CreditsSent + s.RecordsSent, DoorbellsReceived: s.Received + s.CreditsGot + s.RecordsGot,
		CreditsSent: s.CreditsSent, CreditsReceived: s.CreditsGot, RingsGrown: s.Grown,
		CreditStalls: s.Stalls, CreditStallTime: s.StallTime, Spins: s.Spins, Parks: s.Parks,
		BytesCopied: l.copied.Load(), BytesPlaced: l.placed.Load(), ReadBuffer: s.ReadBuffer, WriteBuffer: s.WriteBuffer,
		ChecksumErrors: s.ChecksumErrors, WakeupsSent: s.Wakeups, WakeupsSuppressed: s.Quiet, KeepAlivesSent: s.KeepAlives,
	}
}

func (l *linked) describe(i *ConnInfo) {
	s := l.s.Status()
	i.Unread, i.Writable, i.Registered = s.Unread, s.Writable, s.ReadBuffer
	i.Credits, i.SendQueue, i.SendQueueSize = s.FreeSlots, s.SendQueue, s.SendDepth
	switch {
	case s.Closed, s.Ended && s.Shut && s.Err == nil:
		i.State = StateClosing
	case s.Err != nil:
		i.State = StateFailed
	case s.Ended:
		i.State = StateCloseWait
	case s.Shut:
		i.State = StateFinWait
	}
}
