package rdmanet

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

func TestHeartbeat(t *testing.T) {
	config := &net.KeepAliveConfig{Idle: 10 * time.Second, Interval: 2 * time.Second, Count: 3}
	type step struct {
		heard uint64
		do    beat
		next  time.Duration
	}
	const idle, interval = 5 * time.Second, 2 * time.Second // half an Idle, a whole Interval
	for name, steps := range map[string][]step{
		"a busy peer is never asked": {
			{1, beatRest, idle}, {2, beatRest, idle}, {3, beatRest, idle}, {9, beatRest, idle},
		},
		"a silent peer is asked and answers": {
			{7, beatRest, idle}, {7, beatAsk, interval}, {8, beatRest, idle}, {8, beatAsk, interval}, {8, beatRest, interval}, {9, beatRest, idle},
		},
		"a peer that never said anything is asked at once": {
			{0, beatAsk, interval}, {1, beatRest, idle},
		},
		"a dead peer is given up": {
			{7, beatRest, idle}, {7, beatAsk, interval}, {7, beatRest, interval}, {7, beatRest, interval}, {7, beatDead, 0},
		},
		"an answer at the last moment counts": {
			{0, beatAsk, interval}, {0, beatRest, interval}, {0, beatRest, interval}, {1, beatRest, idle},
			{1, beatAsk, interval}, {1, beatRest, interval}, {1, beatRest, interval}, {1, beatDead, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var h heartbeat
			for i, s := range steps {
				do, next := h.tick(s.heard, config)
				require.Equal(t, s.do, do, "step %d", i)
				require.Equal(t, s.next, next, "step %d", i)
			}
		})
	}
}

// TestHeartbeatBound has peers fall silent at every moment between two ticks: none
// is given up later, or with fewer chances, than the configuration says.
func TestHeartbeatBound(t *testing.T) {
	config := &net.KeepAliveConfig{Idle: time.Second, Interval: 250 * time.Millisecond, Count: 4}
	bound := config.Idle + time.Duration(config.Count)*config.Interval
	for last := time.Duration(0); last < 3*time.Second; last += 7 * time.Millisecond {
		var h heartbeat
		now, asked := config.Idle/2, time.Duration(-1)
		for {
			// The peer answers something every millisecond until it falls silent.
			do, next := h.tick(uint64(min(now, last)/time.Millisecond), config)
			if do == beatAsk {
				asked = now
			}
			if do == beatDead {
				break
			}
			now += next
		}
		require.LessOrEqual(t, now-last, bound, "silent from %v on", last)
		require.Equal(t, bound-config.Idle, now-asked, "silent from %v on", last)
	}
}

func TestKeepAliveConfig(t *testing.T) {
	config := func(idle, interval time.Duration, count int) net.KeepAliveConfig {
		return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: count}
	}
	defaults := config(DefaultKeepAliveIdle, DefaultKeepAliveInterval, DefaultKeepAliveCount)
	off := defaults
	off.Enable = false
	assert.Equal(t, defaults, dialKeepAlive(0, net.KeepAliveConfig{}))
	assert.Equal(t, config(3, DefaultKeepAliveInterval, DefaultKeepAliveCount), dialKeepAlive(3, net.KeepAliveConfig{}))
	assert.Equal(t, off, dialKeepAlive(-1, net.KeepAliveConfig{}))
	assert.Equal(t, config(7, DefaultKeepAliveInterval, 2), dialKeepAlive(-1, config(7, 0, 2)))
	assert.Equal(t, config(4, 9, 2), mergeKeepAlive(config(4, 5, 6), config(-1, 9, 2)))
	assert.Equal(t, config(4, 5, 6), mergeKeepAlive(config(4, 5, 6), config(-1, -1, -1)))
}

// overNetwork makes c believe that its peer may be lost without a word.
func overNetwork(c *Conn) { c.ep.sameHost = false }

// quick is a keepalive that gives up after 140 ms.
var quick = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Millisecond, Interval: 20 * time.Millisecond, Count: 4}

