package link

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestQuietLanes: of one client's lanes without streams no more stay than maxQuietLanes, the
// latest. Those with streams stay, and a dialer whose lane has gone dials as before.
func TestQuietLanes(t *testing.T) {
	const more = 8
	b := newBed(t, Config{Idle: patience})
	busy, served := b.pair()
	var others []*bed
	for range maxQuietLanes + more {
		o := &bed{t, b.l, b.anotherLinks()}
		client, server := o.pair()
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		others = append(others, o)
	}
	held := func() (lanes, quiet int) {
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		for _, q := range b.l.quietLanes {
			quiet += len(q)
		}
		return len(b.l.lanes), quiet
	}
	require.Eventually(t, func() bool {
		lanes, quiet := held()
		return lanes == maxQuietLanes+1 && quiet == maxQuietLanes
	}, patience, time.Millisecond)
	say(t, busy, served)
	for _, o := range others[:more] {
		client, server := o.pair()
		say(t, client, server)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
	require.Eventually(t, func() bool { lanes, _ := held(); return lanes <= maxQuietLanes+1 }, patience, time.Millisecond)
	require.NoError(t, b.l.Close())
	for _, o := range append(others, b) {
		_ = o.links.Close()
	}
	_ = busy.Close()
	_ = served.Close()
	require.Eventually(t, func() bool { lanes, quiet := held(); return lanes == 0 && quiet == 0 }, patience, time.Millisecond)
}

// TestQuietLaneServesWhoCameMeanwhile: a stream that is opened on a lane that gives way, before its
// dialer has heard that, is served although the dialer has closed it and left: its listener is
// still there.
func TestQuietLaneServesWhoCameMeanwhile(t *testing.T) {
	b := newBed(t, Config{})
	m := b.wirePair(lane.RoleDialer, wireConfig{})
	p := m.p
	require.NoError(t, m.ours.Close())
	require.Equal(t, lane.KindClose, p.heardRecord(lane.KindClose).Kind)
	p.say(lane.Record{Kind: lane.KindClose, Stream: m.s.id, Total: m.s.sent})
	next := p.place()
	m.ours.e.listener.leave(false) // as Listener.quiet has it
	p.opens++
	p.say(lane.Record{Kind: lane.KindOpen, Stream: next.id, Ring: next.own, Opens: p.opens, Port: next.port})
	p.write(&next, []byte("hello"))
	p.say(lane.Record{Kind: lane.KindClose, Stream: next.id, Total: next.sent})
	s, err := b.l.Accept(b.ctx())
	require.NoError(t, err)
	buf := make([]byte, 10)
	n, err := s.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "hello", string(buf[:n]))
	require.NoError(t, s.Close())
	b.l.mu.Lock()
	defer b.l.mu.Unlock()
	require.Equal(t, b.l.backlog.size, b.l.backlog.left, "the place of the stream was given back twice")
	require.Empty(t, b.l.backlog.dialers)
}

// TestCloseBehindQuietLane: with ReusePort Accept ends when each dialer has said that it opens no more
// streams, those too that had said it before Close, as their lanes had given way, and have a stream yet.
func TestCloseBehindQuietLane(t *testing.T) {
	cfg := Config{}
	cfg.CM.ReusePort = true
	b := newBed(t, cfg)
	client, server := b.pair()
	say(t, client, server)
	far := server.e
	far.listener.leave(false) // as Listener.quiet has it, when a stream has been opened since
	require.Eventually(t, func() bool {
		far.mu.Lock()
		defer far.mu.Unlock()
		return far.listener.finalNoted
	}, patience, time.Millisecond)
	say(t, client, server)
	require.NoError(t, b.l.Close())
	_, err := b.l.Accept(b.ctx())
	require.ErrorIs(t, err, net.ErrClosed)
	say(t, client, server)
}
