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
	"github.com/rdmanet/go-rdmanet/internal/racedetector"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A stream carries a Conn: a stream of a link, which moves the bytes of many connections on
// one QP. The Conn adds to it who may be in which call, addresses and the errors of package
// net: here they are causes. Nothing in a stream refers to its Conn, which the collector
// closes when the program has lost it.
type stream struct {
	place

	s         *link.Stream
	deadlines sync.Mutex                  // of two concurrent calls one is the last for both directions
	reserved  atomic.Pointer[reservation] // the last; who has the turn to write changes it
	left      atomic.Int32                // of the stream and the calls, what has not ended
	flags     streamFlags
	alive     atomic.Pointer[livePair] // nil until a program looks by SyscallConn
}

// streamFlags say what a stream has.
type streamFlags struct{ word atomic.Uint32 }

const (
	flagFailed = 1 << iota // the cause was counted
	flagPeeked             // the application has what await returned
)

func (f *streamFlags) has(flag uint32) bool { return f.word.Load()&flag != 0 }

// set and clear report whether the flag was set before.
func (f *streamFlags) set(flag uint32) bool   { return f.word.Or(flag)&flag != 0 }
func (f *streamFlags) clear(flag uint32) bool { return f.word.And(^flag)&flag != 0 }

// A reservation is what reserve returned. Whoever takes it from the application has it alone: a Commit that
// finds the Conn closed has no turn to write, and another call may be about to reserve.
type reservation struct {
	held   atomic.Bool  // by the application
	again  bool         // it may be used for the next; who has the turn to write looks
	buffer *link.Buffer // nil where memory of Go does as well, or there is no other
	memory []byte       // of Go, kept for the next
	length int          // how many of the bytes were asked for
}

// newConn makes the Conn of a stream that has just been opened, and has the process
// know of it.
func newConn(s *link.Stream, network string, accepted bool) *Conn {
	st := &stream{s: s}
	st.network = idOf(network)
	st.left.Store(2)
	s.OnFinish(st.finished)
	c := &Conn{&dropGuard{stream: st}}
	c.linger.Store(-1)
	st.young.Store(c.dropGuard)
	live.add(st, accepted)
	return c
}

// cause counts the first failure of the stream, with the completion status that it was seen by:
// where no request has failed all that were posted are flushed.
func (st *stream) cause(err error) error {
	if isBare(err) {
		return err
	}
	errno := error(syscall.ECONNRESET)
	var failure *link.Error // on the heap
	if errors.As(err, &failure) {
		errno = failure.Errno
	} else if err != errno {
		return err
	}
	if st.flags.set(flagFailed) {
		return err
	}
	counts := st.failures()
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

func (st *stream) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if st.flags.has(flagPeeked) {
		st.releasePeek()
	}
	n, err := st.s.Read(p)
	racedetector.Acquire()
	if err != nil {
		err = st.cause(err)
	}
	return n, err
}

func (st *stream) await(limit int, read bool) ([]byte, error) {
	b, err := st.s.Peek(limit, read)
	racedetector.Acquire()
	return b, st.cause(err)
}

func (st *stream) consumed(n int, placed bool) { st.s.Consume(n, placed) }

func (st *stream) unpeek() { st.s.Unpeek() }

func (st *stream) holdPeek() { st.flags.set(flagPeeked) }

func (st *stream) releasePeek() bool {
	if !st.flags.clear(flagPeeked) {
		return false
	}
	st.s.Unpeek()
	return true
}

// dropPins: nobody can call Discard or Commit any more when c is collected.
func (st *stream) dropPins(c *Conn) {
	if r := st.reserved.Load(); st.flags.has(flagPeeked) || r != nil && r.held.Load() {
		runtime.AddCleanup(c, (*stream).releasePins, st)
	}
}

func (st *stream) releasePins() {
	st.releasePeek()
	st.releaseReserve()
}

// write: what comes before a Write comes before what follows a Read of its bytes. A socket of this process tells
// the race detector so; rings are no memory that it watches.
func (st *stream) write(p []byte) (int, error) {
	racedetector.Release()
	n, err := st.s.Write(p)
	if err != nil {
		err = st.cause(err)
	}
	return n, err
}

func (st *stream) reserve(n int) ([]byte, error) {
	r := st.takeReserved()
	if r != nil {
		_, err := st.write(nil)
		if err != nil {
			r.held.Store(true)
			return nil, err
		}
	} else {
		b, err := st.s.TakeBuffer()
		if st.cause(err) != nil {
			return nil, err
		}
		if r = st.reserved.Load(); r == nil || !r.again {
			r = new(reservation)
			st.reserved.Store(r)
		}
		if b == nil && r.memory == nil {
			r.memory = make([]byte, MaxReserve)
		}
		r.again, r.buffer = false, b
	}
	r.length = n
	b := r.bytes()[:n:n]
	r.held.Store(true)
	return b, nil
}

// takeReserved takes from the application what it has reserved, nil if that is nothing.
func (st *stream) takeReserved() *reservation {
	if r := st.reserved.Load(); r != nil && r.held.Swap(false) {
		return r
	}
	return nil
}

// bytes is what was reserved.
func (r *reservation) bytes() []byte {
	if r.buffer != nil {
		return r.buffer.Bytes()
	}
	return r.memory
}

// free ends the use of what was reserved.
func (r *reservation) free() {
	if r.buffer != nil {
		r.buffer.Free()
	}
}

func (st *stream) releaseReserve() {
	if r := st.takeReserved(); r != nil {
		r.free()
	}
}

