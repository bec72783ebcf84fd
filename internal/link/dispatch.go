package link

import (
	"errors"
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// poll takes in what has completed, for all, and reports whether there may be more. Only who
// has the baton calls it, without mu.
func (e *laneEnd) poll() (more bool) {
	if e.failed.Load() {
		return false
	}
	ending := e.ending.Load()
	n, err := e.p.recvCQ.Poll(e.wcs[:])
	if n == 0 && err == nil && ending == nil && !e.blocks.Load() {
		return false
	}
	e.mu.Lock()
	switch {
	case e.err != nil:
	case err != nil:
		e.failLocked(err)
	default:
		e.arrived(e.wcs[:n])
		if e.blocks.Load() {
			e.reap()
		}
		e.settle()
		e.blocks.Store(e.stuck || len(e.blocked) > 0)
		if ending != nil && n < len(e.wcs) {
			e.failLocked(*ending)
		}
	}
	e.mu.Unlock()
	e.chore()
	return n == len(e.wcs)
}

// arrived takes in completed receives and posts them again.
func (e *laneEnd) arrived(wcs []verbs.WC) {
	if len(wcs) == 0 {
		return
	}
	e.counts.batches++
	e.counts.messagesIn += uint64(len(wcs))
	for i := range wcs {
		if err := e.message(&wcs[i]); err != nil {
			e.settle() // what was said before it
			e.failLocked(err)
			return
		}
	}
	if err := e.p.repost(wcs); err != nil {
		e.sendFailed(err)
		return
	}
	if err := e.state.Reposted(len(wcs)); err != nil {
		e.failLocked(err)
	}
}

// message takes in one.
func (e *laneEnd) message(wc *verbs.WC) error {
	if wc.Status != verbs.WCSuccess {
		return e.receiveFailed(wc.Status)
	}
	imm, err := e.p.doorbell(wc)
	if err != nil {
		return err
	}
	if !e.heard {
		e.heard = true
		e.firstWord()
	}
	if d, err := lane.ParseDoorbell(imm); err != nil || d.Type != lane.TypeControl {
		if err == nil && d.Type == lane.TypeData {
			e.counts.bytesIn += uint64(d.N)
		}
		return e.state.Arrive(imm, nil) // which names what is wrong with it
	}
	// The peer can write there, so it is copied before it is looked at.
	var record [lane.RecordLen]byte
	at := int(e.got&uint32(e.recordPlaces()-1)) * lane.RecordLen
	copy(record[:], e.p.remote.Bytes()[at:])
	e.got++
	return e.state.Arrive(imm, record[:])
}

// recordPlaces is how many records either ring of records holds.
func (e *laneEnd) recordPlaces() int { return min(e.peer.places, e.p.records) }

// receiveFailed is why the lane ends whose receive did not complete. A flush says that the QP
// is in ERR: the peer is gone, or this end gave up.
func (e *laneEnd) receiveFailed(status verbs.WCStatus) error {
	switch status {
	case verbs.WCLocLenErr, verbs.WCLocQPOpErr, verbs.WCRemInvReqErr:
		return fmt.Errorf("%w: a SEND that is longer than a doorbell: %w", verbs.ErrProtocol, status)
	case verbs.WCWRFlushErr:
		if err := e.ending.Load(); err != nil {
			return *err
		}
		return errGone
	}
	return errors.Join(errGone, status)
}

// firstWord takes note that the dialer has confirmed the connection, and says something.
func (e *laneEnd) firstWord() {
	if e.role != lane.RoleListener {
		return
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.owner.heard(e)
	e.keep.notify = true
	e.work.Store(true)
}

// happened passes an event of the machine on.
func (e *laneEnd) happened(ev *lane.Event) {
	switch ev.Kind {
	case lane.EventPlaces:
		e.asked = max(e.asked-int(ev.Count), 0)
		e.fill()
		return
	case lane.EventWant:
		e.note(noteWanted, int(ev.Count))
		return
	case lane.EventGoAway:
		e.goAway(ev.Stage)
		return
	case lane.EventPong:
		return
	case lane.EventAborted:
		e.failLocked(accused(ev.Err))
		return
	case lane.EventOpened:
		e.openArrived(ev.Stream)
		return
	case lane.EventReleased:
		e.released(ev.Stream)
		return
	}
	s := e.streams[ev.Stream.ID()]
	if s == nil || s.st != ev.Stream {
		return // nobody is interested in it any more
	}
	switch ev.Kind {
	case lane.EventReadable:
		s.counts.received++
		s.reader.found(e)
		if s.st.Receiver().WantsRing() {
			e.growDue(s)
		}
		return
	case lane.EventWritable:
		s.writable = true
		s.writer.found(e)
		return
	case lane.EventMoved:
		s.reclaim()
		return
	case lane.EventAccepted:
		return
	case lane.EventRefused, lane.EventReset:
		s.failWith(reset(ev.Code))
	case lane.EventBroken:
		s.failWith(ended(ev.Err))
	case lane.EventRedial:
		s.failWith(reset(lane.CodeGoingAway))
	case lane.EventClosed:
	}
	s.writable = true
	s.reader.found(e)
	s.writer.found(e)
	s.free()
}
