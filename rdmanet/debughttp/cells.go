package debughttp

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A cell is a field of a row of the page. Title is its exact value where Text is rounded.
type cell struct{ Label, Text, Title, Href string }

// Empty reports whether the cell has nothing to say.
func (c cell) Empty() bool { return c.Text == "-" || c.Text == "" }

// A record is a row of the page.
type record struct {
	Anchor string
	Class  string // bad, warn or ""
	Cells  []cell
}

func listenerAnchor(i int) string           { return "listener-" + strconv.Itoa(i) }
func connAnchor(i int) string               { return "conn-" + strconv.Itoa(i) }
func laneAnchor(l *rdmanet.LaneInfo) string { return fmt.Sprintf("lane-%d", l.ID) }

// cellsOf gives the fields of a row of text their labels. An address stays beside the sign
// that says who dialled.
func cellsOf(columns []column, r row) []cell {
	cells := make([]cell, len(r))
	for i, text := range r {
		if label := columns[i].Name; label == "Remote" || label == "Peer" {
			text = strings.ReplaceAll(text, " ", "\u00a0")
		}
		cells[i] = cell{Label: columns[i].Name, Text: text}
	}
	return cells
}

// set changes what the cell of a column shows.
func set(cells []cell, label string, change func(*cell)) {
	for i := range cells {
		if cells[i].Label == label {
			change(&cells[i])
		}
	}
}

// sized has a cell show n of size bytes with units, and exactly where it is pointed at.
func sized(n, of int) func(*cell) {
	return func(c *cell) { c.Title, c.Text = c.Text+" bytes", size(n)+" of "+size(of) }
}

// listenerColumns are those of listeners in the page, where they have a table of their own.
var listenerColumns = []column{
	{"Address", "address that it listens at"},
	{"Network", "network that was asked for"},
	{"Device", "RDMA device; * for several, or for TCP alone"},
	{"Waiting", "connections that wait for Accept, of the backlog"},
	{"Accepted", "RDMA connections handed to Accept"},
	{"By TCP", "TCP connections handed to Accept"},
	{"Refused", "requests that were refused, and clients of another user"},
	{"Failed", "clients that left or failed before the connection stood, said nothing in time, or gave way to others"},
	{"Shortages", "times that clients had to wait for lack of descriptors or memory"},
}

// listenerRecords, connRecords and laneRecords are the rows of the page; links to others are
// made of q.
func (l listing) listenerRecords() []record {
	records := make([]record, len(l.Listeners))
	for i := range l.Listeners {
		n := &l.Listeners[i]
		records[i] = record{Anchor: listenerAnchor(i), Cells: listenerCells(n)}
		if fullBacklog(n) {
			records[i].Class = "warn"
		}
	}
	return records
}

func listenerCells(n *rdmanet.ListenerInfo) []cell {
	return cellsOf(listenerColumns, row{
		n.Addr.String(), n.Network, cmp.Or(n.Device, "*"), fmt.Sprintf("%d of %d", n.Pending, n.Backlog),
		fmt.Sprint(n.Accepted), fmt.Sprint(n.AcceptedTCP), fmt.Sprint(n.Refused + n.Malformed + n.Denied),
		fmt.Sprint(n.Failed + n.TimedOut + n.Evicted), fmt.Sprint(n.Shortages),
	})
}

func (l listing) connRecords(q query) []record {
	records := make([]record, len(l.Conns))
	for i := range l.Conns {
		c := &l.Conns[i]
		r := record{Anchor: connAnchor(i), Cells: connCells(c, l.Time)}
		set(r.Cells, "Lane", func(cell *cell) {
			if c.Lane != 0 {
				cell.Href = q.onlyLane(c.Lane)
			}
		})
		if kind, _, ok := problemOf(c, l.Time); ok {
			r.Class = "warn"
			if kind.Severe() {
				r.Class = "bad"
			}
		}
		records[i] = r
	}
	return records
}

