package link

import (
	"io"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestWorkBeforeSleep: a call that takes in, on its way to sleep, that another stream needs a
// larger ring sees to that before it sleeps: nothing else comes that would wake it.
func TestWorkBeforeSleep(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		for range 20 {
			talks, server := b.pair()
			unread, beside := b.pair()
			for range 3 {
				say(t, talks, server)
				say(t, server, talks)
			}
			say(t, talks, server) // after which the call is expected back
			var waits sync.WaitGroup
			ring := ringOf(beside) // it is a larger one soon
			_, err := unread.Write(make([]byte, ring))
			require.NoError(t, err)
			waits.Go(func() { _, _ = server.Read(make([]byte, 1)) }) // until the end of the round
			within(t, "a Write to whom nobody reads", func() {
				_, err := unread.Write(make([]byte, 2*ring))
				require.NoError(t, err)
			})
			for _, s := range []*Stream{talks, server, unread, beside} {
				_ = s.Close()
			}
			within(t, "the read", waits.Wait)
		}
	})
}

// TestPlacesAskedBackAtOnce: a dial whose place is asked back before it was taken in waits for the
// next one.
func TestPlacesAskedBackAtOnce(t *testing.T) {
	b := newBed(t, Config{Backlog: 1})
	more := b.anotherLinks()
	times := 200
	if os.Getenv("RDMANET_TEST_SLOW") != "" {
		times = 50
	}
	go func() {
		for {
			s, err := b.l.Accept(b.ctx())
			if err != nil {
				return
			}
			_ = s.Close()
		}
	}()
	within(t, "dials of two links that have one place", func() {
		var dials sync.WaitGroup
		for _, l := range []*Links{b.links, more, b.links, more} {
			dials.Go(func() {
				for range times {
					s, err := l.Dial(b.ctx(), Target{Dst: b.l.Addr()})
					if err != nil {
						t.Error(err)
						return
					}
					_ = s.Close()
				}
			})
		}
		dials.Wait()
	})
}

// TestRefusedOpenGivesItsPlaceBack: who opens by a port that it was not given, and does not
// release the id, keeps no place of the backlog.
func TestRefusedOpenGivesItsPlaceBack(t *testing.T) {
	b := newBed(t, Config{Backlog: 50, Places: 2})
	client, server := b.pair()
	say(t, client, server)
	e := client.e
	stored := func() int {
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		return server.e.listener.share.stored
	}
	require.Eventually(t, func() bool { return stored() > 0 }, patience, time.Millisecond)
	var id lane.ID
	server.e.mu.Lock()
	for i, p := range server.e.listener.places {
		if !p.IsZero() {
			id = lane.ID(i)
			break
		}
	}
	server.e.mu.Unlock()
	e.mu.Lock()
	last, err := lane.ParseRecord(e.record[:]) // that the dialer has sent
	require.NoError(t, err)
	open := make([]byte, lane.RecordLen)
	require.NoError(t, (&lane.Record{
		Kind: lane.KindOpen, Stream: id, Epoch: last.Epoch, Number: last.Number + 1,
		Ring: client.in.pieces[0].Ring(), Opens: 2, Port: 7,
	}).Put(open))
	e.mu.Unlock()
	server.e.mu.Lock()
	defer server.e.mu.Unlock() // so the dialer, which does not know of it, has not answered yet
	before := stored()
	require.NoError(t, server.e.state.Arrive(lane.Doorbell{Type: lane.TypeControl}.Imm(), open))
	server.e.settle()
	require.Contains(t, server.e.listener.refused, id)
	require.Equal(t, before-1, stored())
}

// TestLeavesWhoDoesNotAnswer: a listener that has closed does not keep a lane whose dialer says
// nothing about its streams.
func TestLeavesWhoDoesNotAnswer(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	say(t, client, server)
	e := server.e
	e.mu.Lock()
	e.away = true
	e.mu.Unlock()
	e.listener.leaveUnanswered() // as when the time is up
	say(t, client, server)
	require.NoError(t, server.Close())
	require.NoError(t, client.Close())
	within(t, "the end of the lane", func() { <-e.done })
}

// TestLeavesWhoDoesNotRelease: nor one whose dialer keeps a stream that was refused.
func TestLeavesWhoDoesNotRelease(t *testing.T) {
	m := newBed(t, Config{}).wirePair(lane.RoleDialer, wireConfig{})
	e := m.ours.e
	s := m.p.place()
	require.NoError(t, m.l.Close())
	require.Equal(t, lane.StageAnnounce, m.p.heardRecord(lane.KindGoAway).Stage)
	m.p.opens++
	m.p.say(lane.Record{Kind: lane.KindOpen, Stream: s.id, Ring: s.own, Opens: m.p.opens, Port: s.port})
	refused := m.p.heardRecord(lane.KindRefused)
	require.Equal(t, s.id, refused.Stream)
	require.Equal(t, lane.CodeGoingAway, refused.Code)
	m.p.say(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageStopped, Opens: m.p.opens})
	require.Equal(t, lane.StageFinal, m.p.heardRecord(lane.KindGoAway).Stage)
	require.NoError(t, m.ours.Close())
	m.p.heardRecord(lane.KindClose)
	m.p.say(lane.Record{Kind: lane.KindClose, Stream: m.s.id})
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.live == 0
	}, patience, time.Millisecond)
	select {
	case <-e.done:
		t.Fatal("the dialer has not heard what was refused")
	default:
	}
	e.listener.leaveUnanswered() // as when the time is up
	within(t, "the end of the lane", func() { <-e.done })
}

