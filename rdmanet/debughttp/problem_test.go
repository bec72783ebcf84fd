package debughttp

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// troubled is a process that has every kind of problem, with long addresses.
func troubled() listing {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	addr := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8:1234:5678:9abc:def0:1234:%x", 0x1000+n)), uint16(40000+n))
	}
	l := listing{
		Time: now, Host: "storage-frontend-17.rack-b.example.net", Program: "server", PID: 4711,
		MemoryInUse: 15 << 28, MemoryLimit: 4 << 30,
		Listeners: []rdmanet.ListenerInfo{
			{Network: "tcp", Addr: netip.MustParseAddrPort("[::]:7000"), Backlog: 4096, ListenerStats: rdmanet.ListenerStats{Accepted: 12345, Pending: 4096, Refused: 1, Denied: 2}},
			{Network: "rdma", Addr: addr(0), Device: "mlx5_0", Backlog: 4096, ListenerStats: rdmanet.ListenerStats{Accepted: 7}},
		},
	}
	for i := range 9 {
		c := rdmanet.ConnInfo{
			Network: "tcp", Local: addr(100 + i), Remote: addr(200 + i), Device: "mlx5_0", Accepted: i%2 == 0, Since: now.Add(-time.Duration(i+1) * time.Minute),
			Lane: uint64(1 + i%2), Link: uint64(1 + i%2), Writable: 12 << 10, Credits: 500, SendQueue: 9, SendQueueSize: 128,
		}
		c.ReadBuffer, c.WriteBuffer = 16<<10, 256<<10
		switch i {
		case 2:
			c.CreditStalls, c.CreditStallTime = 77, 2*time.Minute
		case 3:
			c.Writable = 0
		case 4:
			c.Credits = 0
		case 5:
			c.Unread = c.ReadBuffer
		case 6:
			c.Checksum, c.ChecksumErrors = true, 1
			c.State = rdmanet.StateFailed
		case 7:
			c.State, c.Writable = rdmanet.StateFailed, 0
		case 8: // nothing is to be written any more
			c.State, c.Writable = rdmanet.StateFinWait, 0
		}
		l.Conns = append(l.Conns, c)
	}
	for i := range 2 {
		l.Lanes = append(l.Lanes, rdmanet.LaneInfo{
			ID: uint64(1 + i), Link: uint64(1 + i), Device: "mlx5_0", Local: addr(300 + i), Remote: addr(400 + i), Accepted: i == 0,
			State: rdmanet.LaneUp, Since: now.Add(-time.Hour), Epoch: 0xbeef, Conns: 5, Opened: 50, Places: 30, Waiting: 3 * i,
			Credits: 500, Receives: 512, SendQueue: 9, SendQueueSize: 128, Registered: 640 << 10,
		})
	}
	return l
}

func TestProblems(t *testing.T) {
	var kinds []string
	for _, p := range troubled().problems() {
		kinds = append(kinds, p.Kind.String())
		require.NotEmpty(t, p.Of)
		require.NotEmpty(t, p.Detail)
	}
	require.Equal(t, []string{"failed", "changed bytes", "memory", "no room", "no room", "stalled", "unread", "not accepted", "no place"}, kinds,
		"the worst first")
}

func TestNoProblem(t *testing.T) {
	now := time.Now()
	c := rdmanet.ConnInfo{Since: now.Add(-time.Hour), Writable: 1, Credits: 1}
	c.ReadBuffer, c.WriteBuffer = 1024, 1024
	c.CreditStalls, c.CreditStallTime = 1000, 29*time.Minute
	_, _, ok := problemOf(&c, now)
	require.False(t, ok, "it waited for less than half of its life")
	c.Since, c.CreditStallTime = now.Add(-900*time.Millisecond), 800*time.Millisecond
	_, _, ok = problemOf(&c, now)
	require.False(t, ok, "it is too young to tell")
	_, _, ok = problemOf(new(rdmanet.ConnInfo), now)
	require.False(t, ok, "it has no rings yet")
	require.Empty(t, listing{MemoryInUse: 1}.problems(), "there is no limit")
	require.Empty(t, listing{Listeners: []rdmanet.ListenerInfo{{}}}.problems(), "one of TCP alone has no backlog")
}

// TestProblemsFirst looks at the page of a process in trouble. RDMANET_PAGE names a file to
// keep it in, for .ci/browser.
func TestProblemsFirst(t *testing.T) {
	page := get(t, handler(troubled), "?refresh=60", "text/html").Body.String()
	if name := os.Getenv("RDMANET_PAGE"); name != "" {
		require.NoError(t, os.WriteFile(name, []byte(page), 0o644))
	}
	before := -1
	for _, part := range []string{
		"<b>server</b>, process <b>4711</b> on <b>storage-frontend-17.rack-b.example.net</b>", "rings 3.8 GiB of 4 GiB",
		`<li class="bad"><b>failed</b> <a href="#conn-7">`, `<li class="warn"><b>no room</b>`,
		`<section id="connections">`, `id="conn-7" class="bad"`, `id="conn-8"><td`,
		`<section id="listeners">`, `<section id="links">`, `<section id="lanes">`,
	} {
		at := strings.Index(page, part)
		require.Greater(t, at, before, "%s is missing or not where it belongs", part)
		before = at
	}
	require.Contains(t, page, `title="12288/262144 bytes">12 KiB of 256 KiB<`)
	require.Contains(t, page, `<td data-label="Lane"><a href="?lane=2&amp;refresh=60">2</a></td>`)
	require.Contains(t, page, `<meta http-equiv="refresh" content="60">`)
	require.NotContains(t, get(t, handler(troubled), "", "text/html").Body.String(), "http-equiv")
	require.Contains(t, get(t, handler(func() listing { return listing{} }), "", "text/html").Body.String(), "Nothing has failed")
}

func TestManyProblems(t *testing.T) {
	many := func() listing {
		l := listing{Conns: make([]rdmanet.ConnInfo, mostProblems+3)}
		for i := range l.Conns {
			l.Conns[i].State = rdmanet.StateFailed
		}
		return l
	}
	page := get(t, handler(many), "", "text/html").Body.String()
	require.Equal(t, mostProblems, strings.Count(page, `<li class="bad">`))
	require.Contains(t, page, "And 3 more.")
	require.Equal(t, mostProblems+3, strings.Count(page, `class="bad"><td`))
}