func connCells(c *rdmanet.ConnInfo, now time.Time) []cell {
	cells := cellsOf(columns, connRow(c, now))
	set(cells, "Unread", sized(c.Unread, c.ReadBuffer))
	set(cells, "Room", sized(c.Writable, c.WriteBuffer))
	return cells
}

func (l listing) laneRecords(q query) []record {
	records := make([]record, len(l.Lanes))
	for i := range l.Lanes {
		n := &l.Lanes[i]
		r := record{Anchor: laneAnchor(n), Cells: laneCells(n, l.Time)}
		set(r.Cells, "Lane", func(c *cell) { c.Href = q.onlyLane(n.ID) })
		set(r.Cells, "Link", func(c *cell) { c.Href = q.onlyLink(n.Link) })
		if n.Waiting > 0 {
			r.Class = "warn"
		}
		records[i] = r
	}
	return records
}

func laneCells(n *rdmanet.LaneInfo, now time.Time) []cell {
	cells := cellsOf(laneColumns, laneRow(n, now))
	set(cells, "Memory", func(c *cell) { c.Title, c.Text = c.Text+" bytes", size(n.Registered) })
	return cells
}

// linkColumns are those of links, which are in the page alone.
var linkColumns = []column{
	{"Link", "its number in this process"},
	{"Peer", "the process at the other end; > dialled, < accepted"},
	{"Device", "RDMA device"},
	{"Lanes", "lanes that it has"},
	{"Conns", "connections that they carry, of those that they have carried"},
	{"Places", "connections that may be opened without asking the listener, and dials that wait for a place"},
	{"Memory", "bytes that are registered for rings"},
	{"Age", "since its oldest lane began to come up"},
}

// linkRecords are the links of the lanes, each with what its lanes have together.
func (l listing) linkRecords(q query) []record {
	type link struct {
		first           *rdmanet.LaneInfo
		lanes, conns    int
		opened          uint64
		places, waiting int
		registered      int
		since           time.Time
	}
	var order []*link
	byID := map[uint64]*link{}
	for i := range l.Lanes {
		n := &l.Lanes[i]
		k := byID[n.Link]
		if k == nil {
			k = &link{first: n, since: n.Since}
			byID[n.Link] = k
			order = append(order, k)
		}
		k.lanes++
		k.conns += n.Conns
		k.opened += n.Opened
		k.places += n.Places
		k.waiting += n.Waiting
		k.registered += n.Registered
		if n.Since.Before(k.since) {
			k.since = n.Since
		}
	}
	records := make([]record, len(order))
	for i, k := range order {
		cells := cellsOf(linkColumns, row{
			fmt.Sprint(k.first.Link), direction(k.first.Accepted) + " " + peerOf(k.first), k.first.Device, fmt.Sprint(k.lanes),
			fmt.Sprintf("%d/%d", k.conns, k.opened), fmt.Sprintf("%d, %d", k.places, k.waiting),
			fmt.Sprint(k.registered), age(l.Time.Sub(k.since)),
		})
		set(cells, "Link", func(c *cell) { c.Href = q.onlyLink(k.first.Link) })
		set(cells, "Memory", func(c *cell) { c.Title, c.Text = c.Text+" bytes", size(k.registered) })
		records[i] = record{Cells: cells}
	}
	return records
}

// peerOf is what the lanes of a link have in common of the peer's address: who dials has a
// port for each.
func peerOf(l *rdmanet.LaneInfo) string {
	if l.Accepted && l.Remote != (netip.AddrPort{}) {
		return l.Remote.Addr().String()
	}
	return l.Remote.String()
}

func (q query) onlyLane(id uint64) string { return q.only(query{lane: id}) }
func (q query) onlyLink(id uint64) string { return q.only(query{link: id}) }

// only asks for what is, as often as q.
func (q query) only(is query) string {
	is.refresh = q.refresh
	return "?" + is.values().Encode()
}

// size is n bytes with a unit, to about three digits.
func size[N int | int64](n N) string {
	v, unit := float64(n), "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, larger
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	digits := 0
	if v < 100 {
		digits = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', digits, 64), ".0") + " " + unit
}
