package link

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// poll takes in what has completed, for all, and reports whether there may be more. Only who
// has the poll role calls it, without mu.
func (e *laneEnd) poll() (more bool) {
	_, more = e.pollAny()
	return more
}

// pollAny is poll that also reports whether there was anything.
func (e *laneEnd) pollAny() (some, more bool) {
	some, more = e.pollLocked()
	if some {
		e.mu.Unlock()
		e.startWorker()
	}
	return some, more
}

// pollLocked is pollAny that returns with mu held if some is true.
func (e *laneEnd) pollLocked() (some, more bool) {
	if e.failed.Load() {
		return false, false
	}
	ending, begun := e.ending.Load(), e.pollWaiters.begun()
	n, err := e.p.recvCQ.Poll(e.polling.wcs[:])
	if n == 0 && err == nil && ending == nil && !e.blocks.Load() && begun == e.pollWaiters.served.Load() {
		return false, false
	}
	if !e.mu.tryLock() {
		e.mu.Lock()
	}
	some = e.takeIn(n, err)
	e.pollWaiters.polled(begun, n < len(e.polling.wcs))
	if ending != nil && err == nil && n < len(e.polling.wcs) {
		e.failLocked(e.causeOf(*ending))
		some = true
	}
	if !some {
		e.mu.Unlock()
	}
	return some, n == len(e.polling.wcs)
}

// pollKept polls once for a call that holds mu, if the role is kept for one: most calls find
// what they wait for by that, and need nothing else of the poll role.
// It reports whether there may be more.
func (e *laneEnd) pollKept() (more bool) {
	if e.polling.kept.number == 0 || e.err != nil || e.ending.Load() != nil {
		return false
	}
	e.polling.kept.back()
	n, err := e.p.recvCQ.Poll(e.polling.wcs[:])
	if n > 0 || err != nil || e.blocks.Load() {
		e.takeIn(n, err)
	}
	return n == len(e.polling.wcs)
}

// takeIn takes in the first n of wcs, or why polling has failed, and what requests have
// completed if somebody waits for that. It reports whether there was anything. mu is held.
func (e *laneEnd) takeIn(n int, err error) (some bool) {
	switch {
	case e.err != nil:
		return true
	case err != nil:
		e.failLocked(err)
		return true
	}
	some = n > 0
	e.arrived(e.polling.wcs[:n])
	blocks := e.blocks.Load()
	if blocks {
		some = e.reap() || some
	}
	if some || e.stuck {
		e.settle()
	}
	if blocks {
		e.blocks.Store(e.blocking())
	}
	return some
}

// arrived takes in completed receives and posts them again.
func (e *laneEnd) arrived(wcs []verbs.WC) {
	if len(wcs) == 0 {
		return
	}
	e.counts.messagesIn += uint64(len(wcs))
	for i := range wcs {
		if err := e.message(&wcs[i], len(wcs) == 1); err != nil {
			e.settle() // what was said before it
			e.failLocked(err)
			return
		}
	}
	if !e.repostNow && e.p.postpones(len(wcs)) { // as a rule
		return
	}
	reposted, err := e.p.repost(wcs, e.repostNow)
	e.repostNow = false
	if err != nil {
		e.sendFailed(err)
		return
	}
	if reposted > 0 {
		if err := e.state.Reposted(reposted); err != nil {
			e.failLocked(err)
		}
	}
}

// message takes in one, which has come alone or with others.
func (e *laneEnd) message(wc *verbs.WC, alone bool) error {
	if wc.Status != verbs.WCSuccess {
		return e.receiveFailed(wc.Status)
	}
	imm := wc.ImmData
	if !e.p.writeImm || wc.Opcode != verbs.WCRecvRDMAWithImm {
		var err error
		if imm, err = e.p.sentDoorbell(wc); err != nil {
			return err
		}
	}
	if !e.heard {
		e.heard = true
		if e.role == lane.RoleListener {
			e.listener.firstMessage()
		}
	}
	d, err := lane.ParseDoorbell(imm)
	if err != nil {
		return err // which names what is wrong with it
	}
	if d.Type != lane.TypeControl {
		// It is nil for an id that is no stream's: of slots that is 0.
		s := e.streams.At(d.Stream)
		if s != nil && alone && d.Type == lane.TypeData { // a stream of many is in no hurry
			s.fetch(d.N)
		}
		if err = e.state.ArriveDoorbell(d, nil); err != nil {
			return err
		}
		e.countArrived(s, d)
		return nil
	}
	// What records took up is given back as soon as can be: the peer has few places for them.
	e.repostNow = true
	// The peer can write there, so it is copied before it is looked at.
	var record [lane.RecordLen]byte
	at := int(e.got&uint32(e.recordPlaces()-1)) * lane.RecordLen
	copy(record[:], e.p.remote.Bytes()[at:])
	e.got++
	if err := e.state.ArriveDoorbell(d, record[:]); err != nil {
		return err
	}
	// Before the next message: of places that come and are asked back at once, the dials that
	// wait take theirs first.
	e.passOn()
	e.countRecord(record[:]) // of a stream that it may have opened
	return e.err
}

