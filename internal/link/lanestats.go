package link

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// LaneStats is what can be seen of a lane.
type LaneStats struct {
	Device        string
	Local, Remote netip.AddrPort
	Dialer        bool // this end opens streams

	Streams int    // that are open at either end
	Opened  uint64 // so far
	Places  int    // that the listener has granted and nobody has taken yet
	Waiting int    // dials of this end that wait for a place

	BytesSent, BytesReceived       uint64
	MessagesSent, MessagesReceived uint64 // all: data, credits, slots and records
	FreeSlots, Slots               int    // receives that the peer has left, and has in all

	Batches    uint64 // times that polling has found something
	Wakeups    uint64 // of the lane's goroutine, by the device or by the connection manager
	KeepAlives uint64 // signs of life that were asked for
	Memory     int64  // bytes registered for rings and Buffers
	Resizes    uint64 // rings that were offered
	Refusals   uint64 // of memory
}

// laneCounts are counters of a lane. The lane's lock guards them.
type laneCounts struct {
	opened                  uint64
	bytesIn, bytesOut       uint64
	messagesIn, messagesOut uint64
	batches, wakeups        uint64
	resizes, refusals       uint64
}

// LaneStats may be asked for at any time, also of a stream that is closed: it is that of its lane.
func (h *Stream) LaneStats() LaneStats { return h.now().e.stats() }

func (e *laneEnd) stats() LaneStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := &e.counts
	s := LaneStats{
		Device: e.p.ctx.Device().Name(), Local: e.id.LocalAddr(), Remote: e.id.RemoteAddr(),
		Dialer:  e.role == lane.RoleDialer,
		Streams: e.live, Opened: n.opened,
		Waiting:   len(e.dials),
		BytesSent: n.bytesOut, BytesReceived: n.bytesIn,
		MessagesSent: n.messagesOut, MessagesReceived: n.messagesIn,
		Batches: n.batches, Wakeups: n.wakeups, KeepAlives: e.alive.asked,
		Memory: e.slab.registered() + e.sends.registered(), Resizes: n.resizes, Refusals: n.refusals,
	}
	s.Places = e.state.Places()
	s.FreeSlots, s.Slots = e.state.Slots()
	return s
}

// Requests counts the requests for lanes that a Listener could not grant.
type Requests struct {
	Refused uint64 // malformed, of another version, or there was nothing to make a lane of
	Failed  uint64 // the dialer left before it got a place, or did not say its first word in time
	Evicted uint64 // likewise, while others waited
}

// ended counts a lane that has ended, if that was before it had a place. The Listener's lock is
// held.
func (r *Requests) ended(e *laneEnd, why error) {
	switch {
	case e.share.served:
	case errors.Is(why, errGaveWay):
		r.Evicted++
	case errors.Is(why, net.ErrClosed):
		r.Refused++
	default:
		r.Failed++
	}
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
