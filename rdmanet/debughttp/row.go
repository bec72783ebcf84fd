package debughttp

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// columns are the heads of the table and what they mean.
var columns = []struct{ Name, Meaning string }{
	{"State", "ESTAB, CLOSE-WAIT (the peer has ended its stream), FIN-WAIT (this end has), CLOSING, FAILED, LISTEN"},
	{"Local", "address of this end"},
	{"Remote", "address of the peer; > dialled, < accepted"},
	{"Device", "RDMA device"},
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
		"LISTEN", l.Addr.String(), "*", cmp.Or(l.Device, "*"),
		of(l.Pending, l.Backlog), "-", "-", "-", "-", "-", "-",
	}
}

func connRow(c *rdmanet.ConnInfo, now time.Time) row {
	direction := ">"
	if c.Accepted {
		direction = "<"
	}
	return row{
		c.State.String(), c.Local.String(), direction + " " + c.Remote.String(), c.Device,
		of(c.Unread, c.ReadBuffer), of(c.Writable, c.WriteBuffer), fmt.Sprint(c.Credits),
		of(c.SendQueue, c.SendQueueSize), stalls(c), checksum(c), age(now.Sub(c.Since)),
	}
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
