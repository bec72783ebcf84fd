//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

// theLink is the link of a side that is connected.
func (s *side) theLink() *link {
	s.qp.mu.Lock()
	defer s.qp.mu.Unlock()
	return s.qp.link
}

// hushed waits until a side's link has no goroutine any more.
func (s *side) hushed() {
	s.t.Helper()
	l := s.theLink()
	eventually(s.t, func() bool {
		quietLinks.mu.Lock()
		defer quietLinks.mu.Unlock()
		for _, q := range quietLinks.quiet {
			if q == l {
				return true
			}
		}
		return false
	})
}

// askFor has s write to memory of to that it has to ask for over the link.
func (s *side) askFor(to *side, id uint64) {
	s.t.Helper()
	m, err := to.pd.RegMR(to.mem.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemote)
	require.NoError(s.t, err)
	s.post(verbs.SendWR{WRID: id, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte("x"),
		RemoteAddr: m.Addr(), RKey: m.RKey()})
	wc := s.next()
	require.Equal(s.t, verbs.WCSuccess, wc.Status)
	require.Equal(s.t, id, wc.WRID)
	require.NoError(s.t, m.Close()) // which asks the peer to let go of it
}

func (s *side) hungUp() hangup {
	s.t.Helper()
	select {
	case h := <-s.gone:
		return h
	case <-time.After(patience):
		s.t.Fatal("nobody noticed")
		return hangup{}
	}
}

// TestQuietLinkAnswers has links that gave up their goroutines do their work again and again.
func TestQuietLinkAnswers(t *testing.T) {
	a, b := newConnected(t, defaults())
	for id := range uint64(3) {
		a.hushed()
		b.hushed()
		a.askFor(b, id)
	}
	a.hushed()
	b.hushed()
	// The end without a word is that of a process that was killed.
	a.theLink().tx.shutdown()
	for _, s := range []*side{a, b} {
		h := s.hungUp()
		require.False(t, h.orderly)
		require.ErrorIs(t, h.err, verbs.ErrPeerGone)
	}
}

// TestQuietLinkOfClosedSocket has somebody else close the socket that a link waits for.
func TestQuietLinkOfClosedSocket(t *testing.T) {
	a, b := newConnected(t, defaults())
	a.hushed()
	b.hushed()
	require.NoError(t, a.theLink().tx.close())
	a.hungUp()
	b.hungUp()
}

// TestStuckLinkHoldsUpNoOther has a link wait for a lock that its QP does not give.
func TestStuckLinkHoldsUpNoOther(t *testing.T) {
	a, b := newConnected(t, defaults())
	c, d := newConnected(t, defaults())
	for _, s := range []*side{a, b, c, d} {
		s.hushed()
	}
	l := a.theLink()
	b.qp.mu.Lock()
	l.tell(msgKick)
	for id := range uint64(3) {
		c.askFor(d, id)
		c.hushed()
		d.hushed()
	}
	b.qp.mu.Unlock()
	a.askFor(b, 1)
}

// TestLinkPollerRests sees the goroutine that all quiet links share end with the last
// of them, and begin again.
func TestLinkPollerRests(t *testing.T) {
	resting := func() bool {
		quietLinks.mu.Lock()
		defer quietLinks.mu.Unlock()
		return !quietLinks.running
	}
	for range 3 {
		a, b := newConnected(t, defaults())
		a.hushed()
		b.hushed()
		require.False(t, resting())
		a.qp.disconnect()
		require.True(t, a.hungUp().orderly)
		require.True(t, b.hungUp().orderly)
		eventually(t, resting)
	}
}
