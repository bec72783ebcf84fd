package debughttp

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A column is the head of one and what it means.
type column struct{ Name, Meaning string }

// columns are those of listeners and connections.
var columns = []column{
	{"State", "ESTAB, CLOSE-WAIT (the peer has ended its stream), FIN-WAIT (this end has), CLOSING, FAILED, LISTEN"},
	{"Local", "address of this end"},
	{"Remote", "address of the peer; > dialled, < accepted"},
	{"Device", "RDMA device"},
	{"Lane", "the lane that carries it"},
	{"Unread", "bytes in the receive ring that were not read, of its size; of a listener: connections that wait for Accept, of the backlog"},
	{"Room", "bytes that fit in the peer's ring, of its size"},
	{"Credits", "messages that the peer has room for"},
	{"Send-Q", "work requests not known to be complete, of those that may be"},
	{"Stalls", "how often a Write waited for the peer, and for how long together"},
	{"CRC", "messages that did not arrive as they were sent; - without checksums"},
	{"Age", "since it was established"},
}

// A row has a cell for each column.
type row []string

// rows are the listeners and then the connections, the oldest first.
func (l listing) rows() []row {
	rows := make([]row, 0, len(l.Listeners)+len(l.Conns))
	for i := range l.Listeners {
		rows = append(rows, listenerRow(&l.Listeners[i]))
	}
	for i := range l.Conns {
		rows = append(rows, connRow(&l.Conns[i], l.Time))
	}
	return rows
}

func listenerRow(l *rdmanet.ListenerInfo) row {
	return row{
		"LISTEN", l.Addr.String(), "*", cmp.Or(l.Device, "*"), "-",
		of(l.Pending, l.Backlog), "-", "-", "-", "-", "-", "-",
	}
}

func connRow(c *rdmanet.ConnInfo, now time.Time) row {
	return row{
		c.State.String(), c.Local.String(), direction(c.Accepted) + " " + c.Remote.String(), c.Device, lane(c),
		of(c.Unread, c.ReadBuffer), of(c.Writable, c.WriteBuffer), fmt.Sprint(c.Credits),
		of(c.SendQueue, c.SendQueueSize), stalls(c), checksum(c), age(now.Sub(c.Since)),
	}
}

// laneColumns are those of lanes.
var laneColumns = []column{
	{"State", "COMING-UP, UP, GOING-AWAY (it carries what it has), CLOSING"},
	{"Local", "address of this end's QP"},
	{"Remote", "that of the peer's; > dialled, < accepted"},
	{"Device", "RDMA device"},
	{"Lane", "its number in this process"},
	{"Link", "number of its link: all lanes of one dialing process to one listener"},
	{"Epoch", "number that the dialer has drawn for the lane, the same at both ends"},
	{"Conns", "connections that it carries, of those that it has carried"},
	{"Places", "connections that may be opened without asking the listener, and dials that wait for a place"},
	{"Credits", "messages that the peer has room for, of its receives"},
	{"Send-Q", "work requests not known to be complete, of those that may be"},
	{"Memory", "bytes that are registered for rings"},
	{"Age", "since it began to come up"},
}

func (l listing) laneRows() []row {
	rows := make([]row, len(l.Lanes))
	for i := range l.Lanes {
		rows[i] = laneRow(&l.Lanes[i], l.Time)
	}
	return rows
}

func laneRow(l *rdmanet.LaneInfo, now time.Time) row {
	return row{
		l.State.String(), l.Local.String(), direction(l.Accepted) + " " + l.Remote.String(), l.Device,
		fmt.Sprint(l.ID), fmt.Sprint(l.Link), fmt.Sprintf("%08x", l.Epoch), fmt.Sprintf("%d/%d", l.Conns, l.Opened),
		fmt.Sprintf("%d, %d", l.Places, l.Waiting), of(l.Credits, l.Receives), of(l.SendQueue, l.SendQueueSize),
		fmt.Sprint(l.Registered), age(now.Sub(l.Since)),
	}
}

func direction(accepted bool) string {
	if accepted {
		return "<"
	}
	return ">"
}

func lane(c *rdmanet.ConnInfo) string {
	if c.Lane == 0 {
		return "-"
	}
	return fmt.Sprint(c.Lane)
}

func of(n, size int) string { return fmt.Sprintf("%d/%d", n, size) }

func stalls(c *rdmanet.ConnInfo) string {
	if c.CreditStalls == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, %v", c.CreditStalls, short(c.CreditStallTime))
}

func checksum(c *rdmanet.ConnInfo) string {
	if !c.Checksum {
		return "-"
	}
	return fmt.Sprint(c.ChecksumErrors)
}

// age is d to the second.
func age(d time.Duration) string { return max(d, 0).Truncate(time.Second).String() }

// short is d to about three digits.
func short(d time.Duration) time.Duration {
	for unit := time.Second; unit > time.Nanosecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}
