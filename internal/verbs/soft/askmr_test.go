//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

var _ driver.MRAsker = (*qp)(nil)

func signaled(wr verbs.SendWR, rkey uint32) verbs.SendWR {
	wr.RKey = rkey
	wr.Flags |= verbs.SendSignaled
	return wr
}

// asksFor has a ask for an MR that it does not know, and returns the answer.
func asksFor(t *testing.T, a *side, rkey uint32) <-chan bool {
	t.Helper()
	known := make(chan bool, 2)
	require.True(t, a.qp.AskMR(rkey, func(ok bool) { known <- ok }))
	return known
}

// requireKnown waits for the answer about an MR.
func requireKnown(t *testing.T, want bool, known <-chan bool) {
	t.Helper()
	require.Equal(t, want, <-known)
	select {
	case <-known:
		t.Fatal("it was told twice")
	default:
	}
}

// TestAskMR: requests go on while the peer is asked for an MR, and once it is there one to it need not wait.
func TestAskMR(t *testing.T) {
	a, b := newConnected(t, defaults())
	m := newMROf(t, b)
	end := b.silence()
	known := asksFor(t, a, m.RKey())
	require.False(t, a.qp.AskMR(m.RKey(), nil), "it is being asked for")
	a.post(signaled(write(b, 0, []byte("w")), b.mr.RKey()))
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	require.Empty(t, known)
	end()
	requireKnown(t, true, known)
	require.False(t, a.qp.AskMR(m.RKey(), nil), "it is known")

	b.silence()
	a.post(signaled(write(b, 0, []byte("x")), m.RKey()))
	requireWritten(t, a, b)
}

// TestAskMRBeside: a request to an MR that is being asked for waits for the same answer.
func TestAskMRBeside(t *testing.T) {
	a, b := newConnected(t, defaults())
	m := newMROf(t, b)
	end := b.silence()
	known := asksFor(t, a, m.RKey())
	a.post(signaled(write(b, 0, []byte("x")), m.RKey()))
	a.none()
	a.qp.mu.Lock()
	require.Len(t, a.qp.peer.asks, 1)
	a.qp.mu.Unlock()
	end()
	requireKnown(t, true, known)
	requireWritten(t, a, b)
}

// TestAskForNoMR: the peer has no such MR, which is the request's failure and nobody else's.
func TestAskForNoMR(t *testing.T) {
	a, b := newConnected(t, defaults())
	rkey := b.mr.RKey() ^ 1
	known := asksFor(t, a, rkey)
	requireKnown(t, false, known)
	a.post(signaled(write(b, 0, []byte("x")), b.mr.RKey()))
	requireWritten(t, a, b)
	a.post(signaled(write(b, 0, []byte("y")), rkey))
	require.Equal(t, verbs.WCRemAccessErr, a.next().Status)
}

// TestAskForManyMRs: of more than the bound none is asked for, and a request has the MR all the same.
func TestAskForManyMRs(t *testing.T) {
	a, b := newConnected(t, defaults())
	end := b.silence()
	known := make(chan bool, maxAsks)
	for range maxAsks {
		require.True(t, a.qp.AskMR(newMROf(t, b).RKey(), func(ok bool) { known <- ok }))
	}
	m := newMROf(t, b)
	require.False(t, a.qp.AskMR(m.RKey(), nil))
	b.bytes(0, 1)[0] = 0
	a.post(signaled(write(b, 0, []byte("x")), m.RKey()))
	require.False(t, a.qp.AskMR(newMROf(t, b).RKey(), nil), "the request asks as well")
	end()
	for range maxAsks {
		require.True(t, <-known)
	}
	requireWritten(t, a, b)
}

// TestAskMRWithoutDescriptors: where there is none for the answer the asker is told so, and a request waits
// until there is.
func TestAskMRWithoutDescriptors(t *testing.T) {
	a, b := newConnected(t, defaults())
	m := newMROf(t, b)
	restore, err := leaktest.LimitDescriptors(0)
	require.NoError(t, err)
	defer restore()
	known := asksFor(t, a, m.RKey())
	requireKnown(t, false, known)
	b.bytes(0, 1)[0] = 0
	a.post(signaled(write(b, 0, []byte("x")), m.RKey()))
	require.False(t, missedOften(a, m))
	restore()
	requireWritten(t, a, b)
	control.KeepSpare()
}

// TestAskMRInAPause: while a request pauses before it asks once more nothing else does so for it, or the next
// MR would wait for the end of the pause.
func TestAskMRInAPause(t *testing.T) {
	a, b := newConnected(t, defaults())
	restore, err := leaktest.LimitDescriptors(0)
	require.NoError(t, err)
	defer restore()
	m := writeToNew(t, a, b)
	require.False(t, missedOften(a, m))
	eventually(t, func() bool {
		a.qp.mu.Lock()
		pausing := a.qp.peer.pausing
		a.qp.mu.Unlock()
		return pausing && !a.qp.AskMR(m.RKey(), nil)
	})
	restore()
	requireWritten(t, a, b)
	a.qp.mu.Lock()
	require.False(t, a.qp.peer.asked)
	require.Zero(t, a.qp.peer.missed)
	a.qp.mu.Unlock()
	control.KeepSpare()
}

// TestHostileAnswers: the answer to another question than the oldest ends the connection if it brings
// memory, and changes nothing if it does not.
func TestHostileAnswers(t *testing.T) {
	a, b := newConnected(t, defaults())
	m := newMROf(t, b)
	l := linkOf(b)
	defer b.silence()()
	require.True(t, a.qp.AskMR(m.RKey(), func(bool) {}))
	l.tellKey(msgMR, m.RKey()^1)
	fd := memfd(t, 8192, shm.WantSeals)
	defer control.CloseFDs([]int{fd})
	require.NoError(t, l.tx.Send(shm.MROffer{Key: m.RKey() ^ 1, Addr: 1 << 20, Size: 8}.Append([]byte{msgMR}), []int{fd}))
	h := a.hungUp()
	require.ErrorIs(t, h.err, verbs.ErrProtocol)
	require.ErrorContains(t, h.err, "not asked for")
}
