package link

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// An unreadCQ has a completion that nobody has taken in.
type unreadCQ struct {
	verbs.CQ
	late []verbs.WC
}

func (q *unreadCQ) Poll(wcs []verbs.WC) (int, error) {
	if n := copy(wcs, q.late); n > 0 {
		q.late = q.late[n:]
		return n, nil
	}
	return q.CQ.Poll(wcs)
}

// A countingOwner counts the ends of its lane.
type countingOwner struct {
	owner
	ends int
}

func (o *countingOwner) gone(e *laneEnd) { o.ends++; o.owner.gone(e) }

// TestLaneEndsOnce: what is taken in on the way to ABORT may end a lane as well. It ends once, for the first cause.
func TestLaneEndsOnce(t *testing.T) {
	client, server := newBed(t, Config{}).pair()
	say(t, client, server)
	say(t, server, client)
	e := server.e
	o := &countingOwner{owner: e.owner}
	e.mu.Lock()
	e.owner = o
	e.unannounced = append(e.unannounced, unannounced{s: server.now()}) // which cannot be accepted again
	e.sq.cap = sendDepth / 4                                            // so that it looks for room
	e.sq.cq = &unreadCQ{e.sq.cq, []verbs.WC{{WRID: e.sq.posted}}}
	e.failLocked(e.state.KeptPlaces())
	ends, err := o.ends, e.err
	e.mu.Unlock()
	require.Equal(t, 1, ends)
	require.ErrorIs(t, err, lane.RuleRecall)
	within(t, "the end of the lane", func() { <-e.done })
	within(t, "Read", func() {
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, lane.RuleRecall)
	})
}
