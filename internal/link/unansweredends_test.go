package link

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// timeUp is the last step of a lane's endsTimer.
func timeUp(e *laneEnd) {
	e.mu.Lock()
	e.ends.timer.left = 1
	e.mu.Unlock()
	e.ends.answersMissing()
}

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
			return e.ends.timer.timer != nil && e.err == nil
		}
		require.True(t, timed())

		m.another(2)
		timeUp(e)
		require.False(t, timed(), "there is a stream that is open")
		m.conversation() // which ends the other, and answers it
		require.True(t, timed())
		m.another(2)
		require.NoError(t, m.ours.Close())
		m.p.heardRecord(lane.KindClose)
		timeUp(e)
		require.True(t, timed(), "there was a stream since")

		for range endsSteps - 1 {
			e.ends.answersMissing()
			require.True(t, timed())
		}
		e.ends.answersMissing()
		within(t, "the end of the lane", func() { <-e.done })
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
		if e.p.synchronous { // what was posted has arrived
			timeUp(e)
		}
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.live == 0
		}, patience, time.Millisecond)
		timeUp(e)
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
		e.listener.leaveUnanswered() // as when the time is up
		e.mu.Lock()
		require.Equal(t, goAwayTime, e.ends.timer.step*endsSteps, "it is to end sooner")
		e.mu.Unlock()
		timeUp(e)
		within(t, "the end of a lane", func() { <-e.done })
	}
	b.l.mu.Lock()
	defer b.l.mu.Unlock()
	require.Len(t, b.l.lanes, maxQuietLanes)
	for _, q := range b.l.quietLanes {
		require.Len(t, q, maxQuietLanes)
	}
}

// TestQuietLaneIsUsed: a lane is quiet when the program has closed its streams, and not before: neither while
// it has one that the client has ended, nor when another comes then.
func TestQuietLaneIsUsed(t *testing.T) {
	b := newBed(t, Config{Idle: patience})
	client, server := b.pair()
	e := server.e
	quiet := func() bool {
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		for _, q := range b.l.quietLanes {
			if slices.Contains(q, e) {
				return true
			}
		}
		return false
	}
	require.NoError(t, client.Close())
	require.Eventually(t, func() bool {
		e.pollNow()
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.live == 0
	}, patience, time.Millisecond)
	require.False(t, quiet())
	again, other := b.pair()
	require.Same(t, e, other.e)
	require.False(t, quiet())
	require.NoError(t, server.Close())
	require.False(t, quiet())
	require.NoError(t, other.Close())
	require.True(t, quiet())
	require.NoError(t, again.Close())
}

// TestEndsAnsweredBehindPeek: a program that uses what it has read of a closed stream does not make its peer
// one that does not answer.
func TestEndsAnsweredBehindPeek(t *testing.T) {
	b := newBed(t, Config{Idle: patience})
	client, server := b.pair()
	_, err := server.Write([]byte("hello"))
	require.NoError(t, err)
	p, err := client.Peek(0, true)
	require.NoError(t, err)
	require.Equal(t, "hello", string(p))
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	e := client.e
	awaitQuiet(t, client.stream)
	timeUp(e)
	e.mu.Lock()
	require.NoError(t, e.err)
	require.Equal(t, 1, e.live)
	e.mu.Unlock()
	client.Unpeek()
	again, other := b.pair()
	require.Same(t, e, again.e)
	say(t, again, other)
}
