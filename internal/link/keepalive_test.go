package link

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// beatPeer answers whoever asks until it dies, each time after a while.
type beatPeer struct {
	heard atomic.Uint64
	delay time.Duration
	dies  time.Time
	held  atomic.Int64 // nothing is heard before that, in nanoseconds of Unix time
}

func (p *beatPeer) ask() {
	time.AfterFunc(p.delay, func() {
		if time.Now().Before(p.dies) {
			time.AfterFunc(time.Until(time.Unix(0, p.held.Load())), func() { p.heard.Add(1) })
		}
	})
}

// beatUntilDead runs a heartbeat as keepAliveTick does, with synthetic time, and returns when
// the peer is given up, or the zero time if it is not within an hour.
func beatUntilDead(c *net.KeepAliveConfig, p *beatPeer, tick func(at time.Duration) time.Duration) time.Time {
	var h heartbeat
	at := paceOf(c)
	start := time.Now()
	for wait := max(c.Idle/2, minBeat); time.Since(start) < time.Hour; {
		due := time.Now().Add(wait)
		time.Sleep(wait + tick(time.Since(start)))
		do, next := h.tick(p.heard.Load(), time.Since(due) > wait, &at)
		switch do {
		case beatAsk:
			p.ask()
		case beatDead:
			return time.Now()
		}
		wait = next
	}
	return time.Time{}
}

// TestHeartbeat: a peer that dies at any moment is given up within Idle and Count times
// Interval, and one that answers within that never.
func TestHeartbeat(t *testing.T) {
	onTime := func(time.Duration) time.Duration { return 0 }
	for _, c := range []net.KeepAliveConfig{
		{Idle: 5 * time.Second, Interval: time.Second, Count: 4},
		{Idle: time.Second, Interval: 7 * time.Second, Count: 1},
		{Idle: 3 * time.Second, Interval: 10 * time.Millisecond, Count: 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			for life := time.Duration(1); life < 20*time.Second; life += 730 * time.Millisecond {
				p := &beatPeer{delay: 5 * time.Millisecond, dies: time.Now().Add(life)}
				noticed := beatUntilDead(&c, p, onTime).Sub(p.dies)
				require.Positive(t, noticed)
				require.LessOrEqual(t, noticed, c.Idle+time.Duration(c.Count)*c.Interval+p.delay)
			}
			slow := &beatPeer{delay: time.Duration(c.Count)*c.Interval - 1, dies: time.Now().Add(2 * time.Hour)}
			require.Zero(t, beatUntilDead(&c, slow, onTime))
		})
	}
}

// TestHeartbeatStopped: time in which this process does not run is no silence of the peer,
// whose answers lie there unread. One that is always late still gives a dead peer up.
func TestHeartbeatStopped(t *testing.T) {
	c := net.KeepAliveConfig{Idle: 2 * time.Second, Interval: time.Second, Count: 1}
	synctest.Test(t, func(t *testing.T) {
		// The machine stands still again and again, for a minute. What came meanwhile is
		// taken in a moment after the tick that comes when it goes on.
		p := &beatPeer{delay: 900 * time.Millisecond, dies: time.Now().Add(20 * time.Hour)}
		rnd := rand.New(rand.NewPCG(5, 6))
		require.Zero(t, beatUntilDead(&c, p, func(time.Duration) time.Duration {
			if rnd.IntN(6) != 0 {
				return 0
			}
			p.held.Store(time.Now().Add(time.Minute + c.Interval/beatSteps + 100*time.Millisecond).UnixNano())
			return time.Minute
		}))
		dead := &beatPeer{dies: time.Now()}
		noticed := beatUntilDead(&c, dead, func(time.Duration) time.Duration { return 5 * time.Second }).Sub(dead.dies)
		require.Positive(t, noticed)
		require.Less(t, noticed, time.Minute)
	})
}

func TestKeepAliveDefaults(t *testing.T) {
	require.Equal(t, net.KeepAliveConfig{Idle: 5 * time.Second, Interval: time.Second, Count: 4}, withDefaultTimes(net.KeepAliveConfig{}))
	some := net.KeepAliveConfig{Enable: true, Idle: 1, Interval: 2, Count: 3}
	require.Equal(t, some, withDefaultTimes(some))
}

// quick has a lane look after itself at once, and often.
func (e *laneEnd) quick(c net.KeepAliveConfig) {
	e.mu.Lock()
	defer e.mu.Unlock()
	cfg := *e.cfg
	cfg.KeepAlive = c
	e.cfg = &cfg
	if e.alive.ticking {
		e.alive.next(minBeat)
	}
	e.startTicks()
}

// eachNetwork runs f in the flavours that reach other hosts.
func eachNetwork(t *testing.T, f func(t *testing.T, cfg Config)) {
	for _, fl := range flavours() {
		if strings.Contains(fl.name, "remote") || os.Getenv("RDMANET_TEST_ADDR") != "" {
			t.Run(fl.name, func(t *testing.T) { f(t, fl.cfg) })
		}
	}
}

