package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestEndsUnanswered: a lane stays for streams that the program has closed and the peer has not, but not for
// ever. One that goes on being used stays.
func TestEndsUnanswered(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		b := newBed(t, cfg)
		m := b.wirePair(role, wireConfig{})
		e := m.ours.e
		m.p.write(m.s, []byte("read"))
		within(t, "a message", func() {
			_, err := m.ours.Read(make([]byte, 4))
			require.NoError(t, err)
		})
		require.NoError(t, m.ours.Close())
		m.p.heardRecord(lane.KindClose)
		timed := func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.endsTimer.timer != nil && e.err == nil
		}
		require.True(t, timed())

		m.another(2)
		e.answersMissing() // as when the time is up
		require.False(t, timed(), "there is a stream that is open")
		m.conversation() // which ends the other, and answers it
		require.True(t, timed())
		m.another(2)
		require.NoError(t, m.ours.Close())
		m.p.heardRecord(lane.KindClose)
		e.answersMissing()
		require.True(t, timed(), "there was a stream since")

		e.answersMissing()
		within(t, "the end of the lane", func() { <-e.done })
		e.mu.Lock()
		require.Nil(t, e.endsTimer.timer)
		require.Zero(t, e.live)
		e.mu.Unlock()
	})
}

// TestEndsAnswered: nor is a lane ended whose peer has answered, be it that nobody has taken that in.
func TestEndsAnswered(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		b := newBed(t, cfg)
		m := b.wirePair(role, wireConfig{})
		e := m.ours.e
		require.NoError(t, m.ours.Close())
		m.p.heardRecord(lane.KindClose)
		m.p.say(lane.Record{Kind: lane.KindClose, Stream: m.s.id})
		if e.p.sameHost { // what was posted has arrived
			e.answersMissing()
		}
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.live == 0
		}, patience, time.Millisecond)
		e.answersMissing()
		m.another(1)
		m.conversation()
	})
}

// TestQuietLanesOfWhoDoesNotAnswer: to leave the ends of streams unanswered lets nobody have more lanes than
// others without a stream have.
func TestQuietLanesOfWhoDoesNotAnswer(t *testing.T) {
	const more = 4
	b := newBed(t, Config{})
	var lanes []*laneEnd
	for range maxQuietLanes + more {
		m := b.wirePair(lane.RoleDialer, wireConfig{})
		lanes = append(lanes, m.ours.e)
		require.NoError(t, m.ours.Close())
		m.p.heardRecord(lane.KindClose)
	}
	for _, e := range lanes[:more] {
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.away
		}, patience, time.Millisecond)
		timer := func() *runtimer.Timer {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.endsTimer.timer
		}
		long := timer()
		e.leaveUnanswered() // as when the time is up
		require.NotSame(t, long, timer(), "it is to end sooner")
		e.answersMissing()
		within(t, "the end of a lane", func() { <-e.done })
	}
	b.l.mu.Lock()
	defer b.l.mu.Unlock()
	require.Len(t, b.l.lanes, maxQuietLanes)
	for _, q := range b.l.quietLanes {
		require.Len(t, q, maxQuietLanes)
	}
}
