package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeLane stands for a lane where the policies of Links are tested, with synthetic time.
type fakeLane struct {
	k       *linkLane
	peer    int // lanes that the peer likes
	most    int // streams
	mu      sync.Mutex
	streams atomic.Int32
	closed  atomic.Bool
	retired atomic.Bool
	owes    chan struct{} // closed when the streams that were opened are answered; nil if they are
	late    atomic.Bool   // it is not nil
}

func (f *fakeLane) open(context.Context, *stream) (*Stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams.Add(1) == 1 {
		f.k.filled(nil)
	}
	return nil, nil
}

func (f *fakeLane) load() (streams, room int) {
	n := int(f.streams.Load())
	return n, f.most - n
}

func (f *fakeLane) allAnswered() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owes
}

func (f *fakeLane) owesAnswers() bool { return f.late.Load() }

func (f *fakeLane) agreedLanes() int { return min(f.k.l.cfg.lanes(true), f.peer) }

func (f *fakeLane) retireNow() { f.retired.Store(true) }

func (f *fakeLane) closeIfIdle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed.Store(f.streams.Load() == 0)
	return f.closed.Load()
}

// end ends one stream.
func (f *fakeLane) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams.Add(-1) == 0 {
		f.k.emptied(nil)
	}
}

// fakeLinks are Links whose lanes take a second to come up.
func fakeLinks(t *testing.T, c Config) (l *Links, lanes *[]*fakeLane, fail *error) {
	l, err := NewLinks(c)
	require.NoError(t, err)
	lanes, fail = new([]*fakeLane), new(error)
	l.bring = func(ctx context.Context, _ Target, k *linkLane) (carrier, error) {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if *fail != nil {
			return nil, *fail
		}
		f := &fakeLane{k: k, peer: 1, most: 1 << 20}
		*lanes = append(*lanes, f)
		return f, nil
	}
	return l, lanes, fail
}

func towards(port uint16) Target {
	return Target{Dst: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)}
}

// TestBringUpIsShared: dials wait together for one handshake, each until its own deadline.
func TestBringUpIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeLinks(t, Config{})
		began := time.Now()
		errs := make(chan error, 20)
		for i := range 20 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				if i%2 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
				}
				defer cancel()
				_, err := l.Dial(ctx, towards(1))
				if i%2 == 0 && time.Since(began) != 300*time.Millisecond {
					err = errors.New("a dial did not end with its deadline")
				}
				errs <- err
			}()
		}
		expired := 0
		for range 20 {
			if err := <-errs; err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				expired++
			}
		}
		require.Equal(t, 10, expired)
		require.Len(t, *lanes, 1)
		require.EqualValues(t, 10, (*lanes)[0].streams.Load())
		require.Equal(t, time.Second, time.Since(began))
	})
}

// TestLoggerOfALane: a lane has the Logger of the dial that it is brought up for.
func TestLoggerOfALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := slog.New(slog.DiscardHandler)
		l, lanes, _ := fakeLinks(t, Config{Logger: all})
		first, second := slog.New(slog.DiscardHandler), slog.New(slog.DiscardHandler)
		for _, d := range []struct {
			to     uint16
			logger *slog.Logger
		}{{1, first}, {1, second}, {2, second}} {
			_, err := l.DialLogged(t.Context(), towards(d.to), d.logger)
			require.NoError(t, err)
		}
		_, err := l.Dial(t.Context(), towards(3))
		require.NoError(t, err)
		require.Len(t, *lanes, 3)
		for i, logger := range []*slog.Logger{first, second, all} {
			require.Same(t, logger, (*lanes)[i].k.logger)
		}
	})
}

// TestBringUpForNobody: a handshake that nobody waits for any more goes on in its first second, so that dials
// which wait for less than it takes have a lane in the end. Else it is given up, and the next dial begins
// another; at once if that is for a dial with a port of its own, or alone.
func TestBringUpForNobody(t *testing.T) {
	alone, bound := towards(3), towards(4)
	alone.Alone, bound.Src = 1, netip.MustParseAddrPort("127.0.0.1:1")
	const short, most = unwaitedTime * 31 / 100, 20
	for _, test := range []struct {
		to     Target
		takes  time.Duration // to come up
		dial   time.Duration // until each dial leaves
		pause  time.Duration // until the next
		dials  int           // until one succeeds; 0: none does
		brings int
	}{
		{towards(1), unwaitedTime * 8 / 10, short, 0, 3, 1},
		{towards(1), unwaitedTime * 8 / 10, short, unwaitedTime, 2, 1},
		{towards(1), 2 * unwaitedTime, short, 0, 0, most*31/100 + 1},
		{towards(1), 2 * unwaitedTime, short, unwaitedTime / 2, 0, 14}, // of three dials the second begins another
		{towards(1), 2 * unwaitedTime, short, unwaitedTime, 0, most},
		{towards(1), 2 * unwaitedTime, unwaitedTime + short, 0, 0, most},
		{alone, unwaitedTime * 8 / 10, short, 0, 0, most},
		{bound, unwaitedTime * 8 / 10, short, 0, 0, most},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, _, _ := fakeLinks(t, Config{})
			var brings, left atomic.Int32
			l.bring = func(ctx context.Context, _ Target, k *linkLane) (carrier, error) {
				brings.Add(1)
				select {
				case <-time.After(test.takes):
					return &fakeLane{k: k, peer: 1, most: 1 << 20}, nil
				case <-ctx.Done():
					left.Add(1)
					return nil, context.Cause(ctx)
				}
			}
			dials, ok := 0, false
			for !ok && dials < most {
				ctx, cancel := context.WithTimeout(t.Context(), test.dial)
				_, err := l.Dial(ctx, test.to)
				cancel()
				ok = err == nil
				dials++
				time.Sleep(test.pause)
				synctest.Wait()
			}
			require.Equal(t, test.dials > 0, ok)
			if ok {
				require.Equal(t, test.dials, dials)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			require.EqualValues(t, test.brings, brings.Load())
			if !ok {
				require.Equal(t, brings.Load(), left.Load())
			}
			l.mu.Lock()
			require.Empty(t, l.idle)
			l.mu.Unlock()
		})
	}
}