// TestKeepAliveForGood: times that are as good as endless, or whose product is no duration, give nobody
// up, and are no reason to ask more often.
func TestKeepAliveForGood(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		c        net.KeepAliveConfig
		patience time.Duration
	}{
		{net.KeepAliveConfig{Idle: 5 * second, Interval: second, Count: 4}, 9 * second},
		{net.KeepAliveConfig{Idle: second, Interval: second, Count: math.MaxInt}, second + forGood},
		{net.KeepAliveConfig{Idle: second, Interval: math.MaxInt64, Count: 1}, second + forGood},
		{net.KeepAliveConfig{Idle: second, Interval: math.MaxInt64, Count: math.MaxInt}, second + forGood},
		{net.KeepAliveConfig{Idle: second, Interval: 1 << 31, Count: math.MaxInt32}, second + forGood},
		{net.KeepAliveConfig{Idle: math.MaxInt64, Interval: second, Count: 4}, forGood + 4*second},
		{net.KeepAliveConfig{Idle: math.MaxInt64, Interval: math.MaxInt64, Count: math.MaxInt}, 2 * forGood},
	} {
		p := paceOf(&tt.c)
		require.Equal(t, tt.patience, p.patience, "%+v", tt.c)
		require.Positive(t, p.step(), "%+v", tt.c)
		h := heartbeat{}
		do, next := h.tick(0, false, &p)
		require.Equal(t, beatAsk, do)
		for range 3 {
			require.Positive(t, next, "%+v", tt.c)
			do, next = h.tick(0, false, &p)
			require.Equal(t, beatRest, do, "%+v", tt.c)
		}
	}
}

// TestKeepAlive: an idle lane asks now and then, and gets an answer, which nobody notices.
// Without streams nobody asks.
func TestKeepAlive(t *testing.T) {
	eachNetwork(t, func(t *testing.T, cfg Config) {
		cfg.KeepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Millisecond, Interval: 4 * time.Millisecond, Count: 1 << 20}
		cfg.Idle = time.Hour
		b := newBed(t, cfg)
		client, server := b.pair()
		neighbour, beside := b.pair()
		for _, e := range []*laneEnd{client.e, server.e} {
			require.Eventually(t, func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				return e.alive.asked >= 3
			}, patience, time.Millisecond)
		}
		say(t, client, server)
		say(t, neighbour, beside)
		ends := []*Stream{client, server, neighbour, beside}
		for _, s := range ends {
			require.NoError(t, s.Close())
		}
		for _, e := range []*laneEnd{client.e, server.e} {
			require.Eventually(t, func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				if e.live == 0 && e.alive.ticking {
					e.alive.next(0)
				}
				return e.err == nil && !e.alive.ticking
			}, patience, time.Millisecond)
		}
		again, _ := b.pair()
		require.Same(t, client.e, again.e)
		client.e.mu.Lock()
		defer client.e.mu.Unlock()
		require.True(t, client.e.alive.ticking)
	})
}

// silence has the peer of s say nothing any more, nor its device answer, until it comes back.
func silence(t *testing.T, s, peer *Stream) (comeBack func()) {
	hold, letGo := holdSends(s.e)
	goOn := stopped(t, peer)
	hold()
	comeBack = func() { goOn(); letGo() }
	t.Cleanup(comeBack)
	return comeBack
}

// TestKeepAliveDeadPeer: a peer that says nothing any more ends the lane, and everybody who
// waits on it is told, in Read as in Write.
func TestKeepAliveDeadPeer(t *testing.T) {
	eachNetwork(t, func(t *testing.T, cfg Config) {
		cfg.KeepAlive = net.KeepAliveConfig{Enable: true, Interval: time.Hour}
		b := newBed(t, cfg)
		reader, other := b.pair()
		writer, _ := b.pair()
		say(t, reader, other)
		comeBack := silence(t, reader, other)
		within(t, "calls whose peer is silent", func() {
			all(func() {
				_, err := reader.Read(make([]byte, 1))
				requireTimedOut(t, err)
			}, func() {
				var err error
				for err == nil {
					_, err = writer.Write(make([]byte, 1<<16))
				}
				requireTimedOut(t, err)
			}, func() {
				reader.e.quick(net.KeepAliveConfig{Enable: true, Idle: time.Millisecond, Interval: 5 * time.Millisecond, Count: 2})
			})
		})
		comeBack()
		again, far := b.pair()
		say(t, again, far)
	})
}

