package link

import (
	"net/netip"
	"slices"
)

// maxQuietLanes bounds the lanes without a stream that clients of one address have at a listener.
// A dialer keeps its own for ten seconds; one that keeps them for ever would take a QP, its queues
// and memory for each.
const maxQuietLanes = 128

// quietLanes are the lanes of a listener that carry no stream, by the client's address, those
// that became so first at the front. The Listener's lock guards them.
type quietLanes map[netip.Addr][]*laneEnd

// add takes in a lane whose last stream has gone, or that had none yet. It returns one that has to
// go for it, or nil.
func (q quietLanes) add(e *laneEnd) (over *laneEnd) {
	host := e.ports.host
	if slices.Contains(q[host], e) {
		return nil
	}
	if q[host] = append(q[host], e); len(q[host]) > maxQuietLanes {
		over = q[host][0]
		q.remove(over)
	}
	return over
}

// remove takes out a lane that has a stream, or has ended, if it is there.
func (q quietLanes) remove(e *laneEnd) {
	host := e.ports.host
	if q[host] = slices.DeleteFunc(q[host], func(o *laneEnd) bool { return o == e }); len(q[host]) == 0 {
		delete(q, host)
	}
}

// quiet notes that a lane carries no stream. Where its client has too many of that kind the one
// that has been so for the longest goes away, as when the listener closes: nothing is lost that
// its dialer opens meanwhile, and its next dial goes by a new lane. The lane's lock is held.
func (l *Listener) quiet(e *laneEnd) {
	if e.away || e.err != nil {
		return
	}
	l.mu.Lock()
	over := l.quietLanes.add(e)
	l.mu.Unlock()
	if over != nil {
		l.cfg.logger().Debug("link: a lane without streams gives way", "listener", l.Addr(), "from", e.ports.host)
		go over.leaveListener() // it has a lock of its own
	}
}

// busy notes that a lane carries streams, or has ended. The lane's lock is held.
func (l *Listener) busy(e *laneEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quietLanes.remove(e)
}
