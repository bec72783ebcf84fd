package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