// TestDialBehindOneThatLeft: what it has waited for in vain is given up, and another begins.
func TestDialBehindOneThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := fakeLinks(t, Config{})
		next := l.bring
		l.bring = func(ctx context.Context, to Target, k *linkLane) (carrier, error) {
			l.bring = next
			<-ctx.Done()
			return nil, errors.New("no answer") // whatever it says of that
		}
		ctx, cancel := context.WithTimeout(t.Context(), unwaitedTime/2)
		defer cancel()
		began := time.Now()
		_, err := l.Dial(ctx, towards(1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = l.Dial(t.Context(), towards(1))
		require.NoError(t, err)
		require.Equal(t, unwaitedTime+time.Second, time.Since(began))
	})
}

// TestBringUpThatFails: it fails all that wait, and not those that come later.
func TestBringUpThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, fail := fakeLinks(t, Config{})
		*fail = errors.New("no way there")
		errs := make(chan error, 5)
		for range 5 {
			go func() {
				_, err := l.Dial(t.Context(), towards(1))
				errs <- err
			}()
		}
		for range 5 {
			require.ErrorIs(t, <-errs, *fail)
		}
		*fail = nil
		_, err := l.Dial(t.Context(), towards(1))
		require.NoError(t, err)
		require.Len(t, *lanes, 1)
	})
}

// TestIdleLinks: a link without streams is kept for a while, and not longer.
func TestIdleLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeLinks(t, Config{Idle: 10 * time.Second})
		dial := func() *fakeLane {
			_, err := l.Dial(t.Context(), towards(1))
			require.NoError(t, err)
			return (*lanes)[len(*lanes)-1]
		}
		f := dial()
		time.Sleep(time.Minute) // a stream keeps it
		require.False(t, f.closed.Load())
		f.end()
		time.Sleep(9 * time.Second)
		require.Same(t, f, dial())
		f.end()
		time.Sleep(9 * time.Second)
		require.False(t, f.closed.Load())
		time.Sleep(2 * time.Second)
		require.True(t, f.closed.Load())
		require.NotSame(t, f, dial())
		require.Len(t, *lanes, 2)

		l.links[towards(1)].lanes[0].retired(nil) // the listener takes no more
		dial()
		require.Len(t, *lanes, 3)
		(*lanes)[1].end()
		time.Sleep(time.Millisecond)
		require.True(t, (*lanes)[1].closed.Load(), "a retired link was kept without streams")
		require.False(t, (*lanes)[2].closed.Load())
	})
}

// TestMaxIdleLinks: of too many idle links the one goes that was idle for the longest.
func TestMaxIdleLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeLinks(t, Config{MaxIdle: 2, Idle: time.Hour})
		for i := range 4 {
			_, err := l.Dial(t.Context(), towards(uint16(i)))
			require.NoError(t, err)
		}
		for _, i := range []int{2, 0, 3, 1} {
			(*lanes)[i].end()
			time.Sleep(time.Second)
		}
		for i, f := range *lanes {
			require.Equal(t, i == 2 || i == 0, f.closed.Load(), "link %d", i)
		}
	})
}

// TestMaxIdleLinksAtOnce: so many go, too, if all become idle before one has gone.
func TestMaxIdleLinksAtOnce(t *testing.T) {
	const most, all = 2, 9
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeLinks(t, Config{MaxIdle: most, Idle: time.Hour})
		for i := range all {
			_, err := l.Dial(t.Context(), towards(uint16(i)))
			require.NoError(t, err)
		}
		for _, f := range *lanes {
			f.end()
		}
		time.Sleep(time.Second)
		for i, f := range *lanes {
			require.Equal(t, i < all-most, f.closed.Load(), "link %d", i)
		}
	})
}

// TestCloseLinks: what is up is retired, what comes up is given up, and dials fail.
func TestCloseLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeLinks(t, Config{})
		_, err := l.Dial(t.Context(), towards(1))
		require.NoError(t, err)
		errs := make(chan error)
		go func() {
			_, err := l.Dial(t.Context(), towards(2))
			errs <- err
		}()
		synctest.Wait()
		require.NoError(t, l.Close())
		require.Error(t, <-errs)
		require.True(t, (*lanes)[0].retired.Load())
		_, err = l.Dial(t.Context(), towards(1))
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, l.Close(), net.ErrClosed)
	})
}

// TestCloseLinksEndsDialsOfADroppedLane: a dial that waits for a lane which comes up and was dropped meanwhile,
// as the host did not answer on another, ends as well.
func TestCloseLinksEndsDialsOfADroppedLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := fakeLinks(t, Config{})
		l.bring = func(ctx context.Context, _ Target, _ *linkLane) (carrier, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		errs := make(chan error, 1)
		go func() {
			_, err := l.Dial(ctx, towards(1))
			errs <- err
		}()
		synctest.Wait()
		l.mu.Lock()
		other := &linkLane{l: l, link: l.links[towards(1)]}
		require.Empty(t, other.unanswered())
		require.Empty(t, l.links)
		l.mu.Unlock()
		began := time.Now()
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-errs, net.ErrClosed)
		require.Zero(t, time.Since(began))
	})
}
