package rdmanet

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/link"
)

// LaneInfo is what can be seen of a lane: a QP that carries connections between two processes. The
// lanes of one dialing process to one listener are a link. A process that has both ends of a lane
// has each of them listed.
type LaneInfo struct {
	ID   uint64 // of the lane in this process, as in ConnInfo; it is not used again
	Link uint64 // of its link in this process, likewise

	Device        string
	Local, Remote netip.AddrPort // of the QP: its connections have ports of their own
	Accepted      bool           // the peer dials by it
	State         LaneState
	Since         time.Time // when it began to come up

	// Epoch is a number that the lane has at both ends and no other lane is likely to have: the
	// dialer draws it at random. By it the listings of two processes are matched.
	Epoch uint32

	Conns   int    // connections that have not ended at both ends
	Opened  uint64 // so far
	Places  int    // connections that may be opened without asking the listener
	Waiting int    // dials that wait for a place

	// Credits is how many messages the peer has room for, of Receives.
	Credits, Receives int

	// SendQueue is how many work requests are not known to be complete, of SendQueueSize.
	SendQueue, SendQueueSize int

	// Registered is the memory of the rings of its connections, until the peer has let go of it, and of what
	// Reserve and ReadFrom fill. It counts in MemoryInUse.
	Registered int

	BytesSent, BytesReceived uint64 // data of all its connections

	// KeepAlivesSent counts heartbeats to a silent peer. WakeupsSent and WakeupsSuppressed are
	// those of ConnStats for all messages, those about the lane itself included.
	KeepAlivesSent, WakeupsSent, WakeupsSuppressed uint64

	LaneStats
}

// LaneStats counts what lanes did.
type LaneStats struct {
	// MessagesSent and MessagesReceived count messages of every kind: data, credits, and those
	// about connections and about the lane itself.
	MessagesSent, MessagesReceived uint64

	// Wakeups counts how often the lane woke since something had arrived and no Read or Write
	// of a connection was there to take it in.
	Wakeups uint64

	// RingsOffered counts larger and smaller receive rings that were offered to the peer, and
	// MemoryRefusals how often there was no memory for one, or for a place, or no descriptor or
	// room for one of the peer's.
	RingsOffered, MemoryRefusals uint64
}

// LaneState is what a lane is still good for.
type LaneState uint8

// The states of a lane.
const (
	LaneComingUp  LaneState = iota // COMING-UP: nothing has come from the peer yet
	LaneUp                         // UP: connections can be opened
	LaneGoingAway                  // GOING-AWAY: it carries the connections that it has, and no others
	LaneClosing                    // CLOSING: it has ended, and its RDMA objects are being destroyed
)

var laneStateNames = [...]string{"COMING-UP", "UP", "GOING-AWAY", "CLOSING"}

func (s LaneState) String() string {
	if int(s) < len(laneStateNames) {
		return laneStateNames[s]
	}
	return "?"
}

// MarshalText implements encoding.TextMarshaler.
func (s LaneState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var laneStates = [...]LaneState{
	link.LaneComingUp: LaneComingUp, link.LaneUp: LaneUp, link.LaneGoingAway: LaneGoingAway, link.LaneClosing: LaneClosing,
}

// Lanes describes the lanes of this process, the oldest first.
func Lanes() []LaneInfo {
	lanes := link.Lanes()
	all := make([]LaneInfo, len(lanes))
	for i := range lanes {
		s := &lanes[i]
		all[i] = LaneInfo{
			ID: s.ID, Link: s.Link, Device: s.Device, Local: unmapped(s.Local), Remote: unmapped(s.Remote), Accepted: !s.Dialer,
			State: laneStates[s.State], Since: s.Since, Epoch: s.Epoch,
			Conns: s.Streams, Opened: s.Opened, Places: s.Places, Waiting: s.Waiting,
			Credits: s.FreeSlots, Receives: s.Slots, SendQueue: s.SendQueue, SendQueueSize: s.SendDepth,
			Registered: int(s.Memory), BytesSent: s.BytesSent, BytesReceived: s.BytesReceived,
			KeepAlivesSent: s.KeepAlives, WakeupsSent: s.WakeupsSent, WakeupsSuppressed: s.WakeupsSuppressed,
			LaneStats: laneStats(&s.LaneCounts),
		}
	}
	return all
}

func laneStats(n *link.LaneCounts) LaneStats {
	return LaneStats{
		MessagesSent: n.MessagesSent, MessagesReceived: n.MessagesReceived, Wakeups: n.Wakeups,
		RingsOffered: n.Resizes, MemoryRefusals: n.Refusals,
	}
}

// DeviceLanes are the lanes that one device carries or has carried.
type DeviceLanes struct {
	// Dialled and Accepted count lanes by who asked for them.
	Dialled, Accepted ConnCount

	// Links counts what has lanes now: this process as the dialer of a listener, or a dialing process
	// at a listener of this one.
	Links int

	Places  int // connections that may be opened now without asking the listener
	Waiting int // dials that wait for a place now

	LaneStats
}

// addLanes gives the rows of devices what lanes have counted. One that has carried no connection
// gets a row for its lanes.
func addLanes(rows []DeviceStats) []DeviceStats {
	sums := link.SumsOfLanes()
	for device := range sums {
		if !slices.ContainsFunc(rows, func(d DeviceStats) bool { return d.Device == device }) {
			rows = append(rows, DeviceStats{Device: device, Errors: map[string]uint64{}, FailedWRs: map[string]uint64{}})
		}
	}
	slices.SortFunc(rows, func(a, b DeviceStats) int { return cmp.Compare(a.Device, b.Device) })
	for i := range rows {
		d := &rows[i]
		n := sums[d.Device]
		if n == nil {
			continue
		}
		d.KeepAlivesSent += n.KeepAlives
		d.WakeupsSent += n.WakeupsSent
		d.WakeupsSuppressed += n.WakeupsSuppressed
		d.Lanes = DeviceLanes{
			Dialled: ConnCount(n.Dialled), Accepted: ConnCount(n.Accepted),
			Links: n.Links, Places: n.Places, Waiting: n.Waiting, LaneStats: laneStats(&n.LaneCounts),
		}
	}
	return rows
}
