package link

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// overNetwork is a bed whose requests may be lost.
func overNetwork(t *testing.T) *bed {
	t.Helper()
	needFailing(t)
	return newBed(t, Config{CM: cm.Options{Device: "remote0"}})
}

// unanswered has a dial make a request that is not answered, and a second one, and returns what has
// each of them answered, and what waits for the dial.
func unanswered(t *testing.T, b *bed) (answer [2]func(), dialled func() *Stream) {
	t.Helper()
	ups := &b.l.ups
	ups.mu.Lock()
	ups.taken = maxBringUps
	ups.mu.Unlock()
	got := make(chan *Stream, 1)
	go func() {
		s, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	var waiting []chan struct{}
	require.Eventually(t, func() bool {
		ups.mu.Lock()
		defer ups.mu.Unlock()
		waiting = append(waiting[:0], ups.waiting...)
		return len(waiting) == 2
	}, patience, time.Millisecond, "the dial does not ask again")
	for i, w := range waiting {
		answer[i] = func() {
			ups.mu.Lock()
			defer ups.mu.Unlock()
			if i := slices.Index(ups.waiting, w); i >= 0 { // else the end of another's bring-up has done so
				ups.waiting = slices.Delete(ups.waiting, i, i+1)
				w <- struct{}{}
			}
		}
	}
	return answer, func() (s *Stream) {
		t.Helper()
		within(t, "Dial", func() { s = <-got })
		require.NotNil(t, s)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
}

// requireOneLane sees that each end has one lane, and talks over it.
func requireOneLane(t *testing.T, b *bed, client *Stream) {
	t.Helper()
	server := b.accept()
	t.Cleanup(func() { _ = server.Close() })
	say(t, client, server)
	say(t, server, client)
	require.Len(t, b.links.Lanes(), 1)
	require.Eventually(t, func() bool { return len(b.l.Lanes()) == 1 }, patience, time.Millisecond, "the request that was not confirmed is a lane")
}

// TestLostRequest: a request for a lane that nobody answers is made again, for all dials that wait
// for the lane.
func TestLostRequest(t *testing.T) {
	b := overNetwork(t)
	answer, dialled := unanswered(t, b)
	answer[1]()
	requireOneLane(t, b, dialled())
}

// TestLateAnswer: the first request was only slow. Of two answers one is confirmed.
func TestLateAnswer(t *testing.T) {
	b := overNetwork(t)
	answer, dialled := unanswered(t, b)
	answer[0]()
	client := dialled()
	answer[1]()
	requireOneLane(t, b, client)
}

// TestBothAnswers come at once.
func TestBothAnswers(t *testing.T) {
	b := overNetwork(t)
	answer, dialled := unanswered(t, b)
	go answer[0]()
	answer[1]()
	requireOneLane(t, b, dialled())
}
