//go:build linux

package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTwoProcessStop stops the other process: that is no error, deadlines fire as they
// always do, and after it goes on so do the bytes.
func TestTwoProcessStop(t *testing.T) {
	mostlyWaits(t)
	const size = 8 << 20 // more than the largest ring, which may be empty when the process stops
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, end *remoteConn) {
			arrived := begin[RemoteSum](r, "Sum", end.ID)
			first := make([]byte, size)
			for i := range first {
				first[i] = byte(i >> 8)
			}
			_, err := c.Write(first)
			require.NoError(t, err)

			r.signal(syscall.SIGSTOP, "T")
			n := 0
			requireFires(t, "Write", 20*time.Millisecond, c.SetWriteDeadline, func() error {
				m, err := c.Write(first[n:])
				n += m
				return err
			})
			require.Less(t, n, size)
			requireFires(t, "Read", 20*time.Millisecond, c.SetReadDeadline, func() error {
				_, err := c.Read(make([]byte, 1))
				return err
			})

			r.signal(syscall.SIGCONT, "SR")
			require.NoError(t, c.SetDeadline(time.Time{}))
			_, err = c.Write(first[n:])
			require.NoError(t, err)
			require.NoError(t, c.CloseWrite())
			want := sum(io.MultiReader(strings.NewReader(string(first)), strings.NewReader(string(first))))
			require.Equal(t, want, <-arrived)
			_, err = end.Write([]byte("back again"))
			require.NoError(t, err)
			require.Equal(t, "back again", string(readFull(t, c, 10)))
		})
	})
}

// TestTwoProcessStopWakesNobody has a Read and a Write wait for a process that is stopped:
// they sleep. TestTimingStopCostsNothing measures what that costs.
func TestTwoProcessStopWakesNobody(t *testing.T) {
	atOnce(t, flavours()[:ofTwoProcesses()], flavourName, whileStopped(requireNoWakeups))
}

// whileStopped has a Read and a Write wait for a process that is stopped, and runs f
// meanwhile.
func whileStopped(f func(t *testing.T, parks func() uint64)) func(*testing.T, flavour) {
	return func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, end *remoteConn) {
			echoed := begin[RemoteSum](r, "Echo", end.ID)
			read, written := make(chan RemoteSum, 1), make(chan RemoteSum, 1)
			r.signal(syscall.SIGSTOP, "T")
			go func() { written <- send(c, 1, 4<<20) }()
			go func() { read <- sum(c) }()
			require.Eventually(t, func() bool { return c.Stats().Parks >= 2 }, patience, time.Millisecond)
			f(t, func() uint64 { return c.Stats().Parks })
			r.signal(syscall.SIGCONT, "SR")
			require.Equal(t, <-written, <-read)
			require.Equal(t, int64(4<<20), (<-echoed).N)
		})
	}
}

// TestStopRounds stops a process at random moments, with streams on several connections
// of both ways: nothing fails, at neither end. At last it is killed while it is stopped.
func TestStopRounds(t *testing.T) {
	rounds := scale(50)
	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		s := newThisSide(t, fl, seed)
		s.round(startRemote(t), rng, func(r *remote) {
			for range rounds {
				time.Sleep(slowly(time.Duration(rng.Int64N(1 << (10 + rng.IntN(14))))))
				r.signal(syscall.SIGSTOP, "T")
				time.Sleep(time.Duration(rng.Int64N(1 << (10 + rng.IntN(14)))))
				r.signal(syscall.SIGCONT, "SRD")
				s.requireNoEnds()
			}
			through := s.through()
			require.Eventually(t, func() bool { return s.through() > through }, lasting, time.Millisecond, "the streams do not go on")
			r.signal(syscall.SIGSTOP, "T")
		})
		t.Logf("%d rounds: %v", rounds, &s.tally)
	})
}