// patientKeepAlive asks as soon as quick does, and waits for the answer for as long as a busy
// machine may take.
var patientKeepAlive = net.KeepAliveConfig{Enable: true, Idle: quick.Idle, Interval: quick.Interval, Count: int(patience / quick.Interval)}

// A blackHole takes requests and never completes them.
type blackHole struct {
	verbs.QP
	on atomic.Bool
}

func (b *blackHole) PostSend(wrs []verbs.SendWR) (int, error) {
	if b.on.Load() {
		return len(wrs), nil
	}
	return b.QP.PostSend(wrs)
}

func throughBlackHole(c *Conn) *blackHole {
	c.send.mu.Lock()
	defer c.send.mu.Unlock()
	hole := &blackHole{QP: c.send.sq.qp}
	c.send.sq.qp = hole
	return hole
}

func TestKeepAlive(t *testing.T) {
	allFlavours(t, func(t *testing.T, fl flavour) {
		t.Run("a black hole is noticed", func(t *testing.T) {
			for _, op := range []string{opRead, opWrite} {
				client, _ := fl.pair(t)
				overNetwork(client)
				hole := throughBlackHole(client)
				require.NoError(t, client.SetKeepAliveConfig(quick))
				hole.on.Store(true)
				var err error
				within(t, patience, op, func() {
					if op == opRead {
						_, err = client.Read(make([]byte, 1))
					}
					for op == opWrite && err == nil {
						_, err = client.Write(make([]byte, 1<<10))
					}
				})
				require.ErrorIs(t, err, syscall.ETIMEDOUT)
				require.ErrorIs(t, err, ErrPeerGone)
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
				var opErr *net.OpError
				require.ErrorAs(t, err, &opErr)
				require.Equal(t, op, opErr.Op)
				require.True(t, opErr.Timeout(), "as with TCP")
			}
		})
		t.Run("a peer that answers lives on", func(t *testing.T) {
			client, server := fl.pair(t)
			overNetwork(client)
			require.NoError(t, client.SetKeepAliveConfig(patientKeepAlive))
			// Nobody at the peer's end is in a call: its device answers.
			require.Eventually(t, func() bool { return client.Stats().KeepAlivesSent > 5 }, patience, time.Millisecond)
			_, err := client.Write([]byte("alive"))
			require.NoError(t, err)
			readFull(t, server, len("alive"))
		})
		t.Run("it can be turned off", func(t *testing.T) {
			client, _ := fl.pair(t)
			overNetwork(client)
			require.NoError(t, client.SetKeepAliveConfig(patientKeepAlive))
			require.NoError(t, client.SetKeepAlive(false))
			before := client.Stats().KeepAlivesSent
			require.NoError(t, client.SetReadDeadline(time.Now().Add(2*quick.Idle)))
			_, err := client.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Equal(t, before, client.Stats().KeepAlivesSent)
		})
	})
}

// TestPersist has a Write wait for room with the keepalive off. All that it sent has
// been acknowledged, so only a question tells whether the peer is still there.
func TestPersist(t *testing.T) {
	// full is a connection whose ring is full, and what becomes of a Write that waits.
	full := func(t *testing.T, fl flavour, config net.KeepAliveConfig) (client, server *Conn, written chan error) {
		client, server = fl.pair(t)
		overNetwork(client)
		require.NoError(t, client.SetKeepAlive(false))
		client.keepAlive.mu.Lock()
		client.keepAlive.persist = &config
		client.keepAlive.mu.Unlock()
		written = make(chan error, 1)
		go func() {
			_, err := client.Write(make([]byte, 1<<20))
			written <- err
		}()
		require.Eventually(t, func() bool { return client.Stats().Parks > 0 }, patience, time.Millisecond)
		return client, server, written
	}
	allFlavours(t, func(t *testing.T, fl flavour) {
		t.Run("a black hole is noticed", func(t *testing.T) {
			client, _, written := full(t, fl, quick)
			throughBlackHole(client).on.Store(true)
			within(t, patience, "Write", func() {
				err := <-written
				require.ErrorIs(t, err, syscall.ETIMEDOUT)
				require.ErrorIs(t, err, ErrPeerGone)
			})
		})
		t.Run("a peer that does not read lives on", func(t *testing.T) {
			client, server, written := full(t, fl, patientKeepAlive)
			asked := func() uint64 { return client.Stats().KeepAlivesSent }
			require.Eventually(t, func() bool { return asked() > 5 }, patience, time.Millisecond)
			require.Empty(t, written)
			readFull(t, server, 1<<20)
			require.NoError(t, <-written)
			// Nobody is asked when nobody waits.
			require.Eventually(t, func() bool {
				client.keepAlive.mu.Lock()
				defer client.keepAlive.mu.Unlock()
				return client.keepAlive.timer == nil
			}, patience, time.Millisecond)
		})
	})
}

