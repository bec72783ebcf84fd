package link

import (
	"net"
	"os"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// QueryQP asks the device for the attributes of the QP that carries the stream.
func (h *Stream) QueryQP() (verbs.QPAttr, error) {
	e := h.now().e
	if !e.begin() {
		return verbs.QPAttr{}, net.ErrClosed
	}
	defer e.tasks.Done()
	attr, _, err := e.p.qp.Query()
	return attr, err
}

// Device returns the name of the device that carries the stream.
func (h *Stream) Device() string { return h.now().e.p.ctx.Device().Name() }

// Checksum reports whether what is read is compared with what was sent.
func (h *Stream) Checksum() bool { return h.now().st.Frames() != nil }

// A Status is what can be seen of a stream.
type Status struct {
	Read, Written           uint64 // bytes that the program took and gave
	Copied, Placed          uint64 // of them, those that were copied, and those that were not
	Unread, Writable        int    // bytes that wait to be read, and that the peer has room for
	ReadBuffer, WriteBuffer int    // sizes of the rings of either end

	Sent, Received uint64 // messages with data
	CreditsSent    uint64 // that gave room back
	CreditsGot     uint64 // and gave this end room
	RecordsSent    uint64 // about the stream: its begin and its end, and other rings
	RecordsGot     uint64
	Grown          uint64        // larger rings that were offered
	Stalls         uint64        // of Writes that have waited for room or do
	StallTime      time.Duration // so far
	Spins, Parks   uint64        // waits that polling ended, and sleeps
	Wakeups, Quiet uint64        // messages for which the device has woken the peer, and for which not
	KeepAlives     uint64        // signs of life that its lane asked for while it was there
	ChecksumErrors uint64        // 1 if wrong bytes were found, on a lane with checksums

	// What it shares with the other streams of its lane: receives that the peer has left, and
	// requests that are not known to be complete, of those that may be.
	FreeSlots            int
	SendQueue, SendDepth int
	KeepAlive            net.KeepAliveConfig

	Shut   bool // CloseWrite was called
	Ended  bool // the peer has said its last byte
	Closed bool // Close was called
	Err    error
}

// Status may be asked for at any time. Of a stream that is about to be elsewhere it tells what is there: until then
// it counts what is not taken along.
func (h *Stream) Status() Status {
	s := h.lockNow()
	defer h.unlock()
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	rx, tx := s.st.Receiver(), s.st.Sender()
	st := Status{
		Read: s.taken(), Written: s.written(),
		Unread: int(rx.Buffered()), Writable: max(tx.Free(), 0),
		ReadBuffer: int(rx.Ring().Size), WriteBuffer: int(tx.Ring().Size),
		KeepAlive: s.keepAlive(),
		Shut:      s.end.shut, Ended: s.st.Ended(), Closed: s.end.closed,
	}
	s.e.countWoken()
	n, rare := &s.counts, s.counts.seldom()
	st.Sent, st.Received = n.sent, n.received
	st.Stalls, st.StallTime = n.stalledUntil(time.Since(epoch))
	st.CreditsSent, st.CreditsGot = n.creditsOut, n.creditsIn
	st.RecordsSent, st.RecordsGot, st.Grown = n.recordsOut, n.recordsIn, rare.grown
	st.Wakeups, st.Quiet, st.KeepAlives = n.wakeups, n.quiet, s.keepAlives()
	st.Copied, st.Placed = s.copied(st.Read, st.Written)
	st.FreeSlots, _ = s.e.state.Slots()
	st.SendQueue, st.SendDepth = int(s.e.sq.posted-s.e.sq.completed), int(s.e.sq.cap)
	for _, w := range []*waiter{&s.in.waiter, &s.out.waiter} {
		st.Spins += w.spins
		st.Parks += w.parks.Load()
	}
	if s.in.corrupt != nil {
		st.ChecksumErrors = 1
	}
	st.Err = s.failure()
	return st
}

// copied returns how many of the bytes that were read and written were copied to or from registered
// memory, and how many the device or the program took where they were. mu is held.
func (s *stream) copied(read, written uint64) (copied, placed uint64) {
	n := s.counts.seldom()
	copied, placed = read-n.placedIn-n.discarded, n.placedIn
	if s.e.p.synchronous {
		return copied, placed + written
	}
	return copied + written - n.placedOut, placed + n.placedOut
}

// Failure returns why an open stream has failed, or nil.
func (h *Stream) Failure() error {
	s := h.now()
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.failure()
}

// Ended reports whether the peer sends no more: it has ended its stream, or the stream has failed. It takes in what
// has come where no call does so; one that polls or sleeps has it in a moment, and is not woken for this.
func (h *Stream) Ended() bool {
	s := h.now()
	e := s.e
	e.mu.Lock()
	if e.err == nil && !s.st.Ended() {
		e.tasks.Add(1)
		e.pollUnpolled()
		e.tasks.Done()
	}
	ended := s.st.Ended() || s.failure() != nil
	e.mu.Unlock()
	e.startWorker() // of what has come
	return ended
}

// awaitWritable waits until something can be written, or never will be. mu is held, and the turn.
func (s *stream) awaitWritable() error {
	for {
		if s.out.waiter.expired() && !s.end.gone.Load() {
			return os.ErrDeadlineExceeded
		}
		err := s.writeErr()
		if err == nil && s.out.writable && s.st.Free() == 0 {
			_, err = s.message(nil, nil, false, summed{}) // which has the machine tell of room
			s.e.settle()
		}
		if err != nil || s.out.writable {
			return err
		}
		if err := s.stall(); err != nil {
			return err
		}
	}
}

// SetBusyPoll sets how long a call that has to wait polls before it sleeps: as long as it pays
// for 0, and never below.
func (h *Stream) SetBusyPoll(d time.Duration) {
	s := h.lockNow()
	defer h.unlock()
	s.in.waiter.busyPoll.Store(int64(d))
	s.out.waiter.busyPoll.Store(int64(d))
}
