package link

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A portPair is a stream from a port of its own to a wirePeer, and dials from there.
type portPair struct {
	*wirePair
	to Target
}

func newPortPair(t *testing.T) *portPair {
	needFailing(t) // it takes a port that is free on this host
	b := newBed(t, Config{})
	m := &portPair{wirePair: &wirePair{bed: b, p: newWirePeer(t, lane.RoleListener, wireConfig{device: b.l.cfg.CM.Device})}}
	m.to = Target{Src: b.freeAddr(), Dst: m.p.listen()}
	dialled := m.dial(b.ctx())
	m.p.request()
	m.p.accept()
	m.s = m.p.serve(1)
	m.dialled(dialled)
	return m
}

func (m *portPair) dial(ctx context.Context) <-chan dialled {
	done := make(chan dialled, 1)
	go func() {
		s, err := m.links.Dial(ctx, m.to)
		done <- dialled{s, err}
	}()
	return done
}

// reset has the program reset the stream, which the peer does not answer, and dial again.
func (m *portPair) reset(ctx context.Context) <-chan dialled {
	m.t.Helper()
	e := m.ours.e
	require.NoError(m.t, m.ours.Reset())
	require.Equal(m.t, m.s.id, m.p.heardRecord(lane.KindReset).Stream)
	dialled := m.dial(ctx)
	require.Eventually(m.t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.dialer.waiting) == 1
	}, patience, time.Millisecond)
	return dialled
}

// TestPortOfAClosedStream: a dial from the port of a stream that the program has closed and the peer has not waits
// for the end of that, and is the only one that does. One from the port of a stream that is open fails.
func TestPortOfAClosedStream(t *testing.T) {
	m := newPortPair(t)
	e, from := m.ours.e, m.to.Src
	busy := func() {
		_, err := m.links.Dial(m.ctx(), m.to)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	}
	busy()
	dialled := m.reset(m.ctx())
	busy()
	m.p.grant(2) // a place is not what it waits for
	require.Eventually(t, func() bool {
		e.pollNow()
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.state.Places() == 1
	}, patience, time.Millisecond)
	busy()
	m.p.say(lane.Record{Kind: lane.KindClose, Stream: m.s.id})
	m.s = m.p.opened()
	require.Equal(t, from.Port(), m.s.port)
	m.dialled(dialled)
	require.Same(t, e, m.ours.e)
	require.Equal(t, from.String(), m.ours.LocalAddr().String())
	busy()
	m.conversation()
}

// TestPortOfAStreamUnanswered: nor does such a dial keep the lane of a peer that answers nothing: it asks for
// another.
func TestPortOfAStreamUnanswered(t *testing.T) {
	m := newPortPair(t)
	e := m.ours.e
	ctx, cancel := context.WithCancel(m.ctx())
	defer cancel()
	dialled := m.reset(ctx)
	timeUp(e)
	within(t, "the end of the lane", func() { <-e.done })
	within(t, "the request for another", func() {
		for ev := m.p.event(); ev.Type != cm.ConnectRequest; ev = m.p.event() {
		}
	})
	cancel()
	require.ErrorIs(t, (<-dialled).err, context.Canceled)
}