// TestKeepAliveOfEachStream: streams of a lane are given up each by its own settings. One without
// keepalive outlives the silence, and a dial takes another lane; the lane ends with the last
// stream that asks.
func TestKeepAliveOfEachStream(t *testing.T) {
	eachNetwork(t, func(t *testing.T, cfg Config) {
		cfg.KeepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Hour}
		cfg.Places = 4
		b := newBed(t, cfg)
		quick, far := b.pair()
		off, other := b.pair()
		usual, _ := b.pair()
		say(t, quick, far)
		off.SetKeepAlive(func(c net.KeepAliveConfig) net.KeepAliveConfig {
			require.Equal(t, withDefaultTimes(cfg.KeepAlive), c)
			c.Enable = false
			return c
		})
		comeBack := silence(t, off, other)
		quick.SetKeepAlive(func(net.KeepAliveConfig) net.KeepAliveConfig {
			return net.KeepAliveConfig{Enable: true, Idle: time.Millisecond, Interval: 5 * time.Millisecond, Count: 2}
		})
		within(t, "a Read whose peer is silent", func() {
			_, err := quick.Read(make([]byte, 1))
			requireTimedOut(t, err)
			require.ErrorContains(t, err, "connection timed out: RDMA peer is gone: it does not answer: no keepalive within ")
			_, err = quick.Write([]byte{1})
			requireTimedOut(t, err)
		})
		e := quick.e
		e.mu.Lock()
		ended, away, owns, lost := e.err, e.away, e.alive.owns, e.alive.lost
		e.giveUpSilent(time.Minute) // another is off, and no Write waits
		offLost := off.end.lost
		e.mu.Unlock()
		require.NoError(t, ended)
		require.True(t, away)
		require.Equal(t, []int{1, 1}, []int{owns, lost})
		require.False(t, offLost)
		comeBack()
		say(t, off, other)
		_, err := far.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		again, server := b.pair()
		require.NotSame(t, e, again.e)
		say(t, again, server)
		for _, s := range []*Stream{quick, off, usual} {
			require.NoError(t, s.Close())
		}
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.alive.owns+e.alive.lost == 0
		}, patience, time.Millisecond)
	})
}

// TestKeepAliveSetAgain: a program that sets it over and over puts nothing off.
func TestKeepAliveSetAgain(t *testing.T) {
	b := newBed(t, Config{
		CM:        cm.Options{Device: networkDevice()},
		KeepAlive: net.KeepAliveConfig{Enable: true, Idle: time.Hour},
	})
	client, server := b.pair()
	say(t, client, server)
	silence(t, client, server)
	done := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		done <- err
	}()
	timeout := time.After(patience)
	for i := 0; ; i++ {
		client.SetKeepAlive(func(net.KeepAliveConfig) net.KeepAliveConfig {
			return net.KeepAliveConfig{Enable: true, Idle: 60 * time.Millisecond, Interval: 20 * time.Millisecond, Count: 4 + i%2}
		})
		select {
		case err := <-done:
			requireTimedOut(t, err)
			return
		case <-timeout:
			t.Fatal("the peer was not given up")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func requireTimedOut(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, syscall.ETIMEDOUT)
	require.NotErrorIs(t, err, syscall.ECONNRESET)
	require.ErrorIs(t, err, verbs.ErrPeerGone)
	require.True(t, isTimeout(err), "%v is no timeout", err)
	require.ErrorContains(t, err, "does not answer")
}

func isTimeout(err error) bool {
	var e interface{ Timeout() bool }
	return errors.As(err, &e) && e.Timeout()
}

// TestKeepAliveOfAWrite: while keepalive is off a peer is asked as long as a Write waits for
// room, and no longer.
func TestKeepAliveOfAWrite(t *testing.T) {
	b := newBed(t, Config{CM: cm.Options{Device: networkDevice()}, MaxRing: 4096})
	client, server := b.pair()
	e := client.e
	e.mu.Lock()
	require.False(t, e.alive.ticking)
	e.mu.Unlock()
	within(t, "a Write that waits", func() {
		all(func() {
			_, err := client.Write(make([]byte, 64<<10))
			require.NoError(t, err)
		}, func() {
			require.Eventually(t, func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				if e.alive.ticking && e.alive.asked == 0 {
					e.alive.next(0)
				}
				return e.alive.stalled == 1 && e.alive.asked > 0
			}, patience, time.Millisecond)
			_, err := io.ReadFull(server, make([]byte, 64<<10))
			require.NoError(t, err)
		})
	})
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.alive.stalled == 0 && e.alive.ticking {
			e.alive.next(0)
		}
		return !e.alive.ticking
	}, patience, time.Millisecond)
}

// TestKeepAliveWithinAHost: a process of this host cannot be lost without its device knowing.
func TestKeepAliveWithinAHost(t *testing.T) {
	b := newBed(t, Config{KeepAlive: net.KeepAliveConfig{Enable: true, Idle: time.Millisecond}})
	client, server := b.pair()
	say(t, client, server)
	client.e.mu.Lock()
	defer client.e.mu.Unlock()
	require.Equal(t, client.e.p.sameHost, !client.e.alive.ticking)
}