func (st *stream) commit(n int) (err error) {
	r := st.takeReserved()
	if r == nil {
		return errNothingReserved
	}
	if n < 0 || n > r.length {
		r.held.Store(true)
		return errCommit(n, r.length)
	}
	defer func() {
		r.free()
		r.again = true
	}()
	switch {
	case n == 0:
	case r.buffer != nil:
		_, err = st.send(r.buffer, n)
	default:
		_, err = st.write(r.memory[:n])
	}
	return err
}

func (st *stream) send(b *link.Buffer, n int) (int, error) {
	racedetector.Release()
	sent, err := st.s.Send(b, n)
	return sent, st.cause(err)
}

// readFrom does not hold the write lock while r reads, which may take for ever.
func (st *stream) readFrom(c *Conn, r io.Reader) (int, error) {
	if !c.life.lock(dirWrite) {
		return 0, c.opError(opWrite, net.ErrClosed)
	}
	b, err := st.s.TakeBuffer()
	c.exit(c.life.unlock(dirWrite))
	if err == syscall.EPIPE { // over TCP a copy of nothing does not meet it
		err = nil
	}
	if st.cause(err) != nil {
		return 0, c.opError(opWrite, inCall(opWrite, err))
	}
	if b == nil {
		return c.readFromScratch(r)
	}
	defer b.Free() // also if r panics
	n, rerr := r.Read(b.Bytes())
	if n < 0 || n > len(b.Bytes()) {
		return 0, errInvalidRead
	}
	if n > 0 {
		if !c.life.lock(dirWrite) {
			giveBack(r, n)
			return 0, c.opError(opWrite, net.ErrClosed)
		}
		sent, err := st.send(b, n)
		c.exit(c.life.unlock(dirWrite))
		if err != nil {
			giveBack(r, n-sent)
			return sent, c.opError(opWrite, inCall(opWrite, err))
		}
	}
	return n, rerr
}

func (st *stream) closeRead() error  { return inShutdown(st.s.CloseRead()) }
func (st *stream) closeWrite() error { return inShutdown(st.s.CloseWrite()) }

func inShutdown(err error) error {
	if err == syscall.ENOTCONN {
		return os.NewSyscallError("shutdown", err)
	}
	return err
}

func (st *stream) setDeadlines(t time.Time, from, to direction) {
	st.deadlines.Lock()
	defer st.deadlines.Unlock()
	if from == dirRead {
		_ = st.s.SetReadDeadline(t) // fails if it was closed, and then nobody waits
	}
	if to == dirWrite {
		_ = st.s.SetWriteDeadline(t)
	}
}

func (st *stream) setBusyPoll(d time.Duration) { st.s.SetBusyPoll(d) }

// growReadBuffer: rings grow and shrink by themselves, and not below what was asked for.
func (st *stream) growReadBuffer(bytes int) { st.s.SetReadBuffer(max(bytes, MinReadBuffer)) }

func (st *stream) configureKeepAlive(change func(old net.KeepAliveConfig) net.KeepAliveConfig) {
	st.s.SetKeepAlive(change)
}

func (st *stream) shut(reset bool) {
	if err := st.s.Failure(); err != nil {
		_ = st.cause(err) // what no call has seen
	}
	if reset {
		_ = st.s.Reset() // fails if it was closed, which it was not
	} else {
		_ = st.s.Close()
	}
}

// finish: what the peer's library has not taken in after linger the lane keeps for it.
func (st *stream) finish(linger time.Duration) {
	st.closeLiveness()
	if st.left.Load() > 1 { // it has not finished in Close
		st.s.FinishWithin(linger)
	}
	if st.leave() {
		st.gone()
	}
}

// finished is called when the stream is, with the lane's lock held.
func (st *stream) finished() {
	if st.leave() {
		go st.gone() // it asks for the lock
	}
}

// leave records that the stream is finished, or that no call is inside the Conn any more, and
// reports whether both are so.
func (st *stream) leave() (gone bool) { return st.left.Add(-1) == 0 }

func (st *stream) lane() (id, link uint64) { return st.s.Lane() }

func (st *stream) deviceName() string { return st.s.Device() }
func (st *stream) hasChecksum() bool  { return st.s.Checksum() }

func (st *stream) stats() ConnStats {
	s := st.s.Status()
	return connStats(&s)
}

func connStats(s *link.Status) ConnStats {
	return ConnStats{
		BytesRead: s.Read, BytesWritten: s.Written, MessagesSent: s.Sent, MessagesReceived: s.Received,
		DoorbellsSent: s.Sent + s.CreditsSent + s.RecordsSent, DoorbellsReceived: s.Received + s.CreditsGot + s.RecordsGot,
		CreditsSent: s.CreditsSent, CreditsReceived: s.CreditsGot, RingsGrown: s.Grown,
		CreditStalls: s.Stalls, CreditStallTime: s.StallTime, Spins: s.Spins, Parks: s.Parks,
		BytesCopied: s.Copied, BytesPlaced: s.Placed, ReadBuffer: s.ReadBuffer, WriteBuffer: s.WriteBuffer,
		ChecksumErrors: s.ChecksumErrors, WakeupsSent: s.Wakeups, WakeupsSuppressed: s.Quiet, KeepAlivesSent: s.KeepAlives,
	}
}

// describe has i tell of one moment.
func (st *stream) describe(i *ConnInfo) {
	s := st.s.Status()
	i.ConnStats = connStats(&s)
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
