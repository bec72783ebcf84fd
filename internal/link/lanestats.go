package link

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// LaneStats is what can be seen of a lane.
type LaneStats struct {
	ID, Link      uint64 // numbers of the lane and of its link in this process
	State         LaneState
	Since         time.Time // when it began to come up
	Epoch         uint32
	Device        string
	Local, Remote netip.AddrPort
	Dialer        bool // this end opens streams

	Streams int    // that are open at either end
	Opened  uint64 // so far
	Places  int    // that the listener has granted and nobody has taken yet
	Waiting int    // dials of this end that wait for a place

	BytesSent, BytesReceived uint64
	FreeSlots, Slots         int // receives that the peer has left, and has in all
	SendQueue, SendDepth     int // requests that are not known to be complete, of those that may be

	Memory int64 // bytes registered for rings and Buffers

	LaneCounts
}

// LaneState is what a lane is still good for.
type LaneState uint8

// The states of a lane.
const (
	LaneComingUp LaneState = iota // nothing has come from the peer yet
	LaneUp
	LaneGoingAway // no stream is opened on it any more
	LaneClosing   // it has ended, and is being destroyed
)

// laneState is that of e. mu is held.
func (e *laneEnd) laneState() LaneState {
	switch {
	case e.err != nil:
		return LaneClosing
	case e.away:
		return LaneGoingAway
	case e.heard:
		return LaneUp
	}
	return LaneComingUp
}

// laneCounts are counters of a lane. The lane's lock guards them.
type laneCounts struct {
	opened                  uint64
	bytesIn, bytesOut       uint64
	messagesIn, messagesOut uint64
	wakeups                 uint64
	resizes, refusals       uint64
}

// Lane returns the numbers of the stream's lane and link in this process.
func (h *Stream) Lane() (id, link uint64) {
	p := &h.now().e.place
	return p.id, p.link
}

// LaneStats may be asked for at any time, also of a stream that is closed: it is that of its lane.
func (h *Stream) LaneStats() LaneStats { return h.now().e.stats() }

func (e *laneEnd) stats() LaneStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := &e.counts
	s := LaneStats{
		ID: e.place.id, Link: e.place.link, State: e.laneState(), Since: e.place.since, Epoch: e.epoch,
		Device: e.p.ctx.Device().Name(), Local: e.id.LocalAddr(), Remote: e.id.RemoteAddr(),
		Dialer:  e.role == lane.RoleDialer,
		Streams: e.live, Opened: n.opened,
		Waiting:   len(e.dialer.waiting),
		BytesSent: n.bytesOut, BytesReceived: n.bytesIn,
		SendQueue: int(e.sq.posted - e.sq.completed), SendDepth: int(e.sq.cap),
		Memory: e.slab.Registered() + e.buffers.slab.Registered(),
		LaneCounts: LaneCounts{
			MessagesSent: n.messagesOut, MessagesReceived: n.messagesIn,
			Wakeups: n.wakeups, KeepAlives: e.alive.asked, Resizes: n.resizes, Refusals: n.refusals,
		},
	}
	if e.sq.counter != nil {
		all := e.sq.counter.QPStats()
		s.WakeupsSent, s.WakeupsSuppressed = all.WakeupsSent, all.WakeupsSuppressed
		s.Refusals += all.MissedMRs
	}
	switch {
	case s.State >= LaneGoingAway, e.dialer.busy: // nobody can take them
	case e.dialer.port != 0: // one stream at a time has the port
		s.Places = min(e.state.Places(), 1)
	default:
		s.Places = e.state.Places()
	}
	s.FreeSlots, s.Slots = e.state.Slots()
	return s
}

// Requests counts the requests for lanes that a Listener could not grant.
type Requests struct {
	Refused uint64 // malformed, of another version, or there was nothing to make a lane of
	Failed  uint64 // the dialer left before it got a place, or did not send its first message in time
	Evicted uint64 // likewise, while others waited
}

// ended counts a lane that has ended, if that was before it had a place, and reports whether it
// gave way to others. The Listener's lock is held.
func (r *Requests) ended(e *laneEnd, why error) (evicted bool) {
	switch {
	case e.listener.share.served:
	case errors.Is(why, errGaveWay):
		r.Evicted++
		return true
	case errors.Is(why, net.ErrClosed):
		r.Refused++
	default:
		r.Failed++
	}
	return false
}

// Requests may be asked for at any time.
func (l *Listener) Requests() Requests {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Lanes returns the statistics of all lanes that stand, in no order.
func (l *Links) Lanes() []LaneStats {
	l.mu.Lock()
	lanes := slices.Collect(maps.Keys(l.lanes))
	l.mu.Unlock()
	return statsOf(lanes)
}

// Lanes is that of a dialer's links for a Listener.
func (l *Listener) Lanes() []LaneStats {
	l.mu.Lock()
	lanes := slices.Collect(maps.Keys(l.lanes))
	l.mu.Unlock()
	return statsOf(lanes)
}

// statsOf is called without the owner's lock, which comes behind those of lanes.
func statsOf(lanes []*laneEnd) []LaneStats {
	out := make([]LaneStats, len(lanes))
	for i, e := range lanes {
		out[i] = e.stats()
	}
	return out
}

// note has a lane that was brought up among those that Lanes tells of, until it is gone.
func (l *Links) note(e *laneEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !e.failed.Load() { // else its end may have been told already
		if l.lanes == nil {
			l.lanes = map[*laneEnd]struct{}{}
		}
		l.lanes[e] = struct{}{}
	}
}
