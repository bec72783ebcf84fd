package link

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// settle sends what is due and tells what has happened, until there is neither. It is to be
// called after each change of the machine, with mu held.
func (e *laneEnd) settle() {
	for {
		if e.state.Due() {
			e.pump()
		} else {
			e.stuck = false
		}
		if !e.state.Happened() || !e.passOn() { // as behind most messages
			break
		}
	}
	if len(e.ends.waits) > 0 {
		e.ends.safe()
	}
}

// passOn tells what has happened so far. It reports whether there was more than that something
// has arrived, of which nothing can become due. mu is held.
func (e *laneEnd) passOn() (more bool) {
	for st := e.state.Readable(); st != nil; st = e.state.Readable() {
		e.readable(st)
	}
	for e.state.Happened() {
		more = true
		ev, _ := e.state.Event()
		e.happened(&ev)
	}
	return more
}

// pump posts the messages that are no data.
func (e *laneEnd) pump() {
	for e.err == nil {
		if !e.room(2) {
			if !e.stuck { // who sleeps has not armed the queue for that
				e.stuck = true
				e.blocks.Store(true)
				e.unseen.Store(true)
			}
			return
		}
		m, ok := e.state.Next()
		if !ok {
			e.stuck = false
			return
		}
		about := e.countSaid(&m)
		last := m.Record.Kind == lane.KindClose || m.Record.Kind == lane.KindReset
		if err := e.say(&m, about, last); err != nil {
			e.failLocked(err)
			return
		}
		if last {
			e.ends.sent(m.Record.Stream)
		}
	}
}

// say posts a message that is no data, about a stream if that is not nil. The error is that of a
// record that cannot be.
func (e *laneEnd) say(m *lane.Message, about *stream, signaled bool) error {
	// A WRITE of nothing still needs an address that the key covers.
	wr := e.request(e.peer.Records, e.peer.RKey, m.Bell)
	if m.Record.Kind != 0 {
		if err := m.Record.Put(e.record[:]); err != nil {
			return err
		}
		wr.RemoteAddr += uint64(m.Place) * lane.RecordLen
		wr.Flags |= verbs.SendInline
		wr.Inline = e.record[:]
	}
	e.post(about, nil, signaled)
	return nil
}

// room reports whether n requests may be posted, at most half of what the queue holds.
func (e *laneEnd) room(n int) bool {
	if e.sq.hasHalf() {
		return true
	}
	e.reap()
	return e.sq.room() >= n
}

// reap takes in completed requests, and wakes who waits for that. It reports whether there
// were any.
func (e *laneEnd) reap() bool {
	if e.err != nil {
		return false
	}
	some, err := e.sq.reap()
	if err != nil {
		e.sendFailed(err)
		return true
	}
	e.sent(e.sq.completed)
	if e.staging.freed(e.sq.completed) || some {
		e.unblock()
		return true
	}
	return false
}

// reapAndSettle is for a caller that would not settle otherwise: a stream that the completions have made
// acceptable is answered. mu is held.
func (e *laneEnd) reapAndSettle() {
	if e.reap() && e.err == nil {
		e.settle()
	}
}

// unblock has those look again who wait for the send queue.
func (e *laneEnd) unblock() {
	e.ends.confirmed()
	e.ends.safe()
	e.announceReady(false)
	e.callTurns()
	e.blocks.Store(e.stuck || e.awaited()) // Writes that are woken say so again
	for _, s := range e.blocked {
		s.out.blocked, s.out.writable = false, true
		s.out.waiter.found(e)
	}
	clear(e.blocked)
	e.blocked = e.blocked[:0]
}

// unblockAndSettle is unblock for a caller that would not settle otherwise, as reapAndSettle is. mu is held.
func (e *laneEnd) unblockAndSettle() {
	e.unblock()
	if e.err == nil {
		e.settle()
	}
}

// blocking reports whether somebody waits for the send queue. mu is held.
func (e *laneEnd) blocking() bool { return e.stuck || len(e.blocked) > 0 || e.awaited() }

// awaited reports whether something waits for completions but Writes that look again with each. mu is held.
func (e *laneEnd) awaited() bool {
	return len(e.ends.leaving)+len(e.unannounced)+len(e.staging.turns.waiting)+len(e.buffers.inFlight.turns.waiting) > 0 || len(e.ends.waits) > 0 && !e.p.sameHost
}

