package link

import (
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// reachPatience is how long an opened stream waits before Accept has it, though its first Write may
// have to wait then.
const reachPatience = time.Second

// An unannounced stream is one of which nobody has been told.
type unannounced struct {
	s *stream
	d *dial // nil at a listener
}

// announce tells of a stream as soon as it can be written to. mu is held.
func (e *laneEnd) announce(n unannounced) {
	e.unannounced = append(e.unannounced, n)
	e.announceReady(false)
	if len(e.unannounced) == 0 {
		return
	}
	e.blocks.Store(true)
	e.unseen.Store(true)
	if e.role == lane.RoleListener && len(e.unannounced) == 1 {
		e.listener.bePatient()
	}
}

// announceReady tells of the streams that can be written to, in order, or of all when the lane
// has ended: what they have received can be read. One that has ended meanwhile is not looked at: its ring may
// be gone. mu is held.
func (e *laneEnd) announceReady(all bool) {
	for len(e.unannounced) > 0 {
		n := e.unannounced[0]
		if !all && n.s.writeErr() == nil && !n.s.reaches() {
			return
		}
		if len(e.unannounced) == 0 || e.unannounced[0].s != n.s {
			continue // what completed meanwhile has brought us here before
		}
		pop(&e.unannounced)
		if len(e.unannounced) == 0 && e.listener.patient != nil {
			e.listener.patient.Stop()
		}
		if n.d != nil {
			n.d.finish()
		} else {
			e.acceptable(n.s)
		}
	}
	e.listener.noteNoMoreStreams()
}

// acceptable hands a stream to those who accept, and only then answers its OPEN: a dialer waits for
// that with its next one on another lane. mu is held.
func (e *laneEnd) acceptable(s *stream) {
	e.owner.opened(s)
	if s.st.Reset() { // before it came here
		e.owner.reset(s)
	}
	if e.err != nil {
		return
	}
	if err := e.state.Accept(s.st); err != nil {
		e.failLocked(err)
	}
}