// recordPlaces is how many records either ring of records holds.
func (e *laneEnd) recordPlaces() int { return min(e.peer.Places, e.p.records) }

// receiveFailed is why the lane ends whose receive did not complete. A flush says that the QP
// is in ERR: the peer is gone, or this end gave up.
func (e *laneEnd) receiveFailed(status verbs.WCStatus) error {
	switch status {
	case verbs.WCLocLenErr, verbs.WCLocQPOpErr, verbs.WCRemInvReqErr:
		return fmt.Errorf("%w: a SEND that is longer than a doorbell: %w", verbs.ErrProtocol, status)
	case verbs.WCWRFlushErr:
		if err := e.ending.Load(); err != nil {
			return e.causeOf(*err)
		}
		return e.causeOf(errGone)
	}
	return fmt.Errorf("%w: %w", errGone, status)
}

// readable records that something has arrived for a stream.
func (e *laneEnd) readable(st *lane.Stream) {
	s := e.streams.At(st.ID())
	if s == nil || s.st != st {
		return // nobody is interested in it any more
	}
	s.in.waiter.found(e)
	if s.wantsRing() {
		e.growDue(s)
	}
}

// happened passes an event of the machine on.
func (e *laneEnd) happened(ev *lane.Event) {
	switch ev.Kind {
	case lane.EventPlaces:
		e.dialer.granted(int(ev.Count))
		return
	case lane.EventWant:
		e.listener.note(noteWanted, int(ev.Count))
		return
	case lane.EventGoAway:
		if ev.Stage == lane.StageStopped {
			e.listener.freeUntaken()
		}
		e.goAway(ev.Stage)
		return
	case lane.EventReadable:
		e.readable(ev.Stream)
		return
	case lane.EventWritable:
		e.writableAgain(ev.Stream)
		return
	case lane.EventAborted:
		e.failLocked(accused(ev.Err))
		return
	case lane.EventOpened:
		e.listener.opened(ev.Stream)
		return
	case lane.EventReleased:
		e.listener.released(ev.Stream)
		return
	}
	s := e.streams.At(ev.Stream.ID())
	if s == nil || s.st != ev.Stream {
		return // nobody is interested in it any more
	}
	switch ev.Kind {
	case lane.EventMoved:
		s.reclaim()
		return
	case lane.EventAccepted:
		e.dialer.answered(s)
		s.settled()
		return
	case lane.EventRefused:
		e.dialer.answered(s)
		if ev.Code == lane.CodeGoingAway || ev.Code == lane.CodePort && s.re.proposed {
			e.dialer.lost(s, ev.Code)
		} else {
			s.failWith(reset(ev.Code))
		}
	case lane.EventReset:
		e.dialer.answered(s)
		s.failWith(reset(ev.Code))
		e.owner.reset(s)
	case lane.EventBroken:
		s.failWith(ended(ev.Err))
		e.owner.reset(s)
	case lane.EventRedial:
		e.dialer.answered(s)
		e.dialer.lost(s, lane.CodeGoingAway)
	case lane.EventClosed:
	}
	s.out.writable = true
	s.in.waiter.found(e)
	s.out.waiter.found(e)
	s.free()
}

// writableAgain has a Write look that waits. If none does, the turn of the stream is another's.
func (e *laneEnd) writableAgain(st *lane.Stream) {
	waits := false
	if s := e.streams.At(st.ID()); s != nil && s.st == st {
		s.out.writable = true
		waits = s.out.waiter.number != 0 // and passes the turn on: see stall
		s.out.waiter.found(e)
	}
	if !waits {
		e.state.PassTurn(st)
	}
}
