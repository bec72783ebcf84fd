package link

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSlotTurnsGoOn: the turn of a Write that waits for slots is passed on when it goes on, when it has returned
// for its deadline before, and when its stream has ended, so that all behind it go on.
func TestSlotTurnsGoOn(t *testing.T) {
	const each = 20 // more than there are returns, of which each begins a turn
	b := newBed(t, Config{Receives: 16, Idle: patience})
	var clients []*Stream
	var peer *laneEnd
	for range 3*each + 16 {
		client, server := b.pair()
		clients, peer = append(clients, client), server.e
	}
	e := clients[0].e

	type written struct {
		n   int
		err error
	}
	var waiting []*Stream
	var results []chan written
	peer.mu.Lock() // it returns no slots
	held := true
	defer func() {
		if held {
			peer.mu.Unlock()
		}
	}()
	for _, s := range clients { // one after the other, so that they wait in this order
		result := make(chan written, 1)
		go func() {
			n, err := s.Write([]byte{1})
			result <- written{n, err}
		}()
		waits := false
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			waits = s.now().out.waiter.number != 0
			return waits || len(result) > 0
		}, patience, 100*time.Microsecond)
		if waits {
			waiting, results = append(waiting, s), append(results, result)
		} else {
			require.Equal(t, written{1, nil}, <-result)
		}
	}
	require.GreaterOrEqual(t, len(waiting), 3*each)
	for i, s := range waiting[:2*each] {
		if i < each {
			require.NoError(t, s.SetWriteDeadline(longPast))
			require.Equal(t, written{0, os.ErrDeadlineExceeded}, <-results[i])
		} else {
			require.NoError(t, s.Reset())
			require.Error(t, (<-results[i]).err)
		}
	}
	peer.mu.Unlock()
	held = false
	for _, result := range results[2*each:] {
		select {
		case w := <-result:
			require.Equal(t, written{1, nil}, w)
		case <-time.After(patience):
			require.Fail(t, "a Write was forgotten")
		}
	}
}
