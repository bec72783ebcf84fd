package link

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// fakeBeside are Links whose lanes take a while to come up and carry some streams, towards a peer
// that likes some lanes.
func fakeBeside(t *testing.T, c Config, takes time.Duration, peer, most int) (l *Links, lanes func() []*fakeLane, fail *error) {
	l, all, fail := fakeLinks(t, c)
	var mu sync.Mutex
	lanes = func() []*fakeLane {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(*all)
	}
	l.bring = func(ctx context.Context, _ Target, k *linkLane) (carrier, error) {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		mu.Lock()
		defer mu.Unlock()
		if *fail != nil {
			return nil, *fail
		}
		f := &fakeLane{k: k, peer: peer, most: most}
		*all = append(*all, f)
		return f, nil
	}
	return l, lanes, fail
}

// loads is how many streams each lane has.
func loads(lanes []*fakeLane) (n []int) {
	for _, f := range lanes {
		n = append(n, int(f.streams.Load()))
	}
	return n
}

// dialed dials n times, one after the other, and returns how long the slowest took.
func dialed(t *testing.T, l *Links, n int) (slowest time.Duration) {
	t.Helper()
	for range n {
		began := time.Now()
		_, err := l.Dial(t.Context(), towards(1))
		require.NoError(t, err)
		slowest = max(slowest, time.Since(began))
	}
	return slowest
}

// TestFirstStreamsGetALaneEach: until there are as many lanes as both ends like; then the lane
// with the fewest streams gets the next.
func TestFirstStreamsGetALaneEach(t *testing.T) {
	for _, peer := range []int{3, 8} {
		synctest.Test(t, func(t *testing.T) {
			l, lanes, _ := fakeBeside(t, Config{Lanes: 11 - peer}, time.Millisecond, peer, 1<<20)
			dialed(t, l, 1)
			require.Equal(t, []int{1}, loads(lanes()))
			dialed(t, l, 2)
			require.Equal(t, []int{1, 1, 1}, loads(lanes()))
			dialed(t, l, 6)
			require.Equal(t, []int{3, 3, 3}, loads(lanes()))
			lanes()[1].end()
			lanes()[1].end()
			dialed(t, l, 2)
			require.Equal(t, []int{3, 3, 3}, loads(lanes()))
			require.NoError(t, l.Close())
		})
	}
}

// TestDialsInTurnGoByOneLane: as they need no more.
func TestDialsInTurnGoByOneLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 8}, time.Millisecond, 8, 1<<20)
		for range 100 {
			dialed(t, l, 1)
			lanes()[0].end()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, lanes(), 1)
		require.NoError(t, l.Close())
	})
}

// TestSlowLanesComeUpBeside: no dial waits for long for a lane while another stands, and one that
// comes up late is used then.
func TestSlowLanesComeUpBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 2}, time.Second, 2, 1<<20)
		dialed(t, l, 1)
		require.Equal(t, besidePatience, dialed(t, l, 1))
		require.Zero(t, dialed(t, l, 8), "one has waited for all")
		require.Equal(t, []int{10}, loads(lanes()))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []int{10, 0}, loads(lanes()))
		require.Zero(t, dialed(t, l, 10))
		require.Equal(t, []int{10, 10}, loads(lanes()))
		require.NoError(t, l.Close())
	})
}

// overdue is a context whose time is up, and that has not been heard of.
type overdue struct{ context.Context }

func (overdue) Err() error { return context.DeadlineExceeded }

// TestDialEndsWhileALaneIsLate: it fails as all dials do whose time is up.
func TestDialEndsWhileALaneIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := fakeBeside(t, Config{Lanes: 2}, time.Second, 2, 1<<20)
		dialed(t, l, 1)
		_, err := l.get(overdue{t.Context()}, towards(1), nil)
		require.Equal(t, context.DeadlineExceeded, err)
		require.NoError(t, l.Close())
	})
}

