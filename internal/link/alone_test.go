package link

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// alone is to with a number of its own.
func alone(to Target, n uint64) Target {
	to.Alone = n
	return to
}

// TestAlone: each dial that is to be alone has a lane by which no other goes, which ends with its
// stream. None that is kept has to go for it.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 2, Idle: time.Hour, MaxIdle: 1}, time.Millisecond, 2, 1<<20)
		dialed(t, l, 1)
		for n := range uint64(2) {
			_, err := l.Dial(t.Context(), alone(towards(1), n+1))
			require.NoError(t, err)
		}
		require.Equal(t, []int{1, 1, 1}, loads(lanes()))
		dialed(t, l, 5)
		require.Equal(t, []int{3, 1, 1, 3}, loads(lanes()), "plain dials have two lanes")
		_, err := l.Dial(t.Context(), alone(towards(1), 3))
		require.NoError(t, err)
		require.Equal(t, []int{3, 1, 1, 3, 1}, loads(lanes()))

		for range 3 {
			lanes()[3].end()
		}
		lanes()[1].end()
		synctest.Wait()
		for i, f := range lanes() {
			require.Equal(t, i == 1, f.closed.Load(), "lane %d", i)
		}
		l.mu.Lock()
		require.Len(t, l.links, 3)
		require.NotContains(t, l.links, alone(towards(1), 1))
		l.mu.Unlock()
		require.NoError(t, l.Close())
	})
}

// A starvedLane has no place for a stream.
type starvedLane struct{ carrier }

func (starvedLane) open(ctx context.Context, _ *stream) (*Stream, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestAloneInVain: nothing is left of a dial whose time is up, whether its lane comes up, or stands
// without a place.
func TestAloneInVain(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			l, lanes, _ := fakeBeside(t, Config{Idle: time.Hour}, takes, 1, 1<<20)
			bring := l.bring
			l.bring = func(ctx context.Context, to Target, k *linkLane) (carrier, error) {
				c, err := bring(ctx, to, k)
				if err != nil {
					return nil, err
				}
				return starvedLane{c}, nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := l.Dial(ctx, alone(towards(1), 1))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			synctest.Wait()
			if takes == time.Second {
				require.True(t, lanes()[0].closed.Load())
			} else {
				require.Empty(t, lanes())
			}
			l.mu.Lock()
			require.Empty(t, l.links)
			l.mu.Unlock()
			require.NoError(t, l.Close())
		})
	}
}

// dialAlone opens a stream that is alone.
func (b *bed) dialAlone(n uint64) *Stream {
	b.t.Helper()
	s, err := b.links.Dial(b.ctx(), alone(Target{Dst: b.l.Addr()}, n))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

// requireAloneEnds closes a stream that is alone, and waits until nothing is left of its lane.
func requireAloneEnds(t *testing.T, client, server *Stream) {
	t.Helper()
	ends := []*laneEnd{client.now().e, server.now().e}
	require.NoError(t, client.Close())
	_, err := server.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, server.Close())
	within(t, "the end of a lane", func() {
		for _, e := range ends {
			<-e.done
		}
	})
}

// TestAloneStream: on a device, too. The listener keeps nothing for the lane but its stream, and
// counts it as the dialer's.
func TestAloneStream(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Idle = time.Hour
		b := newBed(t, cfg)
		plain, plainServer := b.pair()
		first := b.dialAlone(1)
		firstServer := b.accept()
		second := b.dialAlone(2)
		secondServer := b.accept()
		beside, besideServer := b.pair()
		require.Same(t, plain.e, beside.e)
		require.NotSame(t, plain.e, first.e)
		require.NotSame(t, plain.e, second.e)
		require.NotSame(t, first.e, second.e)
		pairs := [][2]*Stream{{plain, plainServer}, {first, firstServer}, {second, secondServer}, {beside, besideServer}}
		for _, p := range pairs {
			say(t, p[0], p[1])
			say(t, p[1], p[0])
		}
		require.Zero(t, first.LaneStats().Places)
		b.l.mu.Lock()
		require.Len(t, b.l.backlog.dialers, 1)
		b.l.mu.Unlock()

		requireAloneEnds(t, first, firstServer)
		for _, p := range append(pairs[:1], pairs[2:]...) {
			say(t, p[0], p[1])
			say(t, p[1], p[0])
		}
		requireAloneEnds(t, second, secondServer)
		require.NoError(t, beside.Close())
		require.NoError(t, plain.Close())
		again, _ := b.pair()
		require.Same(t, plain.e, again.e, "it was not kept")
	})
}

// TestAloneRedialled: a stream that the listener has not taken is alone at the next one as well.
func TestAloneRedialled(t *testing.T) {
	if cm.DefaultDevice() != "" {
		t.Skip("an address may be in use for a while after Close there")
	}
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Idle = time.Hour
		b := newBed(t, cfg)
		var far *laneEnd
		var held func()
		bring := b.links.bring
		b.links.bring = func(ctx context.Context, to Target, k *linkLane) (carrier, error) {
			c, err := bring(ctx, to, k)
			if err != nil || far != nil {
				return c, err
			}
			b.l.mu.Lock()
			for far = range b.l.lanes { // there is one
			}
			b.l.mu.Unlock()
			far.mu.Lock() // before the stream is opened
			held = sync.OnceFunc(far.mu.Unlock)
			t.Cleanup(held)
			return c, nil
		}
		client := b.dialAlone(1)
		old := client.e
		require.NotNil(t, far)
		at := b.l.Addr()
		require.NoError(t, b.l.id.Close())
		next, err := Listen(b.l.cfg, at)
		require.NoError(t, err)
		t.Cleanup(func() { _ = next.Close() })
		b.l = next
		_, err = client.Write([]byte("be"))
		require.NoError(t, err)
		far.away, far.listener.refuses = true, true // as leave has it, whom the lock would keep waiting
		far.listener.note(noteLeft, 0)
		far.state.GoAway()
		far.settle()
		held()
		far.startWorker()

		server := b.accept()
		_, err = client.Write([]byte("fore"))
		require.NoError(t, err)
		got := make([]byte, len("before"))
		_, err = io.ReadFull(server, got)
		require.NoError(t, err)
		require.Equal(t, "before", string(got))
		say(t, server, client)
		require.NotSame(t, old, client.now().e)
		within(t, "the end of the lane before", func() { <-old.done })

		plain, plainServer := b.pair()
		require.NotSame(t, plain.e, client.now().e)
		requireAloneEnds(t, client, server)
		say(t, plain, plainServer)
		say(t, plainServer, plain)
	})
}
