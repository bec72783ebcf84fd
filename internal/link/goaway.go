package link

import "github.com/rdmanet/go-rdmanet/ring/lane"

// goAway takes a step of a listener that takes no more streams.
func (e *laneEnd) goAway(stage lane.Stage) {
	switch stage {
	case lane.StageAnnounce:
		e.retire()
	case lane.StageStopped:
		e.listener.stopped()
	}
}

// retire has no stream opened any more. mu is held.
func (e *laneEnd) retire() {
	if e.away {
		return
	}
	e.away = true
	e.listener.note(noteLeft, 0)
	e.dialer.endDials(errRetired)
	e.owner.retired(e)
	if e.live == 0 {
		e.owner.emptied(e)
	}
}
