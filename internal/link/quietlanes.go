package link

import (
	"log/slog"
	"net/netip"
	"slices"

	"github.com/rdmanet/go-rdmanet/internal/asynclog"
)

// maxQuietLanes bounds the lanes that clients of one address have at a listener and on which the program has
// no stream: it has closed all that there were, whether or not the client has answered that.
// A dialer keeps its own for ten seconds; one that keeps them for ever would take a QP, its queues
// and memory for each.
const maxQuietLanes = 128

// quietLanes are those lanes of a listener, by the client's address, those that became so first at the
// front. The Listener's lock guards them.
type quietLanes map[netip.Addr][]*laneEnd

// add takes in a lane whose last stream was closed, or that had none yet. It returns one that has to
// go for it, or nil.
func (q quietLanes) add(e *laneEnd) (over *laneEnd) {
	host := e.listener.ports.host
	if slices.Contains(q[host], e) {
		return nil
	}
	if q[host] = append(q[host], e); len(q[host]) > maxQuietLanes {
		over = q[host][0]
		q.remove(over)
	}
	return over
}

// remove takes out a lane on which the program has a stream, or that has ended, if it is there.
func (q quietLanes) remove(e *laneEnd) {
	host := e.listener.ports.host
	if q[host] = slices.DeleteFunc(q[host], func(o *laneEnd) bool { return o == e }); len(q[host]) == 0 {
		delete(q, host)
	}
}

// quiet notes that the program has no stream on a lane. Where its client has too many of that kind the one
// that has been so for the longest goes away: what its dialer opens meanwhile is served, and its next
// dial goes by a new lane. The lane's lock is held.
func (l *Listener) quiet(e *laneEnd) {
	if e.away || e.err != nil {
		return
	}
	l.mu.Lock()
	over := l.quietLanes.add(e)
	l.mu.Unlock()
	if over != nil {
		asynclog.Log(l.cfg.logger(), slog.LevelDebug, "link: a lane without streams gives way", "listener", l.Addr(), "from", e.listener.ports.host)
		go over.listener.leave(false) // it has a lock of its own
	}
}

// busy notes that the program has a stream on a lane again. The lane's lock is held.
func (l *Listener) busy(e *laneEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quietLanes.remove(e)
}
