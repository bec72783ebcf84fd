//go:build linux

package hosts

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/storm"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// How many rounds of storms, and how many clients of each dial at once.
const (
	stormVar      = "RDMANET_STORM"
	stormDialsVar = "RDMANET_STORM_DIALS"
)

// stormLimit is how long a storm may take on an emulated machine that others load.
const stormLimit = 10 * time.Minute

// A Storm is what a process does in one.
type Storm struct {
	Network string // "rdma", or "tcp" for package net's
	Addr    string // where to dial
	Echo    bool   // the server answers, and the client waits for that

	First, Dials int // the numbers of the clients
}

// StormListen begins to serve and returns the address to dial.
func (w *Worker) StormListen(a Storm, at *string) error {
	listen := rdmanet.Listen
	if a.Network == "tcp" {
		listen = net.Listen
	}
	l, err := listen(a.Network, w.addr)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.storm = storm.Serve(l, a.Echo, 0)
	w.mu.Unlock()
	*at = l.Addr().String()
	return nil
}

// StormDial has all clients dial at once.
func (w *Worker) StormDial(a Storm, t *storm.Tally) error {
	dial := rdmanet.Dial
	if a.Network == "tcp" {
		dial = net.Dial
	}
	*t = storm.Dial(a.First, a.Dials, a.Echo, func(uint64) (net.Conn, error) { return dial(a.Network, a.Addr) })
	return nil
}

// StormFinish waits for what so many clients have said, and ends the listener.
func (w *Worker) StormFinish(want int, t *storm.Tally) (err error) {
	w.mu.Lock()
	s := w.storm
	w.mu.Unlock()
	*t, err = s.Finish(want, stormLimit/5)
	return err
}

// Spin keeps one processor busy until the process ends.
func (w *Worker) Spin(_ int, _ *int) error {
	storm.Spin()
	return nil
}

// TestStorms has crowds dial from host 0 to host 1, beside two busy processes on each, by
// RDMA and by TCP in turn: each Dial succeeds, and what was written arrives.
func TestStorms(t *testing.T) {
	needHosts(t, "softroce/test hoststorms")
	w := newWorld(t)
	rounds, dials := stormScale(t)
	for _, h := range w {
		for range 2 {
			busy := h.start(t)
			busy.client.Go("Worker.Spin", 0, new(int), nil)
			t.Cleanup(func() { busy.signal(syscall.SIGKILL) })
		}
	}
	for round := range rounds {
		runStorms(t, w, strconv.Itoa(round+1), dials, 6*time.Second, "rdma", "tcp")
	}
}

// stormScale is how many rounds are asked for, and how many clients.
func stormScale(t *testing.T) (rounds, dials int) {
	rounds, dials = 1, 200
	for name, n := range map[string]*int{stormVar: &rounds, stormDialsVar: &dials} {
		if s := os.Getenv(name); s != "" {
			var err error
			*n, err = strconv.Atoi(s)
			require.NoError(t, err, name)
		}
	}
	return rounds, dials
}

// testStorm is a small one, without TCP to compare with: most of its time is that of processes that
// begin and end.
func testStorm(t *testing.T, w *world) { runStorms(t, w, "small", 40, time.Second, "rdma") }

// runStorms has so many dial at once in all the ways there are. In two of them the processes
// of one side stand still meanwhile.
func runStorms(t *testing.T, w *world, round string, dials int, still time.Duration, networks ...string) {
	for _, c := range []struct {
		name  string
		echo  bool
		dials int
		still int // the host whose processes do, or -1
	}{
		{"answers", true, dials, -1},
		{"messages", false, dials, -1},
		{"dialers stopped", false, min(dials, 300), 0},
		{"listener stopped", false, min(dials, 300), 1},
	} {
		for _, network := range networks {
			t.Run(fmt.Sprintf("%s/%s/%s", round, c.name, network), func(t *testing.T) {
				w.begin(t)
				oneStorm(t, w, Storm{Network: network, Echo: c.echo, Dials: c.dials}, func(processes [2][]*process) {
					if c.still < 0 {
						return
					}
					time.Sleep(20 * time.Millisecond) // some have begun
					for _, p := range processes[c.still] {
						p.signal(syscall.SIGSTOP)
					}
					time.Sleep(still)
					for _, p := range processes[c.still] {
						p.signal(syscall.SIGCONT)
					}
				})
			})
		}
	}
}

// oneStorm compares what the clients were told with what arrived. meanwhile is called when
// they have begun, with the processes of both hosts.
func oneStorm(t *testing.T, w *world, a Storm, meanwhile func([2][]*process)) {
	t.Helper()
	server := w[1].start(t)
	dialers := []*process{w[0].start(t), w[0].start(t)}
	a.Addr = call[string](t, server.client, "Worker.StormListen", a, prompt)
	type result struct {
		tally storm.Tally
		err   error
	}
	results := make(chan result, len(dialers))
	all := a.Dials
	began := time.Now()
	for i, d := range dialers {
		part := a
		part.First, part.Dials = all*i/len(dialers), all*(i+1)/len(dialers)-all*i/len(dialers)
		go func() {
			tally, err := tryCall[storm.Tally](d.client, "Worker.StormDial", part, stormLimit)
			results <- result{tally, err}
		}()
	}
	meanwhile([2][]*process{dialers, {server}})
	var told storm.Tally
	for range dialers {
		r := <-results
		require.NoError(t, r.err)
		told.Done, told.Failed = append(told.Done, r.tally.Done...), append(told.Failed, r.tally.Failed...)
	}
	took := time.Since(began)
	arrived := call[storm.Tally](t, server.client, "Worker.StormFinish", len(told.Done), stormLimit)
	t.Logf("%d of %d dials and %d of %d messages, the dials after %.1f s", len(told.Done), all, len(arrived.Done), len(told.Done), took.Seconds())
	require.Empty(t, told.Failed, "%d of %d clients", len(told.Failed), all)
	require.Empty(t, arrived.Failed, "%d of %d at the server", len(arrived.Failed), all)
	slices.Sort(told.Done)
	slices.Sort(arrived.Done)
	require.Equal(t, told.Done, arrived.Done, "what was written and what arrived")
	require.Len(t, told.Done, all)
}
