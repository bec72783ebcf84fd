package link

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCloseWhileLanesComeUp closes a Listener at any moment of the bring-up of lanes. Each
// dial ends.
func TestCloseWhileLanesComeUp(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		for round := range 30 {
			b := newBed(t, cfg)
			ctx, cancel := context.WithCancel(b.ctx())
			var dials sync.WaitGroup
			for range 4 {
				links, err := NewLinks(b.links.cfg)
				require.NoError(t, err)
				dials.Go(func() {
					defer links.Close()
					if s, err := links.Dial(ctx, Target{Dst: b.l.Addr()}); err == nil {
						_ = s.Close()
					}
				})
			}
			time.Sleep(time.Duration(round) * 100 * time.Microsecond)
			require.NoError(t, b.l.Close())
			time.AfterFunc(20*time.Millisecond, cancel) // of those who found nobody any more
			within(t, "dials", dials.Wait)
			require.NoError(t, b.links.Close())
		}
	})
}

// TestPlacesOfALaneThatEnds: those that were to be granted to it go back to the backlog.
func TestPlacesOfALaneThatEnds(t *testing.T) {
	b := newBed(t, Config{Backlog: 50, Places: 8})
	client, server := b.pair()
	say(t, client, server)
	e := server.e
	e.mu.Lock()
	b.l.mu.Lock()
	e.listener.share.window = 50 // as if it had used what it got
	b.l.mu.Unlock()
	e.listener.note(noteWanted, 20)
	due := e.work.grant
	e.failLocked(errGone)
	e.mu.Unlock()
	require.Positive(t, due)
	within(t, "the end of the lane", func() { <-e.done })
	b.l.mu.Lock()
	defer b.l.mu.Unlock()
	require.Equal(t, 50, b.l.backlog.left)
}

// TestAllStreamsInUse: a dial that waits at a lane of which every id is in use gets the next one
// that is released.
func TestAllStreamsInUse(t *testing.T) {
	for _, streams := range []int{1, 2, 3} {
		b := newBed(t, Config{Streams: 3, Places: streams})
		var ends []*Stream
		for range 3 {
			client, server := b.pair()
			say(t, client, server)
			ends = append(ends, client, server)
		}
		for i := range 5 {
			next := make(chan *Stream, 1)
			go func() {
				s, err := ends[0].e.dialer.open(b.ctx(), nil)
				if err != nil {
					t.Error(err)
				}
				next <- s
			}()
			e := ends[1].e
			require.Eventually(t, func() bool {
				b.l.mu.Lock()
				defer b.l.mu.Unlock()
				return e.listener.share.want > 0
			}, patience, time.Millisecond, "round %d", i)
			require.NoError(t, ends[0].Close())
			require.NoError(t, ends[1].Close())
			within(t, "the dial that waits", func() {
				client := <-next
				server := b.accept()
				say(t, client, server)
				ends = append(ends[2:], client, server)
			})
		}
		for _, s := range ends {
			require.NoError(t, s.Close())
		}
	}
}

// TestCloseWithReusePort: Accept goes on to return what was opened before the dialers knew, and
// then fails; what nobody takes is reset by Abandon.
func TestCloseWithReusePort(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.CM.ReusePort = true
		b := newBed(t, cfg)
		first, server := b.pair()
		clients := []*Stream{b.dial()}
		if cfg.Places != 1 {
			clients = append(clients, b.dial())
		}
		require.Eventually(t, func() bool { n, _ := b.l.Opened(); return n == len(clients) }, patience, time.Millisecond)
		require.NoError(t, b.l.Close())
		for _, client := range clients {
			say(t, client, b.accept())
		}
		_, err := b.l.Accept(b.ctx())
		require.ErrorIs(t, err, net.ErrClosed)
		say(t, first, server)

		b = newBed(t, cfg)
		client := b.dial()
		require.Eventually(t, func() bool { n, _ := b.l.Opened(); return n == 1 }, patience, time.Millisecond)
		require.NoError(t, b.l.Close())
		b.l.Abandon()
		_, err = b.l.Accept(b.ctx())
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}