// TestTwoProcessStopDialing stops a process that dials, at random moments, for longer
// than its handshake may take: none of its Dials fails for that reason, nor a connection
// that Dial returned, and the listener serves others. Where the two ends do not decide in
// one place whether a connection stands, it may be reset. Only the first connection of a
// line has a handshake to give up.
func TestTwoProcessStopDialing(t *testing.T) {
	rounds := scale(20)
	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	fl := flavour{listen: ListenConfig{HandshakeTimeout: slowly(20 * time.Millisecond)}}
	l := fl.newListener(t)
	var failed atomic.Int64
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.AcceptConn()
			if err != nil {
				return
			}
			go func() {
				if _, err := io.Copy(c, c); err != nil {
					failed.Add(1) // it was stopped, and not only in Dial
				}
				_ = c.Close()
			}()
		}
	}()
	r := startRemote(t)
	const dialers = 4
	var dials [dialers]<-chan RemoteError
	dial := func(i int) {
		dials[i] = begin[RemoteError](r, "DialAgain", RemoteDial{Addr: l.Addr().String()})
	}
	for i := range dials {
		dial(i)
	}
	// honest is an honest dialer that the listener serves meanwhile.
	honest := func() error {
		c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
		if err != nil {
			return err
		}
		time.Sleep(2 * fl.listen.HandshakeTimeout)
		if _, err = c.Write([]byte("x")); err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		return errors.Join(err, c.Close())
	}
	late := 0
	decided := os.Getenv("RDMANET_TEST_ADDR") == "" // on the software device
	for range rounds {
		time.Sleep(slowly(time.Duration(rng.Int64N(1 << (10 + rng.IntN(12))))))
		r.signal(syscall.SIGSTOP, "T")
		err := honest()
		require.True(t, err == nil || !decided, "%v", err)
		again(t, "an honest dial", func() bool { return err == nil }, func() { // its own handshake may take too long, too
			require.ErrorIs(t, err, syscall.ECONNRESET)
			err = honest()
		})
		accepted := l.Stats().Accepted
		r.signal(syscall.SIGCONT, "SR")
		require.Eventually(t, func() bool {
			for i, done := range dials {
				select {
				case err := <-done:
					require.False(t, decided, err.Text)
					require.Contains(t, []string{"reset", "timeout"}, err.Kind, err.Text)
					late++
					dial(i)
				default:
				}
			}
			return l.Stats().Accepted > accepted+2*dialers
		}, patience, time.Millisecond, "it dials no more")
	}
	stats := l.Stats()
	require.True(t, failed.Load() == 0 || !decided, "%d connections failed", failed.Load())
	t.Logf("%d Dials and %d connections of %d rounds failed, the listener gave up %d handshakes", late, failed.Load(), rounds, stats.Failed)
	r.kill()
	require.NoError(t, l.Close())
	<-served
}

// TestTwoProcessStopAndClose closes a connection to a process that is stopped.
func TestTwoProcessStopAndClose(t *testing.T) {
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, end *remoteConn) {
			r.signal(syscall.SIGSTOP, "T")
			_, err := c.Write([]byte("while you slept"))
			require.NoError(t, err)
			inTime(t, soon, "Close", func() { requireClosed(t, c) })
			r.signal(syscall.SIGCONT, "SR")
			got, err := io.ReadAll(end)
			require.NoError(t, err)
			require.Equal(t, "while you slept", string(got))
			_, err = end.Write([]byte{1})
			require.ErrorIs(t, err, syscall.EPIPE)
		})
	})
}

// TestTwoProcessStopListener dials a process that is stopped, also for longer than it
// gives its clients: that it was not there is no fault of theirs.
func TestTwoProcessStopListener(t *testing.T) {
	mostlyWaits(t)
	r := startRemote(t)
	const handshake = 2 * time.Second
	at := call[string](r, "Listen", RemoteListen{HandshakeTimeout: slowly(handshake)})
	r.signal(syscall.SIGSTOP, "T")
	d := Dialer{Timeout: 50 * time.Millisecond}
	c, err := d.dial(context.Background(), "rdma", at)
	requireDialError(t, dialled{c, err}, os.ErrDeadlineExceeded)
	done := flavour{}.dialBehind(addrOf(at).(*net.TCPAddr).AddrPort())
	select {
	case d := <-done:
		t.Fatalf("nobody can have answered: %v", d.err)
	case <-time.After(slowly(handshake + handshake/4)):
	}
	r.signal(syscall.SIGCONT, "SR")
	second := <-done
	require.NoError(t, second.err)
	closeLater(t, second.conn)
	end := r.accept()
	require.Equal(t, second.conn.LocalAddr().String(), end.Remote)
	_, err = end.Write([]byte("back again"))
	require.NoError(t, err)
	require.Equal(t, "back again", string(readFull(t, second.conn, 10)))
}

// A lender is another process that has mapped a large ring of this one which nobody uses any more, and has a
// connection on the same lane.
type lender struct {
	*remote
	conn *Conn
	end  *remoteConn
}

// lentRing is the size of its ring.
const lentRing = 4 << 20

