package debughttp

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A problem is something that an operator should look at.
type problem struct {
	Kind   problemKind
	Of     string // whose it is
	Detail string
	Anchor string // of its row in the page, if it has one
}

// problemKind says what is wrong; the worst is the first.
type problemKind uint8

const (
	problemFailed   problemKind = iota // the connection has ended by a failure
	problemChanged                     // bytes did not arrive as they were sent
	problemMemory                      // rings have used up what they may take
	problemNoRoom                      // the peer takes nothing
	problemStalled                     // Writes wait for the peer most of the time
	problemUnread                      // this program does not read
	problemNotTaken                    // this program does not accept
	problemNoPlace                     // dials wait for the listener
	numProblemKinds                    // how many there are
)

var problemNames = [numProblemKinds]string{"failed", "changed bytes", "memory", "no room", "stalled", "unread", "not accepted", "no place"}

func (k problemKind) String() string { return problemNames[k] }

// Severe reports whether something is lost already.
func (k problemKind) Severe() bool { return k <= problemChanged }

// problems are those of the listing, the worst first and otherwise in its order.
func (l listing) problems() []problem {
	var all []problem
	if l.MemoryLimit > 0 && l.MemoryInUse >= l.MemoryLimit-l.MemoryLimit/8 {
		all = append(all, problem{
			problemMemory, "process",
			fmt.Sprintf("rings and send buffers take %s of %s: rings do not grow, and connections may be refused", size(l.MemoryInUse), size(l.MemoryLimit)), "",
		})
	}
	for i := range l.Listeners {
		if n := &l.Listeners[i]; fullBacklog(n) {
			all = append(all, problem{
				problemNotTaken, "listener " + n.Addr.String(),
				fmt.Sprintf("%d connections wait for Accept, and there is room for no more", n.Pending), listenerAnchor(i),
			})
		}
	}
	for i := range l.Conns {
		if kind, detail, ok := problemOf(&l.Conns[i], l.Time); ok {
			c := &l.Conns[i]
			all = append(all, problem{kind, c.Local.String() + " " + direction(c.Accepted) + " " + c.Remote.String(), detail, connAnchor(i)})
		}
	}
	for i := range l.Lanes {
		if n := &l.Lanes[i]; n.Waiting > 0 {
			all = append(all, problem{
				problemNoPlace, fmt.Sprintf("lane %d to %s", n.ID, n.Remote),
				fmt.Sprintf("dials that wait for a place at the listener: %d", n.Waiting), laneAnchor(n),
			})
		}
	}
	slices.SortStableFunc(all, func(a, b problem) int { return cmp.Compare(a.Kind, b.Kind) })
	return all
}

// problemOf is the worst that there is to say of a connection.
func problemOf(c *rdmanet.ConnInfo, now time.Time) (kind problemKind, detail string, ok bool) {
	writes := c.State == rdmanet.StateEstablished || c.State == rdmanet.StateCloseWait
	age := now.Sub(c.Since)
	switch {
	case c.ChecksumErrors > 0:
		return problemChanged, "bytes did not arrive as they were sent: something between the two programs changes them", true
	case c.State == rdmanet.StateFailed:
		return problemFailed, "it was reset, or the peer is gone; the program has not called Close", true
	case writes && c.WriteBuffer > 0 && c.Writable == 0:
		return problemNoRoom, "the peer's ring of " + size(c.WriteBuffer) + " is full: the peer does not read", true
	case writes && c.WriteBuffer > 0 && c.Credits == 0:
		return problemNoRoom, "the peer has room for no message: its process gets no processor", true
	case writes && age >= time.Second && c.CreditStallTime >= age/2:
		return problemStalled, fmt.Sprintf("Writes waited for the peer for %v of %v: the peer reads too slowly, or its ring is too small",
			short(c.CreditStallTime), age.Truncate(time.Second)), true
	case c.ReadBuffer > 0 && c.Unread >= c.ReadBuffer:
		return problemUnread, "the receive ring of " + size(c.ReadBuffer) + " is full: this program does not read", true
	}
	return 0, "", false
}

func fullBacklog(l *rdmanet.ListenerInfo) bool { return l.Backlog > 0 && l.Pending >= l.Backlog }
