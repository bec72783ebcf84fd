//go:build linux

package hosts

import (
	"net"
	"net/netip"
	"net/rpc"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A world is the two hosts, as the tests on host 0 see them.
type world [2]*host

type host struct {
	w        *world
	rank     int
	agent    *rpc.Client
	software bool // it has no RDMA device but the software device
	dead     bool
}

// needHosts skips a test for which there are no two hosts, and fails it where there must be. The
// script makes them and runs it.
func needHosts(t *testing.T, script string) {
	t.Helper()
	if os.Getenv(hostsVar) != "" {
		return
	}
	if os.Getenv("RDMANET_REQUIRE_RDMA") != "" {
		t.Fatalf("%s is not set", hostsVar)
	}
	t.Skipf("two hosts with RDMA are needed: %s makes them and runs this", script)
}

// newWorld finds the two hosts, and has an agent in this process for host 0.
func newWorld(t *testing.T) *world {
	t.Helper()
	data, err := addresses(hostsVar)
	require.NoError(t, err)
	control, err := addresses(controlVar)
	require.NoError(t, err)
	w := new(world)
	w[0], w[1] = w.ownHost(t, 0, data[0], control[0]), &host{w: w, rank: 1}
	// Host 1 may still be booting.
	var conn net.Conn
	require.Eventually(t, func() bool {
		conn, err = net.DialTimeout("tcp", netip.AddrPortFrom(control[1], agentPort).String(), time.Second)
		return err == nil
	}, 2*time.Minute, 100*time.Millisecond)
	w[1].hasAgent(t, conn)
	for _, h := range w {
		h.shape(t, "replace", noFault)
	}
	return w
}

// newOneHost plays both hosts on this one.
func newOneHost(t *testing.T) *world {
	t.Helper()
	local := netip.MustParseAddr("127.0.0.1")
	w := new(world)
	for rank := range w {
		w[rank] = w.ownHost(t, rank, local, local)
		w[rank].software = true
	}
	return w
}

// ownHost is a host whose agent is in this process.
func (w *world) ownHost(t *testing.T, rank int, data, control netip.Addr) *host {
	near, far := net.Pipe()
	go func() { _ = newAgent(data, control).serve(far) }()
	h := &host{w: w, rank: rank}
	h.hasAgent(t, near)
	return h
}

func (h *host) hasAgent(t *testing.T, conn net.Conn) {
	h.agent = rpc.NewClient(conn)
	t.Cleanup(func() { _ = h.agent.Close() })
}

// run runs a command of the system and returns what it prints. What the command
// does counts from its end: starting a program takes long on an emulated machine.
func (h *host) run(t testing.TB, line string) string {
	t.Helper()
	return call[string](t, h.agent, "Agent.Run", line, prompt)
}

// begin sets a case up: it must leave nothing behind on either host.
func (w *world) begin(t *testing.T) {
	t.Cleanup(func() {
		for _, h := range w {
			if h.dead || h.software {
				continue
			}
			h.leaves(t, 0)
			if t.Failed() {
				h.describe(t)
			}
		}
	})
}

// leaves sees that a process, or all of them if pid is 0, have no RDMA objects. What
// the kernel does when a process is killed may take a moment.
func (h *host) leaves(t *testing.T, pid int) {
	t.Helper()
	var left string
	for end := time.Now().Add(prompt / 3); ; {
		left = call[string](t, h.agent, "Agent.Resources", pid, prompt)
		if left == "" {
			return
		}
		if time.Now().After(end) {
			t.Errorf("host %d: RDMA objects are left behind:\n%s", h.rank, left)
			return
		}
	}
}

// describe tells what a failed case leaves the host in.
func (h *host) describe(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"rdma link show", "rdma resource show qp", "rdma statistic show",
		"ip -s link show dev $LINK", "ip neigh show", "tc -s qdisc show dev $LINK",
	} {
		out, err := tryCall[string](h.agent, "Agent.Run", line, prompt)
		t.Logf("host %d: %s: %v\n%s", h.rank, line, err, out)
	}
}

// noFault is a network that does nothing to packets. All is named that a fault may
// set, since netem leaves the rest as it was.
const noFault = "delay 0ms loss 0% duplicate 0% corrupt 0% rate 0bit"

// netem has the host lose, delay or change what it sends over the RDMA wire, until
// the case ends or clearNetem is called.
//
// It is always there and is changed only: a queueing discipline that is put in place
// of another refuses packets meanwhile, and soft-RoCE fails a QP that cannot send.
func (h *host) netem(t *testing.T, how string) {
	t.Helper()
	t.Cleanup(func() { h.clearNetem(t) })
	h.shape(t, "change", how)
}

// clearNetem removes what netem does.
func (h *host) clearNetem(t *testing.T) {
	t.Helper()
	if !h.dead {
		h.shape(t, "change", noFault)
	}
}

func (h *host) shape(t *testing.T, verb, how string) {
	t.Helper()
	h.run(t, netem(verb, how))
}

func netem(verb, how string) string {
	return "tc qdisc " + verb + " dev $LINK root netem limit 10000 " + how
}

var dropped = regexp.MustCompile(`dropped (\d+)`)

// lost is how many packets netem has lost so far.
func (h *host) lost(t *testing.T) int {
	t.Helper()
	return h.dropped(t, "tc -s qdisc show dev $LINK")
}

// dropped is how many packets the statistics say were dropped that a command prints.
func (h *host) dropped(t *testing.T, command string) int {
	t.Helper()
	stats := h.run(t, command)
	m := dropped.FindStringSubmatch(stats)
	require.NotNil(t, m, stats)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}
