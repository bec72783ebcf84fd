//go:build linux

package rdmanet

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/storm"
)

// A crowd of clients that dial at once, from several processes, on a machine that is busy:
// what Dial returns is a connection, and what was written to it arrives. TCP does the same
// beside it. go test has a small crowd, of about a second a case; with RDMANET_STORM=n, as
// make storm has it, they are those of the documentation, n times over.
// RDMANET_STORM_DIALS is how many dial at once then, 4,000 unless it says otherwise.
const (
	stormVar      = "RDMANET_STORM"
	stormDialsVar = "RDMANET_STORM_DIALS"
)

// A stormScale is how large a crowd is.
type stormScale struct {
	rounds    int
	processes int // that dial
	dials     int // at once, of all of them
	lanes     int // dials of which each brings up a lane
	slow      int // dials where Accept is slow
	stopped   int // dials while a process is stopped
	busy      int // processes that do nothing but run
	stop      time.Duration
	handshake time.Duration // HandshakeTimeout, which the stop is longer than
	pause     time.Duration // before each Accept that is slow
	users     int           // of HTTP
	posts     int           // of each
	repeats   int
}

func stormScaleOf(t *testing.T) stormScale {
	rounds, err := strconv.Atoi(os.Getenv(stormVar))
	if err != nil || rounds < 1 {
		s := stormScale{
			rounds: 1, processes: 2, dials: 200, lanes: 150, slow: 60, stopped: 60, busy: 2,
			stop: slowly(time.Second), handshake: slowly(400 * time.Millisecond), pause: 10 * time.Millisecond,
			users: 10, posts: 20, repeats: 2,
		}
		if os.Getenv("RDMANET_TEST_ADDR") != "" {
			s.dials, s.lanes, s.slow, s.stopped, s.users, s.busy = 64, 64, 20, 20, 4, 0
		}
		return s
	}
	s := stormScale{
		rounds: rounds, processes: 8, dials: 4000, lanes: 8 * maxOwnLanes, slow: 4000, stopped: 300, busy: 4,
		stop: 6 * time.Second, pause: 20 * time.Millisecond,
		users: 50, posts: 100, repeats: 10,
	}
	if n, err := strconv.Atoi(os.Getenv(stormDialsVar)); err == nil {
		s.dials, s.slow, s.stopped = n, n, min(n, s.stopped)
	}
	if s.dials < 1000 {
		s.processes = 2
	}
	s.lanes = min(s.dials, s.processes*maxOwnLanes)
	t.Logf("%+v", s)
	return s
}

// keepBusy has so many processes do nothing but run until the test ends.
func keepBusy(t *testing.T, processes int) {
	for range processes {
		r := startRemote(t)
		call[int](r, "Spin", 0)
		t.Cleanup(func() { r.kill() })
	}
}

// eachStorm runs f over RDMA and over TCP, so many times, on a busy machine.
func eachStorm(t *testing.T, f func(t *testing.T, s stormScale, network string)) {
	s := stormScaleOf(t)
	keepBusy(t, s.busy)
	for round := range s.rounds {
		for _, network := range []string{"rdma", "tcp"} {
			t.Run(network+"/"+strconv.Itoa(round+1), func(t *testing.T) { f(t, s, network) })
		}
	}
}

// crowd has dialers go to a server, all of them processes, and compares what the clients
// were told with what arrived. stop is called when all have begun.
func crowd(t *testing.T, a RemoteStorm, processes int, stop func(server *remote, dialers []*remote)) {
	t.Helper()
	server := startRemote(t)
	var dialers []*remote
	for range processes {
		dialers = append(dialers, startRemote(t))
	}
	a.Addr = call[string](server, "StormListen", a)
	all := a.Dials
	var tallies []<-chan storm.Tally
	began := time.Now()
	for i, d := range dialers {
		a.First, a.Dials = all*i/processes, all*(i+1)/processes-all*i/processes
		tallies = append(tallies, begin[storm.Tally](d, "StormDial", a))
	}
	if stop != nil {
		stop(server, dialers)
	}
	var done []uint64
	var failed []string
	for _, tally := range tallies {
		got, ok := <-tally
		require.True(t, ok, "a process of dialers has ended")
		done = append(done, got.Done...)
		failed = append(failed, got.Failed...)
	}
	took := time.Since(began)
	arrived := call[storm.Tally](server, "StormTally", len(done))
	t.Logf("%d of %d dials and %d of %d messages, the dials after %v", len(done), all, len(arrived.Done), len(done), took)
	require.Empty(t, failed, "%d of %d clients", len(failed), all)
	require.Empty(t, arrived.Failed, "%d of %d at the server", len(arrived.Failed), all)
	slices.Sort(done)
	slices.Sort(arrived.Done)
	require.Equal(t, done, arrived.Done, "what was written and what arrived")
	require.Len(t, done, all)
}

