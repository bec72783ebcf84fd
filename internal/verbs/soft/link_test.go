//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

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

// TestSlowPeerKeepsNoMR: a peer to which an MR cannot be sent keeps nobody else from it, and is told
// that the MR is gone after it was given.
func TestSlowPeerKeepsNoMR(t *testing.T) {
	a, b := newConnected(t, defaults())
	m, err := b.pd.RegMR(b.mem.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemote)
	require.NoError(t, err)
	l := linkOf(b)
	l.sending.Lock() // as while the peer does not read
	a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte("x"),
		RemoteAddr: m.Addr(), RKey: m.RKey()})
	eventually(t, func() bool {
		m := m.(*mr)
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.exports) == 1
	})
	closed := make(chan error, 1)
	go func() { closed <- m.Close() }()
	eventually(t, func() bool { return b.ctx.keys.lookup(m.RKey()) == nil })
	require.Empty(t, closed, "the peer may have the memory")
	l.sending.Unlock()
	require.Equal(t, verbs.WCSuccess, a.next().Status, "the memory was given first")
	require.NoError(t, <-closed)
}

// TestLinkAnswers has links do their work again and again, and notice the end of a peer.
func TestLinkAnswers(t *testing.T) {
	a, b := newConnected(t, defaults())
	for id := range uint64(3) {
		a.askFor(b, id)
	}
	// The end without a word is that of a process that was killed.
	linkOf(a).tx.Shutdown()
	for _, s := range []*side{a, b} {
		h := s.hungUp()
		require.False(t, h.orderly)
		require.ErrorIs(t, h.err, verbs.ErrPeerGone)
	}
}

// TestLinkOfClosedSocket has somebody else close the socket that a link waits for.
func TestLinkOfClosedSocket(t *testing.T) {
	a, b := newConnected(t, defaults())
	_ = linkOf(a).tx.Close() // its link, which sees that, may be the first to close it
	a.hungUp()
	b.hungUp()
}

// TestStuckLinkHoldsUpNoOther has a link wait for a lock that its QP does not give.
func TestStuckLinkHoldsUpNoOther(t *testing.T) {
	a, b := newConnected(t, defaults())
	c, d := newConnected(t, defaults())
	l := linkOf(a)
	b.qp.mu.Lock()
	l.tell(msgKick)
	for id := range uint64(3) {
		c.askFor(d, id)
	}
	b.qp.mu.Unlock()
	a.askFor(b, 1)
}

// TestLinksHoldNoThread has many links wait, and end all at once: they wait in the poller.
func TestLinksHoldNoThread(t *testing.T) {
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		return len(tasks)
	}
	before := threads()
	var ends []*side
	for range 200 {
		a, b := newConnected(t, defaults())
		ends = append(ends, a, b)
	}
	for i := 0; i < len(ends); i += 2 {
		linkOf(ends[i]).tx.Shutdown()
	}
	for _, s := range ends {
		s.hungUp()
	}
	require.Less(t, threads(), before+100)
}

// TestLinkCannotTell has the system refuse a message of a link, as it does without memory
// or with too many descriptors on their way: the peer would wait for it for ever.
func TestLinkCannotTell(t *testing.T) {
	a, b := newConnected(t, defaults())
	linkOf(a).send([]byte{msgMR}, []int{1 << 30}) // no descriptor
	h := a.hungUp()
	require.False(t, h.orderly)
	require.ErrorIs(t, h.err, unix.EBADF)
	require.ErrorIs(t, h.err, verbs.ErrPeerGone)
	h = b.hungUp()
	require.False(t, h.orderly)
	require.ErrorIs(t, h.err, verbs.ErrPeerGone)
}

// TestLinkTellsTheDead has a peer that is gone be told something: it has gone, and the
// failure to tell is no other reason.
func TestLinkTellsTheDead(t *testing.T) {
	a, b := newConnected(t, defaults())
	_ = linkOf(b).tx.Close() // its link, which sees that, may be the first to close it
	for range 100 {
		linkOf(a).tell(msgWake)
	}
	require.ErrorIs(t, a.hungUp().err, verbs.ErrPeerGone)
}

// TestRevokedTwice: a key that is revoked once more before the peer has let go of it for the first time, as that of
// a window that was bound again at once, has each of the two waits end with its own answer.
func TestRevokedTwice(t *testing.T) {
	a, b := newConnected(t, defaults())
	l := linkOf(b)
	a.qp.mu.Lock() // it does not answer now
	waits := []chan struct{}{l.startRevoke(7), l.startRevoke(7)}
	a.qp.mu.Unlock()
	for _, c := range waits {
		select {
		case <-c:
		case <-time.After(patience):
			t.Fatal("an answer is lost")
		}
	}
	l.acked(7) // an answer too many does nothing
	c := l.startRevoke(8)
	l.tx.Shutdown()
	<-c
}
