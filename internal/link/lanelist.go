package link

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// allLanes knows the lanes of the process.
var allLanes laneList

// A laneList has the lanes that exist in a map, and of those that are gone the sums. Its lock is held
// for a few pointers only, and comes behind those of lanes.
type laneList struct {
	mu    sync.Mutex
	all   map[*laneEnd]struct{}
	last  uint64
	links map[linkKey]*linkNumber
	sums  map[string]*LaneSums // by device
}

// A linkKey tells the links of this process apart.
type linkKey struct {
	role lane.Role
	host netip.Addr // of the peer
	id   hello.LinkID
}

// A linkNumber is the number of a link that has lanes.
type linkNumber struct {
	n     uint64
	lanes int
}

// placeInList says where a lane is listed. It does not change while it is.
type placeInList struct {
	id, link uint64
	since    time.Time
	key      linkKey
}

// LaneSums are counts of the lanes that a device carries or has carried.
type LaneSums struct {
	Dialled, Accepted struct {
		Open  int // now
		Total uint64
	}
	Links           int // that have lanes now
	Places, Waiting int // now
	LaneCounts
}

// LaneCounts are what a lane counts. They only grow.
type LaneCounts struct {
	MessagesSent, MessagesReceived uint64 // all: data, credits, slots and records
	WakeupsSent, WakeupsSuppressed uint64 // messages for which the device has woken the peer, and for which not
	KeepAlives                     uint64 // signs of life that were asked for
	Wakeups                        uint64 // of the lane's goroutine, by the device or by the connection manager
	Resizes                        uint64 // rings that were offered
	Refusals                       uint64 // of memory, or of room or a descriptor for the peer's
}

func (c *LaneCounts) add(o *LaneCounts) {
	c.MessagesSent += o.MessagesSent
	c.MessagesReceived += o.MessagesReceived
	c.WakeupsSent += o.WakeupsSent
	c.WakeupsSuppressed += o.WakeupsSuppressed
	c.KeepAlives += o.KeepAlives
	c.Wakeups += o.Wakeups
	c.Resizes += o.Resizes
	c.Refusals += o.Refusals
}

func (e *laneEnd) linkKey() linkKey {
	return linkKey{e.role, e.id.RemoteAddr().Addr().Unmap(), e.peer.Link}
}

// add lists a lane, before anything can happen to it.
func (l *laneList) add(e *laneEnd) {
	key, device := e.linkKey(), e.p.ctx.Device().Name()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all, l.links, l.sums = map[*laneEnd]struct{}{}, map[linkKey]*linkNumber{}, map[string]*LaneSums{}
	}
	l.all[e] = struct{}{}
	to := l.links[key]
	if to == nil {
		l.last++
		to = &linkNumber{n: l.last}
		l.links[key] = to
	}
	to.lanes++
	l.last++
	e.place = placeInList{l.last, to.n, time.Now(), key}
	if l.sums[device] == nil {
		l.sums[device] = &LaneSums{}
	}
	if n := l.sums[device]; e.role == lane.RoleDialer {
		n.Dialled.Open++
		n.Dialled.Total++
	} else {
		n.Accepted.Open++
		n.Accepted.Total++
	}
}

// remove takes out a lane of which nothing is left, and keeps what it counted.
func (l *laneList) remove(e *laneEnd) {
	last, key := e.stats(), e.place.key
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, e)
	if to := l.links[key]; to != nil {
		if to.lanes--; to.lanes == 0 {
			delete(l.links, key)
		}
	}
	n := l.sums[last.Device]
	n.add(&last.LaneCounts)
	if e.role == lane.RoleDialer {
		n.Dialled.Open--
	} else {
		n.Accepted.Open--
	}
}

// now returns the lanes of now, and the sums of those that are gone. A lane is in one of them.
func (l *laneList) now() (all []*laneEnd, sums map[string]*LaneSums) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = make([]*laneEnd, 0, len(l.all))
	for e := range l.all {
		all = append(all, e)
	}
	sums = make(map[string]*LaneSums, len(l.sums))
	for device, n := range l.sums {
		gone := *n
		sums[device] = &gone
	}
	return all, sums
}

// Lanes returns the statistics of all lanes of the process, those that come up or are being
// destroyed included, the oldest first.
func Lanes() []LaneStats {
	all, _ := allLanes.now()
	out := statsOf(all)
	slices.SortFunc(out, func(a, b LaneStats) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// SumsOfLanes returns what the lanes of the process counted so far, by device.
func SumsOfLanes() map[string]*LaneSums {
	all, sums := allLanes.now()
	links := map[uint64]bool{}
	for _, s := range statsOf(all) {
		n := sums[s.Device]
		if !links[s.Link] {
			links[s.Link] = true
			n.Links++
		}
		n.add(&s.LaneCounts)
		n.Places += s.Places
		n.Waiting += s.Waiting
	}
	return sums
}