// TestStormDials has each client wait for an answer.
func TestStormDials(t *testing.T) {
	eachStorm(t, func(t *testing.T, s stormScale, network string) {
		crowd(t, RemoteStorm{Network: network, Echo: true, Dials: s.dials}, s.processes, nil)
	})
}

// TestStormMessages has each client dial, write and close, and be gone.
func TestStormMessages(t *testing.T) {
	eachStorm(t, func(t *testing.T, s stormScale, network string) {
		crowd(t, RemoteStorm{Network: network, Dials: s.dials}, s.processes, nil)
	})
}

// TestStormFewPlaces has more clients than places: they wait in their dial.
func TestStormFewPlaces(t *testing.T) {
	eachStorm(t, func(t *testing.T, s stormScale, network string) {
		if network == "rdma" { // package net cannot be asked
			crowd(t, RemoteStorm{Network: network, Backlog: 4, Dials: s.dials}, s.processes, nil)
		}
	})
}

// TestStormSlowAccept has a server that takes its time for each client.
func TestStormSlowAccept(t *testing.T) {
	eachStorm(t, func(t *testing.T, s stormScale, network string) {
		crowd(t, RemoteStorm{Network: network, Dials: s.slow, Pause: s.pause}, s.processes, nil)
	})
}

// TestStormStandingStill has the listener stopped in the midst of the dials, or those who dial.
func TestStormStandingStill(t *testing.T) {
	still := func(s stormScale, of ...*remote) {
		signalAll(syscall.SIGSTOP, of...)
		time.Sleep(s.stop)
		signalAll(syscall.SIGCONT, of...)
	}
	type way struct {
		who  string
		wait time.Duration
		echo bool
	}
	eachStorm(t, func(t *testing.T, s stormScale, network string) {
		var ways []way
		for i, wait := range []time.Duration{0, 5 * time.Millisecond, 30 * time.Millisecond} {
			if s.handshake > 0 && (i == 1 || network == "tcp" && i > 0) {
				continue // in make storm
			}
			ways = append(ways, way{"listener", wait, i > 0}, way{"dialers", wait, i > 0})
		}
		run := func(t *testing.T, w way) {
			a := RemoteStorm{Network: network, Dials: s.stopped, Echo: w.echo, HandshakeTimeout: s.handshake}
			crowd(t, a, 2, func(server *remote, dialers []*remote) {
				time.Sleep(w.wait)
				if w.who == "listener" {
					dialers = []*remote{server}
				}
				still(s, dialers...)
			})
		}
		name := func(w way) string { return w.who + "/" + w.wait.String() }
		if s.handshake > 0 { // small ones mostly stand still
			atOnce(t, ways, name, run)
			return
		}
		for _, w := range ways {
			t.Run(name(w), func(t *testing.T) { run(t, w) })
		}
	})
}

// signalAll stops processes or has them go on.
func signalAll(sig syscall.Signal, processes ...*remote) {
	for _, r := range processes {
		require.NoError(r.t, r.cmd.Process.Signal(sig))
	}
}

// TestStormHTTP has users of one process post, each over connections of its own.
func TestStormHTTP(t *testing.T) {
	eachStorm(t, func(t *testing.T, s stormScale, network string) {
		var l net.Listener
		var err error
		dial := new(net.Dialer).DialContext
		if network == "rdma" {
			l, err = (&ListenConfig{Logger: quiet}).Listen(context.Background(), "rdma", testAddr())
			dial = func(ctx context.Context, _, addr string) (net.Conn, error) {
				return (&Dialer{Logger: quiet}).DialContext(ctx, "rdma", addr)
			}
		} else {
			l, err = net.Listen("tcp", cmp.Or(os.Getenv("RDMANET_TEST_ADDR"), loopbackAddr))
		}
		require.NoError(t, err)
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		})}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		defer func() {
			require.NoError(t, server.Close())
			require.ErrorIs(t, <-served, http.ErrServerClosed)
		}()
		url := "http://" + l.Addr().String()
		for range s.repeats {
			var users sync.WaitGroup
			failed := make(chan error, s.users)
			for user := range s.users {
				users.Go(func() {
					transport := &http.Transport{DialContext: dial}
					defer transport.CloseIdleConnections()
					client := http.Client{Transport: transport}
					for post := range s.posts {
						if err := postOnce(&client, url, storm.Message(uint64(user*s.posts+post))); err != nil {
							failed <- err
							return
						}
					}
				})
			}
			users.Wait()
			close(failed)
			for err := range failed {
				t.Error(err)
			}
		}
	})
}

func postOnce(client *http.Client, url string, body []byte) error {
	resp, err := client.Post(url, "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Equal(got, body) {
		err = io.ErrUnexpectedEOF
	}
	return err
}
