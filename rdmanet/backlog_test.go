package rdmanet

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

// TestBacklogFull has more dialers than the backlog: those beyond it wait in their
// dial, and all are served.
func TestBacklogFull(t *testing.T) {
	const backlog, dialers = 2, 12
	eachDevice(t, func(t *testing.T, fl flavour) {
		fl.listen.Backlog = backlog
		l := fl.newListener(t)
		results := make(chan dialled, dialers)
		for range dialers {
			go func() { results <- <-fl.dialBehind(l.addr.AddrPort()) }()
		}
		for range backlog {
			d := <-results
			require.NoError(t, d.err)
			defer d.conn.Close()
		}
		// As many again have asked, and the rest cannot even do that.
		require.Eventually(t, func() bool {
			s := l.Stats()
			return inHand(s) == 2*backlog && s.Established == backlog && s.Pending == backlog
		}, patience, time.Millisecond, "%+v", l.Stats())
		require.Empty(t, results)
		require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
		accepted := make(chan dialled, dialers)
		go func() {
			for range dialers {
				s, err := l.AcceptConn()
				accepted <- dialled{s, err}
			}
		}()
		for range dialers - backlog {
			d := <-results
			require.NoError(t, d.err)
			defer d.conn.Close()
		}
		for range dialers {
			d := <-accepted
			require.NoError(t, d.err)
			defer d.conn.Close()
		}
	})
}

// inHand is how many requests have led to a connection, or may yet. A busy machine may have
// a dialer lose one and ask again, or make it so late that it gives way.
func inHand(s ListenerStats) uint64 { return s.Requests - s.Failed - s.Refused - s.Evicted }

// TestBacklogFullLeave has dialers that give up while they wait.
func TestBacklogFullLeave(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		fl.listen.Backlog = 1
		l := fl.newListener(t)
		first := <-fl.dialBehind(l.addr.AddrPort())
		require.NoError(t, first.err)
		defer first.conn.Close()
		fl.dialer.Timeout = 50 * time.Millisecond
		// On a busy machine some may have given up before the listener heard of them.
		for left := 0; left < 4 || l.Stats().Requests < 2; left++ {
			require.Less(t, left, 100, "%+v", l.Stats())
			c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
			requireDialError(t, dialled{c, err}, os.ErrDeadlineExceeded)
		}
		s, err := l.AcceptConn()
		require.NoError(t, err)
		defer s.Close()
		fl.dialer.Timeout = patience
		requireServed(t, fl, l)
		// Those who left before the listener had their request are in Failed alone.
		require.Eventually(t, func() bool {
			s := l.Stats()
			return s.Failed >= 1 && inHand(s) == 2-l.requestStats().Hangup && s.HalfOpen == 0 && s.Pending == 0
		}, patience, time.Millisecond, "%+v", l.Stats())
		require.Equal(t, uint64(2), l.Stats().Established)
	})
}

// TestWaitingClientsLeave has clients leave that wait for a place, while none comes: the
// listener lets go of them, and of their descriptors, at once. On a network it does so when
// there is a place: of a request the kernel tells nothing before it was answered.
func TestWaitingClientsLeave(t *testing.T) {
	const backlog = 4
	eachDevice(t, func(t *testing.T, fl flavour) {
		fl.listen.Backlog = backlog
		l := fl.newListener(t)
		fl.dialer.Timeout = patience
		var conns []*Conn
		for range backlog {
			c, err := fl.dialer.dial(t.Context(), "rdma", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			conns = append(conns, c)
		}
		waiting := func() int {
			l.handshakes.mu.Lock()
			defer l.handshakes.mu.Unlock()
			return l.handshakes.waiting.Len()
		}
		before := leaktest.Take()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		results := make(chan dialled, backlog)
		for range backlog {
			go func() {
				c, err := fl.dialer.dial(ctx, "rdma", l.Addr().String())
				results <- dialled{c, err}
			}()
		}
		require.Eventually(t, func() bool { return waiting() == backlog }, patience, time.Millisecond)
		leave()
		for range backlog {
			requireDialError(t, <-results, context.Canceled)
		}
		accepts := func() {
			for range conns {
				s, err := l.AcceptConn()
				require.NoError(t, err)
				t.Cleanup(func() { _ = s.Close() })
			}
		}
		onNetwork := os.Getenv("RDMANET_TEST_ADDR") != ""
		if onNetwork {
			accepts()
		}
		require.Eventually(t, func() bool { return waiting() == 0 }, patience, time.Millisecond)
		require.Eventually(t, func() bool { return l.Stats().Failed == backlog }, patience, time.Millisecond, "%+v", l.Stats())
		require.Eventually(t, func() bool { return before.LeakedFiles() == "" }, patience, time.Millisecond, "%s", before.LeakedFiles())
		if !onNetwork {
			require.Equal(t, backlog, l.Stats().Pending, "and no place has come")
			accepts()
		}
		requireServed(t, fl, l)
	})
}

// TestDefaultBacklog compares with what the system says.
func TestDefaultBacklog(t *testing.T) {
	for text, want := range map[string]int{
		"4096\n": 4096, "1\n": 1, "65536\n": 65536, "0\n": 128, "": 128, "-5\n": 128, "many\n": 128,
		"99999999999\n": 1<<31 - 1,
	} {
		require.Equal(t, want, parseSomaxconn(text), "%q", text)
	}
	if b, err := os.ReadFile("/proc/sys/net/core/somaxconn"); err == nil {
		require.Equal(t, parseSomaxconn(string(b)), DefaultBacklog())
	}
	for backlog, want := range map[int]int{0: DefaultBacklog(), -1: DefaultBacklog(), 7: 7, 1 << 30: 1 << 30} {
		require.Equal(t, want, newListener("rdma", sizes{}, &ListenConfig{Backlog: backlog}).backlog)
	}
}