// TestLaneThatEndsAtOnce: a dial does not shake hands for ever with a listener whose lanes end
// as soon as they stand, and says why they do.
func TestLaneThatEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{}, time.Millisecond, 1, 1<<20)
		bring := l.bring
		l.bring = func(ctx context.Context, to Target, k *linkLane) (carrier, error) {
			c, err := bring(ctx, to, k)
			k.forget()
			return endedLane{c}, err
		}
		_, err := l.Dial(t.Context(), towards(1))
		require.ErrorIs(t, err, errRetired)
		require.ErrorIs(t, err, syscall.ECONNRESET, "programs dial again by that")
		require.EqualError(t, err, "the listener takes no more streams")
		require.Len(t, lanes(), maxTries)
		require.NoError(t, l.Close())
	})
}

// An endedLane is one that stood and has ended.
type endedLane struct{ carrier }

func (endedLane) open(context.Context, *stream) (*Stream, error) { return nil, errRetired }

// TestManyDialsAtOnce are spread over the lanes, though they all have waited for the first.
func TestManyDialsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 4}, 2*time.Millisecond, 4, 1<<20)
		began := time.Now()
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() { dialed(t, l, 1) })
		}
		all.Wait()
		spread := loads(lanes())
		require.Len(t, spread, 4)
		for _, n := range spread {
			// A stream that is open counts twice until its dial has returned, so that a lane may
			// look up to twice as loaded as it is.
			require.GreaterOrEqual(t, n, 5, "%v", spread)
		}
		require.Equal(t, 4*time.Millisecond, time.Since(began))
		require.NoError(t, l.Close())
	})
}

// TestFullLanes: beyond what the lanes carry there is one more, whatever the ends like.
func TestFullLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 1}, time.Second, 1, 3)
		dialed(t, l, 7)
		require.Equal(t, []int{3, 3, 1}, loads(lanes()))
		require.NoError(t, l.Close())
	})
}

// TestLaneBesideFails: nobody notices but that there are fewer lanes, and the next is tried only
// after a while.
func TestLaneBesideFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, fail := fakeBeside(t, Config{Lanes: 2}, time.Millisecond, 2, 1<<20)
		dialed(t, l, 1)
		*fail = errors.New("no QP left")
		require.Equal(t, time.Millisecond, dialed(t, l, 1))
		require.Zero(t, dialed(t, l, 20))
		require.Equal(t, []int{22}, loads(lanes()))
		*fail = nil
		time.Sleep(besidePause)
		dialed(t, l, 22)
		require.Equal(t, []int{22, 22}, loads(lanes()))
		require.NoError(t, l.Close())
	})
}

// TestIdleLanes: one lane of a link closes when it has had no stream for a while, and those with
// streams stay; so does a lane that takes no more, for its streams.
func TestIdleLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 3, Idle: 10 * time.Second}, time.Millisecond, 3, 1<<20)
		dialed(t, l, 3)
		lanes()[0].end()
		lanes()[2].end()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		for i, f := range lanes() {
			require.Equal(t, i != 1, f.closed.Load(), "lane %d", i)
		}
		lanes()[1].k.retired(nil)
		dialed(t, l, 1)
		require.Equal(t, []int{0, 1, 0, 1}, loads(lanes()))
		require.False(t, lanes()[1].closed.Load())
		require.NoError(t, l.Close())
	})
}

// TestOneLaneOfABoundPort: the one stream that may have a port needs no lane beside its own.
func TestOneLaneOfABoundPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 8}, time.Millisecond, 8, 1<<20)
		to := towards(1)
		to.Src = netip.MustParseAddrPort("127.0.0.1:999")
		for range 3 {
			_, err := l.Dial(t.Context(), to)
			require.NoError(t, err)
		}
		require.Len(t, lanes(), 1)
		require.NoError(t, l.Close())
	})
}

// lanesOf dials streams until there is one on each of n lanes.
func (b *bed) lanesOf(n int) (clients, servers []*Stream) {
	b.t.Helper()
	seen := map[*laneEnd]bool{}
	for len(clients) < n {
		client, server := b.pair()
		if !seen[client.e] {
			seen[client.e] = true
			clients, servers = append(clients, client), append(servers, server)
		}
	}
	return clients, servers
}