// newLender makes a lender, and stops it while the ring is kept for others.
func newLender(t *testing.T, stop bool) *lender {
	const size = 4 * lentRing
	l := &lender{remote: startRemote(t)}
	t.Cleanup(func() { _ = l.cmd.Process.Signal(syscall.SIGCONT) }) // so that it ends
	at := call[string](l.remote, "Listen", RemoteListen{})
	dial := func() (*Conn, *remoteConn) { // by the same link
		c, err := (&Dialer{}).dial(context.Background(), "rdma", at)
		require.NoError(t, err)
		closeLater(t, c)
		return c, l.accept()
	}
	kept := false
	again(t, "a ring that is kept", func() bool { return kept }, func() {
		c, end := dial()
		lane := c.info().Lane
		for l.conn == nil || l.conn.info().Lane != lane {
			l.conn, l.end = dial()
		}
		written := make(chan error, 1)
		go func() {
			_, err := end.Write(make([]byte, size))
			written <- err
		}()
		require.Eventually(t, func() bool { return c.Stats().ReadBuffer >= lentRing }, patience, time.Millisecond)
		readFull(t, c, size)
		require.NoError(t, <-written)
		open := l.lane(t).Conns
		require.NoError(t, end.Close())
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool { return l.lane(t).Conns < open }, patience, time.Millisecond)
		if stop {
			l.signal(syscall.SIGSTOP, "T")
		}
		if kept = l.lane(t).Registered > lentRing; !kept && stop {
			l.signal(syscall.SIGCONT, "SR")
		}
	})
	return l
}

// lane is the lane of the connection, which must stand.
func (l *lender) lane(t *testing.T) LaneInfo {
	lanes, id := Lanes(), l.conn.info().Lane
	i := slices.IndexFunc(lanes, func(l LaneInfo) bool { return l.ID == id })
	require.GreaterOrEqual(t, i, 0, "the lane has ended")
	return lanes[i]
}

// requireGoesOn sees that a process goes on after a stop as if nothing had been.
func (l *lender) requireGoesOn(t *testing.T) {
	l.signal(syscall.SIGCONT, "SR")
	require.NoError(t, l.conn.SetDeadline(time.Time{}))
	_, err := l.conn.Write([]byte("there"))
	require.NoError(t, err)
	require.Equal(t, "there", string(readFull(t, l.end, 5)))
	_, err = l.end.Write([]byte("back again"))
	require.NoError(t, err)
	require.Equal(t, "back again", string(readFull(t, l.conn, 10)))
}

// TestTwoProcessStopAfterLargeRing: a large ring is to be given back that a process has mapped which is stopped. That
// is no error, for however long it is stopped, and the memory counts until the process has let go of it.
func TestTwoProcessStopAfterLargeRing(t *testing.T) {
	onSoftware(t)
	stopped := 3 * time.Second // by when the lane has looked twice
	if os.Getenv(longVar) != "" {
		stopped += 10 * time.Second // for which Close of an MR waits
	}
	l := newLender(t, true)
	kept := l.lane(t).Registered
	time.Sleep(slowly(stopped))
	require.GreaterOrEqual(t, l.lane(t).Registered, kept)
	l.requireGoesOn(t)
	require.Eventually(t, func() bool { return l.lane(t).Registered <= kept-lentRing }, patience, time.Millisecond)
}

// TestTwoProcessStopWhileMemoryIsShort: memory is short while a process is stopped of which some is to be taken back.
// Calls on its lane keep their deadlines, and others get what a process that runs can give back.
func TestTwoProcessStopWhileMemoryIsShort(t *testing.T) {
	onSoftware(t)
	other := flavour{}.newListener(t)
	stopped := newLender(t, true)
	limit := SetMemoryLimit(-1)
	defer SetMemoryLimit(limit)
	var runs *lender
	again(t, "memory that a process can give back", func() bool { return runs != nil && runs.lane(t).Registered > lentRing }, func() {
		SetMemoryLimit(limit)
		runs = newLender(t, false)
		SetMemoryLimit(MemoryInUse())
	})
	got := make(chan dialled, 1)
	go func() {
		for {
			c, err := (&Dialer{Timeout: patience}).dial(context.Background(), "rdma", other.Addr().String())
			if !errors.Is(err, ErrNoMemory) { // a process may give it back late
				got <- dialled{c, err}
				return
			}
		}
	}()
	for began := time.Now(); time.Since(began) < slowly(3*time.Second); { // in which the lane looks at its memory
		at := time.Now().Add(20 * time.Millisecond)
		require.NoError(t, stopped.conn.SetReadDeadline(at))
		_, err := stopped.conn.Read(make([]byte, 1))
		require.Less(t, requireTimeoutAt(t, err, at), soon, "Read beyond its deadline")
	}
	select {
	case d := <-got:
		require.NoError(t, d.err)
		require.NoError(t, d.conn.Close())
	default:
		t.Fatal("another lane waits for the stopped process")
	}
	stopped.requireGoesOn(t)
	runs.requireGoesOn(t)
}

// signal sends a signal and waits until the process is in one of the states that
// /proc names by a letter.
func (r *remote) signal(s syscall.Signal, states string) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(s))
	require.Eventually(r.t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
		require.NoError(r.t, err)
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.ContainsAny(state[:1], states)
	}, patience, time.Millisecond)
}