// TestKeepAliveSetAgain has a program set the keepalive more often than it beats.
func TestKeepAliveSetAgain(t *testing.T) {
	client, _ := pair(t)
	overNetwork(client)
	hole := throughBlackHole(client)
	hole.on.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		done <- err
	}()
	timeout := time.After(patience)
	for {
		require.NoError(t, client.SetKeepAliveConfig(quick))
		select {
		case err := <-done:
			require.ErrorIs(t, err, syscall.ETIMEDOUT)
			return
		case <-timeout:
			t.Fatal("the black hole was not noticed")
		case <-time.After(quick.Idle / 10):
		}
	}
}

// TestKeepAliveOnThisHost sends nothing: the device knows of a dead process.
func TestKeepAliveOnThisHost(t *testing.T) {
	client, _ := pair(t)
	if !client.ep.sameHost {
		t.Skip("the device under test reaches other hosts")
	}
	require.NoError(t, client.SetKeepAliveConfig(quick))
	client.keepAlive.mu.Lock()
	defer client.keepAlive.mu.Unlock()
	require.Nil(t, client.keepAlive.timer)
}

// failingCQ completes the next request with a status, and then nothing.
type failingCQ struct {
	verbs.CQ
	status verbs.WCStatus
	told   bool
}

func (f *failingCQ) Poll(wcs []verbs.WC) (int, error) {
	if f.told {
		return 0, nil
	}
	f.told = true
	wcs[0] = verbs.WC{Status: f.status}
	return 1, nil
}

// TestKeepAliveHearsFailures has a request fail that nobody waits for, on a device
// that does not flush receives: the reader must hear of it all the same.
func TestKeepAliveHearsFailures(t *testing.T) {
	for status, want := range map[verbs.WCStatus]error{
		verbs.WCRetryExcErr: syscall.ETIMEDOUT, // the peer's device does not answer
		verbs.WCWRFlushErr:  syscall.ECONNRESET,
		verbs.WCRemOpErr:    syscall.ECONNRESET,
	} {
		t.Run(status.String(), func(t *testing.T) {
			client, _ := pair(t)
			overNetwork(client)
			client.send.mu.Lock()
			client.send.sq.cq = &failingCQ{CQ: client.send.sq.cq, status: status}
			client.send.mu.Unlock()
			require.NoError(t, client.SetKeepAliveConfig(patientKeepAlive))
			within(t, patience, "Read", func() {
				_, err := client.Read(make([]byte, 1))
				require.ErrorIs(t, err, want)
			})
			_, err := client.Write([]byte("x"))
			require.ErrorIs(t, err, want)
		})
	}
}

// TestKeepAliveHearsOfLeaving has the peer leave on a device that does not flush
// receives: the reader is told that, and not that a heartbeat was not answered.
func TestKeepAliveHearsOfLeaving(t *testing.T) {
	client, _ := pair(t)
	overNetwork(client)
	client.recv.mu.Lock()
	client.ep.recvCQ = silentCQ{client.ep.recvCQ}
	client.recv.mu.Unlock()
	client.event(&cm.Event{Type: cm.Disconnected})
	require.NoError(t, client.SetKeepAliveConfig(patientKeepAlive))
	within(t, patience, "Read", func() {
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.ErrorIs(t, err, ErrPeerGone)
	})
}
