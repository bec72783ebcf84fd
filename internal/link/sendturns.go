package link

import (
	"slices"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// What a lane has under way that the device reads after the post is bounded: by its send memory and, from
// Buffers, by maxInFlight. Streams that find no room for their bytes have it in turns, a message each, in
// the order in which they came. Else who has it next is who happens to run, as a rule the one that polls.

// sendTurns are the streams that wait for such room. The lane's lock guards it.
type sendTurns struct {
	waiting []*stream // the next first
	called  int       // that were told of room and have not taken it
}

// sendTurn is where a stream is in the sendTurns that its Write goes by.
type sendTurn uint8

const (
	turnNone    sendTurn = iota
	turnAwaited          // it waits
	turnCalled           // there may be room, and nobody takes it before
)

// may reports whether s may take some of so many bytes of room: nobody has waited for longer, but for those
// that were called, to whom it leaves theirs.
func (t *sendTurns) may(s *stream, room int) bool {
	return s.out.sendTurn == turnCalled || len(t.waiting) == 0 && (t.called == 0 || t.leaves(room))
}

// leaves reports whether there is room for another beside those that were called.
func (t *sendTurns) leaves(room int) bool { return t.called*lane.MaxMessage < room }

// await has s wait for its turn. One that was called, and has found too little, is the next again.
func (t *sendTurns) await(s *stream) {
	switch s.out.sendTurn {
	case turnCalled:
		t.called--
		t.waiting = slices.Insert(t.waiting, 0, s)
	case turnNone:
		t.waiting = append(t.waiting, s)
	}
	s.out.sendTurn = turnAwaited
}

// end is for a stream that has taken room, or does not want any.
func (t *sendTurns) end(s *stream) {
	switch s.out.sendTurn {
	case turnCalled:
		t.called--
	case turnAwaited:
		t.waiting = slices.DeleteFunc(t.waiting, func(o *stream) bool { return o == s })
		s.out.writable = true // the next call looks for itself: nobody tells it
	}
	s.out.sendTurn = turnNone
}

// call tells the next streams of room for so many bytes: as many as may each have a large message there,
// and one at least.
func (t *sendTurns) call(e *laneEnd, room int) {
	for len(t.waiting) > 0 && t.leaves(room) {
		s := pop(&t.waiting)
		t.called++
		s.out.sendTurn, s.out.writable = turnCalled, true
		s.out.waiter.found(e)
	}
}

// awaitTurn has s, for whose bytes there is no room, wait until there may be. mu is held.
func (e *laneEnd) awaitTurn(t *sendTurns, s *stream) {
	t.await(s)
	s.out.writable = false
	e.blocks.Store(true)
	e.unseen.Store(true)
}

// awaitStaging has s wait for send memory. mu is held.
func (e *laneEnd) awaitStaging(s *stream) {
	e.stagingDue()
	e.awaitTurn(&e.staging.turns, s)
}

// callTurns tells those of room who wait for it. mu is held.
func (e *laneEnd) callTurns() {
	e.staging.turns.call(e, e.staging.free())
	e.buffers.inFlight.turns.call(e, e.buffers.inFlight.room())
}

// endTurn ends the turn of the stream, if it has one or waits for one: what room is left is for others. mu
// is held.
func (s *stream) endTurn(t *sendTurns) {
	switch {
	case s.out.sendTurn == turnNone:
	case s.e.err != nil: // all that wait leave, and nobody is called any more
		s.out.sendTurn = turnNone
	default:
		t.end(s)
		s.e.callTurns()
	}
}
