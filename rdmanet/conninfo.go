package rdmanet

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// ConnInfo is what can be seen of a connection from outside, as ss(8) shows it for TCP.
type ConnInfo struct {
	Network       string
	Local, Remote netip.AddrPort
	Device        string
	Accepted      bool // it was accepted, not dialled
	State         ConnState
	Since         time.Time // when it was established

	// Lane and Link are the numbers of the lane that carries the connection and of its link, as
	// in LaneInfo.
	Lane, Link uint64

	// Unread is how many bytes have arrived in the receive ring, of ReadBuffer, that
	// the application has not read.
	Unread int

	// Writable is how many bytes fit in the peer's ring, of WriteBuffer, and Credits
	// how many messages the peer has room for. With either 0 a Write waits.
	Writable, Credits int

	// SendQueue is how many work requests are not known to be complete, of
	// SendQueueSize. On a lane both, and Credits, are those of all its connections.
	SendQueue, SendQueueSize int

	// Checksum reports that the connection has checksums. What they take of the rings counts
	// in Unread and Writable.
	Checksum bool

	// Registered is the memory of the receive ring, in bytes.
	Registered int

	ConnStats
}

// ConnState is what a connection is still good for. It prints itself as ss does.
type ConnState uint8

// The states of a connection.
const (
	StateEstablished ConnState = iota // ESTAB: both directions are open
	StateCloseWait                    // CLOSE-WAIT: the peer has ended its stream, this end has not
	StateFinWait                      // FIN-WAIT: this end has ended its stream, the peer has not
	StateClosing                      // CLOSING: both have, or Close was called and bytes are still to arrive
	StateFailed                       // FAILED: it was reset, or the peer is gone; Close was not called yet
)

var stateNames = [...]string{"ESTAB", "CLOSE-WAIT", "FIN-WAIT", "CLOSING", "FAILED"}

func (s ConnState) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "?"
}

// MarshalText implements encoding.TextMarshaler.
func (s ConnState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Conns describes the connections of this process, the oldest first. Those that were
// closed are among them until all that they sent has arrived.
func Conns() []ConnInfo {
	conns := live.conns()
	all := make([]ConnInfo, len(conns))
	for i, st := range conns {
		all[i] = st.info()
	}
	return all
}

func (st *stream) info() ConnInfo {
	i := ConnInfo{
		Network: st.network.String(), Local: unmapped(st.localAddr().AddrPort()), Remote: unmapped(st.remoteAddr().AddrPort()),
		Device: st.deviceName(), Accepted: st.accepted, Checksum: st.hasChecksum(), Since: epoch.Add(st.since),
	}
	i.Lane, i.Link = st.lane()
	st.describe(&i)
	return i
}

// ListenerInfo is what can be seen of a listener from outside.
type ListenerInfo struct {
	Network string
	Addr    netip.AddrPort
	Device  string // "" if it listens on several, or by TCP alone
	Backlog int    // how many connections may wait for Accept
	ListenerStats
}

// Listeners describes the listeners of this process, by address.
func Listeners() []ListenerInfo {
	live.mu.Lock()
	listeners := live.listenersLocked()
	live.mu.Unlock()
	all := make([]ListenerInfo, len(listeners))
	for i, l := range listeners {
		all[i] = ListenerInfo{
			Network: l.network, Addr: unmapped(l.addr.AddrPort()), Device: l.device(),
			Backlog: l.backlog, ListenerStats: l.Stats(),
		}
	}
	slices.SortFunc(all, func(a, b ListenerInfo) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Network, b.Network))
	})
	return all
}