// TestLaneDies: the death of one lane ends its streams only. The others of the link go on, and a
// dial gets another lane.
func TestLaneDies(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Lanes = 3
		cfg.KeepAlive = soonAsked
		b := newBed(t, cfg)
		clients, servers := b.lanesOf(3)
		require.NoError(t, servers[1].e.p.qp.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
		within(t, "the streams of a lane that has died", func() {
			for _, s := range []*Stream{clients[1], servers[1]} {
				_, err := s.Read(make([]byte, 1))
				requireDead(t, s, err)
			}
		})
		for range 3 {
			for _, i := range []int{0, 2} {
				say(t, clients[i], servers[i])
				say(t, servers[i], clients[i])
			}
			client, server := b.pair()
			say(t, client, server)
			require.NotSame(t, clients[1].e, client.e)
		}
	})
}

// TestLanesShareTheBacklog: a dialer with many lanes that opens what it can leaves as much to
// another as one with one lane.
func TestLanesShareTheBacklog(t *testing.T) {
	b := newBed(t, Config{Lanes: 4, Backlog: 20, Places: 8})
	b.lanesOf(4)
	for {
		ctx, cancel := context.WithTimeout(b.ctx(), 300*time.Millisecond)
		s, err := b.links.Dial(ctx, Target{Dst: b.l.Addr()})
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			break
		}
		defer s.Close()
	}
	b.l.mu.Lock()
	require.Len(t, b.l.backlog.dialers, 1)
	left := b.l.backlog.left
	b.l.mu.Unlock()
	require.Positive(t, left)
	links := b.anotherLinks()
	within(t, "a dial of another", func() {
		s, err := links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})
	b.l.mu.Lock()
	defer b.l.mu.Unlock()
	require.Len(t, b.l.backlog.dialers, 2, "it joined the link of another process")
}

// TestAnswerOfAnotherLink: a listener that answers for another lane or link gets no stream.
func TestAnswerOfAnotherLink(t *testing.T) {
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		t.Skip("the answer is the same on every device")
	}
	for _, change := range []func(*hello.Word){
		func(w *hello.Word) { w.Epoch++ },
		func(w *hello.Word) { w.Link++ },
		func(w *hello.Word) { w.Streams++ },
	} {
		l := answering(t, change)
		links, err := NewLinks(Config{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err = links.Dial(ctx, Target{Dst: l})
		cancel()
		require.ErrorIs(t, err, hello.ErrMalformed)
		require.NoError(t, links.Close())
	}
}

// answering returns the address of a listener that answers one request, by a first word that is
// changed.
func answering(t *testing.T, change func(*hello.Word)) netip.AddrPort {
	cfg, err := Config{}.withDefaults()
	require.NoError(t, err)
	requests := make(chan *cm.Event, 1)
	id, err := cm.NewHandlerChannel(func(ev *cm.Event) {
		if ev.Type == cm.ConnectRequest {
			requests <- ev
		}
	}).CreateID(cfg.CM)
	require.NoError(t, err)
	require.NoError(t, id.BindAddr(testAddr()))
	require.NoError(t, id.Listen(1))
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		ev := <-requests
		peer, err := hello.Parse(ev.Param.PrivateData)
		if err != nil {
			t.Error(err)
			return
		}
		p, err := newEndpoint(ev.ID, &cfg)
		if err != nil {
			t.Error(err)
			return
		}
		mine := p.hello(&cfg, peer.Streams, peer.Epoch, peer.Link)
		change(&mine)
		if err := ev.ID.Accept(&cm.ConnParam{PrivateData: mine.Encode()}); err != nil {
			t.Error(err)
		}
		t.Cleanup(func() {
			require.NoError(t, p.destroy())
			require.NoError(t, ev.ID.Close())
		})
	}()
	t.Cleanup(func() {
		<-answered
		require.NoError(t, id.Close())
	})
	return id.LocalAddr()
}