// block notes that a stream's data waits for the send queue.
func (e *laneEnd) block(s *stream) {
	s.out.writable = false
	if !s.out.blocked {
		s.out.blocked = true
		e.blocked = append(e.blocked, s)
	}
	e.blocks.Store(true)
	e.unseen.Store(true)
}

// request returns the request of the next message, for the caller to say what it brings: inline, by
// SGList, or nothing. post posts it. mu is held.
func (e *laneEnd) request(addr uint64, rkey uint32, bell lane.Bell) *verbs.SendWR {
	wr := &e.wrs[1]
	wr.Flags, wr.Inline, wr.SGList = 0, nil, nil
	if bell.Solicited {
		wr.Flags = verbs.SendSolicited
	}
	wr.RemoteAddr, wr.RKey, wr.ImmData = addr, rkey, bell.Imm
	return wr
}

// gather has wr bring what is in registered memory. mu is held.
func (e *laneEnd) gather(wr *verbs.SendWR, from verbs.SGE) {
	e.sge[0] = from
	wr.SGList = e.sge[:]
}

// post posts the message of request, about a stream if that is not nil: a WRITE with its doorbell as
// the immediate or, where there is none, in a SEND behind it. head goes before its bytes by a WRITE
// of its own. The caller has made sure of the room. It reports whether the device has taken the
// message; if it has not, or not the request that confirms it, the lane ends.
func (e *laneEnd) post(about *stream, head []byte, signaled bool) (taken bool) {
	e.counts.messagesOut++
	wr := &e.wrs[1]
	signaled = signaled || len(wr.SGList) > 0
	wrs := e.wrs[1:2]
	if e.p.writeImm {
		wr.Opcode = verbs.WRRDMAWriteWithImm
	} else {
		wrs = e.ringApart(wr)
	}
	if head != nil {
		e.wrs[0] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: head, RemoteAddr: wr.RemoteAddr, RKey: wr.RKey}
		wr.RemoteAddr += uint64(len(head))
		wrs = e.wrs[:1+len(wrs)]
	}
	end := e.sq.posted + uint64(len(wrs))
	e.countFor(about)
	err := e.sq.post(wrs, signaled)
	wr.Inline = nil // keep nothing of the application's
	if err != nil {
		e.sendFailed(err)
	}
	return e.sq.posted >= end
}

// ringApart has the doorbell of wr be a SEND behind it, or in its place if it brings nothing, and
// returns both.
func (e *laneEnd) ringApart(wr *verbs.SendWR) []verbs.SendWR {
	binary.BigEndian.PutUint32(e.bell[:], wr.ImmData)
	e.wrs[2] = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | wr.Flags&verbs.SendSolicited, Inline: e.bell[:]}
	wr.Opcode = verbs.WRRDMAWrite
	wr.Flags &^= verbs.SendSolicited
	if wr.Inline == nil && wr.SGList == nil {
		return e.wrs[2:]
	}
	return e.wrs[1:]
}

// sendFailed ends the lane whose request was not taken or has not completed.
func (e *laneEnd) sendFailed(err error) { e.end(e.sendErr(err)) }

// sendErr is why a lane ends whose request has failed with err.
func (e *laneEnd) sendErr(err error) error {
	gone := errGone
	if errors.Is(err, verbs.WCRetryExcErr) && !e.p.sameHost { // the peer's device does not answer
		gone = errNoAnswer
	}
	return fmt.Errorf("%w: %w", gone, err)
}

// causeOf is why a lane ends that is about to end for err. If that is for the sake of a request
// that has failed, its completion says so, and may not have been taken in before. mu is held.
func (e *laneEnd) causeOf(err error) error {
	if errors.Is(err, errRemoved) {
		return err
	}
	_, failed := e.sq.reap()
	switch {
	case failed == nil, errors.Is(failed, verbs.WCWRFlushErr): // which is for another's sake
		return err
	case err == errGone:
		return e.sendErr(failed)
	}
	why := e.sendErr(failed)
	return driver.Explain(why.Error(), why, err)
}