// portsInUse is how many a client address has.
func (b *bed) portsInUse(host netip.Addr) int {
	b.l.clients.mu.Lock()
	defer b.l.clients.mu.Unlock()
	if h := b.l.clients.hosts[host]; h != nil {
		return len(h.used)
	}
	return 0
}

// placesKept are the ids whose places have a ring.
func (e *laneEnd) placesKept() (ids []lane.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, p := range e.listener.places {
		if !p.IsZero() {
			ids = append(ids, lane.ID(id))
		}
	}
	return ids
}

// TestUntakenPlacesAreFreed: when the dialer has answered GOAWAY, early or late, what it has not taken has no
// port and no memory any more, though a stream keeps the lane. What it may write to has both until it has
// released that, or the lane ends.
func TestUntakenPlacesAreFreed(t *testing.T) {
	for _, late := range []bool{false, true} {
		eachFlavour(t, func(t *testing.T, cfg Config) {
			cfg.Places = 32
			b := newBed(t, cfg)
			m := b.wirePair(lane.RoleDialer, wireConfig{})
			p, e := m.p, m.ours.e
			host := e.listener.ports.host
			p.say(lane.Record{Kind: lane.KindWant, Count: 4})
			for len(p.store) < 4 {
				if r := p.hear(); r.Type == lane.TypeControl && r.record.Kind == lane.KindPlaces {
					p.granted(r.record)
				}
			}
			next, asked := p.place(), p.place()
			e.listener.leave(!late)
			if late {
				e.listener.leaveUnanswered() // as when the time is up
			}
			require.Equal(t, lane.StageAnnounce, p.heardRecord(lane.KindGoAway).Stage)
			kept, others := e.placesKept(), 1 // ports: that of the stream
			if e.listener.ports.bound != 0 {
				others++
			}
			require.Eventually(t, func() bool { return b.portsInUse(host) == len(kept)+others }, patience, time.Millisecond) // none is being made
			p.opens++                                                                                                        // refused, or seen by nobody any more
			p.say(lane.Record{Kind: lane.KindOpen, Stream: next.id, Ring: next.own, Opens: p.opens, Port: next.port})
			if !late {
				require.Equal(t, next.id, p.heardRecord(lane.KindRefused).Stream)
			}
			require.Equal(t, kept, e.placesKept(), "the dialer has not answered")
			require.Equal(t, len(kept)+others, b.portsInUse(host))

			p.say(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageStopped, Opens: p.opens})
			require.Equal(t, lane.StageFinal, p.heardRecord(lane.KindGoAway).Stage)
			p.say(lane.Record{Kind: lane.KindRelease, Stream: asked.id}) // for which it was asked before
			p.write(m.s, []byte("hello"))
			got := make([]byte, 5)
			_, err := io.ReadFull(m.ours, got)
			require.NoError(t, err)
			require.Equal(t, []lane.ID{next.id}, e.placesKept())
			require.Equal(t, 1+others, b.portsInUse(host))

			if !late {
				p.say(lane.Record{Kind: lane.KindRelease, Stream: next.id})
				p.write(m.s, []byte("hello"))
				_, err = io.ReadFull(m.ours, got)
				require.NoError(t, err)
				require.Empty(t, e.placesKept())
				require.Equal(t, others, b.portsInUse(host))
			}
			require.NoError(t, m.ours.Close())
			require.Equal(t, lane.KindClose, p.heardRecord(lane.KindClose).Kind)
			p.say(lane.Record{Kind: lane.KindClose, Stream: m.s.id, Total: m.s.sent})
			within(t, "the end of the lane", func() { <-e.done })
			require.Zero(t, b.portsInUse(host))
		})
	}
}

// TestUntakenPlacesOfALaneThatGivesWay is the same with the library at both ends.
func TestUntakenPlacesOfALaneThatGivesWay(t *testing.T) {
	b := newBed(t, Config{Places: 32})
	client, server := b.pair()
	e := server.e
	require.Eventually(t, func() bool { return len(e.placesKept()) >= 16 }, patience, time.Millisecond)
	e.listener.leave(false)
	require.Eventually(t, func() bool {
		return len(e.placesKept()) == 0 && b.portsInUse(e.listener.ports.host) == 2 // of the lane and of the stream
	}, patience, time.Millisecond)
	say(t, client, server)
	say(t, server, client)
}
