package link

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// acceptAll accepts all that waits, and closes it.
func (b *bed) acceptAll() {
	b.t.Helper()
	for {
		s, err := b.l.TryAccept()
		require.NoError(b.t, err)
		if s == nil {
			return
		}
		_ = s.Close()
	}
}

// TestRapidReset: a dialer that opens streams and resets them, faster than the application accepts
// them, has to wait for a place. It loses nothing else, others do not notice, and when the
// application has accepted some it goes on.
func TestRapidReset(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Places, cfg.Backlog = 4, 64
		b := newBed(t, cfg)
		client, server := b.pair()
		resets := func() int {
			b.l.mu.Lock()
			defer b.l.mu.Unlock()
			return server.e.listener.share.dialer.resets
		}
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					s, err := b.links.Dial(ctx, Target{Dst: b.l.Addr()})
					if err != nil {
						return
					}
					_ = s.Reset()
				}
			}()
			require.Eventually(t, func() bool { // it waits, and has used up what it had
				server.e.pollNow()
				server.e.mu.Lock()
				defer server.e.mu.Unlock()
				b.l.mu.Lock()
				defer b.l.mu.Unlock()
				s := server.e.listener.share
				return s.want > 0 && s.coming+s.stored == 0 && s.dialer.resets >= b.l.backlog.maxResets && s.dialer.held == s.dialer.resets
			}, patience, time.Millisecond)
			waiting, _ := b.l.Opened()
			require.Equal(t, resets(), waiting)
			require.Less(t, waiting, b.l.cfg.Backlog/2)
			say(t, client, server)
			say(t, server, client)
			beside, err := b.anotherLinks().Dial(b.ctx(), Target{Dst: b.l.Addr()})
			require.NoError(t, err)
			require.Eventually(t, func() bool { n, _ := b.l.Opened(); return n == waiting+1 }, patience, time.Millisecond)
			require.NoError(t, beside.Close())
			within(t, "resets that are accepted", func() {
				for range b.l.cfg.Backlog { // now the application is fast enough
					require.NoError(t, b.accept().Close())
				}
			})
			cancel()
			<-ended
			require.Eventually(t, func() bool {
				b.acceptAll()
				b.l.mu.Lock()
				defer b.l.mu.Unlock()
				d := server.e.listener.share.dialer
				return len(b.l.accepted) == 0 && d.resets == 0 && d.held == server.e.listener.share.stored+server.e.listener.share.coming
			}, patience, time.Millisecond)
		}
		say(t, client, server)
		require.Same(t, client.e, b.dial().e, "the same lane")
	})
}

// TestResetsOfAcceptedStreams: who resets streams that are accepted may do so for ever, and who
// closes them before they are accepted does not reset them.
func TestResetsOfAcceptedStreams(t *testing.T) {
	b := newBed(t, Config{Backlog: 2 * leastResets})
	client, server := b.pair()
	resets := func() int {
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		return server.e.listener.share.dialer.resets
	}
	for range 3 * leastResets {
		s := b.dial()
		accepted := b.accept()
		require.NoError(t, s.Reset())
		_, err := accepted.Read(make([]byte, 1))
		require.Error(t, err)
		require.Zero(t, resets())
		require.NoError(t, accepted.Close())
	}
	for range leastResets {
		s := b.dial()
		_, err := s.Write([]byte("fire and forget"))
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	for range leastResets {
		s := b.accept()
		require.Zero(t, resets())
		buf := make([]byte, 20)
		n, err := s.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "fire and forget", string(buf[:n]))
		require.NoError(t, s.Close())
	}
	say(t, client, server)
}
