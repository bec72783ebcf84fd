package link

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// far has the end take its peer for one of another host.
func (e *laneEnd) far() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.p.sameHost = false
}

// saysNothing waits until the end has no more to send.
func (e *laneEnd) saysNothing(t *testing.T) {
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.settle()
		return !e.state.Due() && !e.work.any() && !e.work.running
	}, patience, time.Millisecond)
}

// TestOutOfReachKeepsConnection: a lane whose peer is out of reach says no goodbye while the
// program has its streams. A stream that is closed is finished at once.
func TestOutOfReachKeepsConnection(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		other, theirs := b.pair()
		e := client.e
		require.Same(t, e, other.e)
		server.e.saysNothing(t) // by which it would find out, as a rule
		e.far()
		server.e.far()
		e.fail(e.sendErr(verbs.WCRetryExcErr))
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ETIMEDOUT)

		finished := make(chan struct{})
		other.OnFinish(func() { close(finished) })
		require.NoError(t, other.Close())
		within(t, "the end of a closed stream", func() { <-finished })

		read := make(chan error, 1)
		go func() {
			_, err := server.Read(make([]byte, 1))
			read <- err
		}()
		select {
		case <-e.done:
			t.Fatal("the lane has gone although a stream is open")
		case err := <-read: // by places that it grants meanwhile it finds out that nobody answers
			require.ErrorIs(t, err, syscall.ETIMEDOUT, "the peer was told")
			read <- err
		case <-time.After(50 * time.Millisecond):
		}
		require.NoError(t, client.Close())
		within(t, "the end of the lane", func() { <-e.done })
		within(t, "the end of the peer's stream", func() { err = <-read })
		requireDead(t, server, err)
		require.NoError(t, errors.Join(server.Close(), theirs.Close()))
	})
}

// TestOutOfReachHearsTheEnd: the lane goes when the connection manager says that the peer has.
func TestOutOfReachHearsTheEnd(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	e := client.e
	e.far()
	server.e.far()
	e.fail(errGone)
	select {
	case <-e.done:
		t.Fatal("the lane has gone although a stream is open")
	case <-time.After(50 * time.Millisecond):
	}
	server.e.fail(ErrLinkClosed)
	require.NoError(t, server.Close()) // it may have found out before
	within(t, "the end of the lane", func() { <-e.done })
	require.NoError(t, client.Close())
}

// TestOutOfReachAnswersNobody: a peer that is heard again after this end gave it up finds that out by what
// it sends.
func TestOutOfReachAnswersNobody(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		e := client.e
		e.far()
		server.e.far()
		e.fail(errNoAnswer)
		require.Eventually(t, func() bool { return e.p.qp.State() == verbs.QPErr }, patience, time.Millisecond)
		wrote := make(chan error, 1)
		go func() {
			for p := make([]byte, 1<<10); ; {
				if _, err := server.Write(p); err != nil {
					wrote <- err
					return
				}
			}
		}()
		var err error
		within(t, "the end of the peer's Writes", func() { err = <-wrote })
		requireDead(t, server, err)
		select {
		case <-e.done:
			t.Fatal("the lane has gone although a stream is open")
		default:
		}
		require.NoError(t, errors.Join(client.Close(), server.Close()))
		within(t, "the end of the lane", func() { <-e.done })
	})
}

// TestOutOfReach: whoever has answered, or is heard to lie, is told of the end at once.
func TestOutOfReach(t *testing.T) {
	for _, c := range []struct {
		err      error
		sameHost bool
		away     bool
	}{
		{err: errGone, away: true},
		{err: errors.Join(errGone, verbs.WCLocQPOpErr), away: true},
		{err: errors.Join(errNoAnswer, verbs.WCRetryExcErr), away: true},
		{err: errGone, sameHost: true},
		{err: errors.Join(errGone, verbs.WCRNRRetryExcErr)},
		{err: errors.Join(errGone, verbs.WCRemAccessErr)},
		{err: fmt.Errorf("%w: a lie", ring.ErrProtocol)},
		{err: accused(lane.Rule(1))},
		{err: ErrLinkClosed},
		{err: errRemoved},
		{err: context.DeadlineExceeded},
	} {
		e := &laneEnd{p: &endpoint{sameHost: c.sameHost}, err: c.err}
		require.Equal(t, c.away, e.outOfReach(), "%v, same host: %t", c.err, c.sameHost)
	}
}

// TestFlushAsksWhy: receives that were flushed before the completion of the request was taken in
// that failed are flushed for its sake.
func TestFlushAsksWhy(t *testing.T) {
	b := newBed(t, Config{})
	client, _ := b.pair()
	e := client.e
	e.far()
	e.mu.Lock()
	e.sq.cq = failedCQ{e.sq.cq, verbs.WCRetryExcErr}
	err := e.receiveFailed(verbs.WCWRFlushErr)
	e.mu.Unlock()
	require.ErrorIs(t, err, errNoAnswer)
	require.ErrorIs(t, err, verbs.WCRetryExcErr)
	e.fail(err)
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ETIMEDOUT)
	e.event(&cm.Event{Type: cm.Disconnected})
	within(t, "the end of the lane", func() { <-e.done })
}

// A failedCQ holds the completion of a request that has failed.
type failedCQ struct {
	verbs.CQ
	status verbs.WCStatus
}

func (q failedCQ) Poll(wcs []verbs.WC) (int, error) {
	wcs[0] = verbs.WC{Status: q.status}
	return 1, nil
}

// TestNoDialBesideALaneWithoutAnswer: where the peer's host does not answer on one lane, no dial
// is opened on another one of the link, whose device has not been asked since.
func TestNoDialBesideALaneWithoutAnswer(t *testing.T) {
	b := newBed(t, Config{Lanes: 2, Idle: patience})
	clients, servers := b.lanesOf(2)
	require.NotSame(t, clients[0].e, clients[1].e)
	lost, beside := clients[0].e, clients[1].e
	lost.fail(errors.Join(errNoAnswer, verbs.WCRetryExcErr))
	next := b.dial()
	defer next.Close()
	require.NotSame(t, beside, next.e)
	_, err := clients[1].Write([]byte{1})
	require.NoError(t, err, "a stream that stands goes on")
	for _, s := range append(clients, servers...) {
		_ = s.Close()
	}
	within(t, "the end of the lane beside", func() { <-beside.done })
}
