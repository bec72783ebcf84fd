package link

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnansweredMemory: a dialer whose device does not say that it has what is written to its
// memory, as that of a process which was stopped, is accepted all the same: it has a place of
// the backlog until then. Other dials go on.
func TestUnansweredMemory(t *testing.T) {
	b := newBed(t, Config{Lanes: 1, Backlog: 1})
	_, server := b.pair()
	e := server.e
	e.mu.Lock()
	cq := &silentCQ{e.sq.cq, true}
	e.sq.cq = cq
	e.reached = nil // the next ring lies in memory that is not known
	e.mu.Unlock()
	client := b.dial()
	require.NoError(t, b.accept().Close())
	e.mu.Lock()
	require.Empty(t, e.unannounced)
	cq.silent = false
	e.mu.Unlock()
	require.NoError(t, client.Close())
	b.dial()
	b.accept()
}
