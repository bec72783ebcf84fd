package link

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring/lane"
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
		if !e.passOn() {
			break
		}
	}
	e.endsSafe()
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
			e.endPosted(m.Record.Stream)
		}
	}
}

// say posts a message that is no data, about a stream if that is not nil. The error is that of a
// record that cannot be.
func (e *laneEnd) say(m *lane.Message, about *stream, signaled bool) error {
	// A WRITE of nothing still needs an address that the key covers.
	w := target{addr: e.peer.Records, rkey: e.peer.RKey, imm: m.Imm, solicited: m.Solicited, signaled: signaled, about: about}
	if m.Record.Kind != 0 {
		if err := m.Record.Put(e.record[:]); err != nil {
			return err
		}
		w.addr += uint64(m.Place) * lane.RecordLen
		w.inline = e.record[:]
	}
	e.post(&w)
	return nil
}

// room reports whether n requests may be posted.
func (e *laneEnd) room(n int) bool {
	if e.sq.room() >= max(n, sendDepth/2) {
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
	e.endsConfirmed()
	e.endsSafe()
	e.announceReady(false)
	e.blocks.Store(e.stuck || e.awaited()) // Writes that are woken say so again
	for _, s := range e.blocked {
		s.blocked, s.writable = false, true
		s.writer.found(e)
	}
	clear(e.blocked)
	e.blocked = e.blocked[:0]
}

// blocking reports whether somebody waits for the send queue. mu is held.
func (e *laneEnd) blocking() bool { return e.stuck || len(e.blocked) > 0 || e.awaited() }

// awaited reports whether something waits for completions but Writes. mu is held.
func (e *laneEnd) awaited() bool {
	return len(e.leaving)+len(e.unannounced) > 0 || len(e.endWaits) > 0 && !e.p.sameHost
}

// block notes that a stream's data waits for the send queue.
func (e *laneEnd) block(s *stream) {
	s.writable = false
	if !s.blocked {
		s.blocked = true
		e.blocked = append(e.blocked, s)
	}
	e.blocks.Store(true)
	e.unseen.Store(true)
}

// target says where a message goes and what it brings.
type target struct {
	addr      uint64
	rkey      uint32
	imm       uint32
	solicited bool
	signaled  bool
	about     *stream // nil if it is about none
	head      []byte  // of a frame, by a WRITE of its own before the rest
	inline    []byte
	staged    verbs.SGE // if there is nothing inline
}

// post posts a message: a WRITE with its doorbell as the immediate or, where there is none, in
// a SEND behind it. The caller has made sure of the room. It reports whether the device has taken
// the message; if it has not, or not the request that confirms it, the lane ends.
func (e *laneEnd) post(t *target) (taken bool) {
	e.counts.messagesOut++
	wr := &e.wrs[1]
	wr.Flags, wr.Inline, wr.SGList = 0, nil, nil
	switch {
	case t.inline != nil:
		wr.Flags, wr.Inline = verbs.SendInline, t.inline
	case t.staged.Length > 0:
		e.sge[0] = t.staged
		wr.SGList = e.sge[:]
	}
	wr.RemoteAddr, wr.RKey = t.addr+uint64(len(t.head)), t.rkey
	wrs := e.wrs[1:2]
	if e.p.writeImm {
		wr.Opcode, wr.ImmData = verbs.WRRDMAWriteWithImm, t.imm
	} else {
		wr.Opcode = verbs.WRRDMAWrite
		binary.BigEndian.PutUint32(e.bell[:], t.imm)
		e.wrs[2] = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: e.bell[:]}
		wrs = e.wrs[1:]
		if wr.Inline == nil && wr.SGList == nil {
			wrs = e.wrs[2:]
		}
	}
	if t.head != nil {
		e.wrs[0] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: t.head, RemoteAddr: t.addr, RKey: t.rkey}
		wrs = e.wrs[:1+len(wrs)]
	}
	if t.solicited {
		wrs[len(wrs)-1].Flags |= verbs.SendSolicited
	}
	end := e.sq.posted + uint64(len(wrs))
	err := e.sq.post(wrs, t.signaled || t.staged.Length > 0)
	wr.Inline = nil // keep nothing of the application's
	e.countWoken(t.about)
	if err != nil {
		e.sendFailed(err)
	}
	return e.sq.posted >= end
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
	return verbs.Explain(why.Error(), why, err)
}
