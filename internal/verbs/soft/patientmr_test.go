//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// stopLetting has peers be cut off soon that do not let go of an MR, and makes an MR of b that a has mapped, of
// which a does not let go until resume.
func stopLetting(t *testing.T) (a, b *side, m *mr, resume func()) {
	was := revokeTimeout
	revokeTimeout = 10 * time.Millisecond
	t.Cleanup(func() { revokeTimeout = was })
	a, b = newConnected(t, defaults())
	r, err := b.pd.RegMR(b.mem.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemote)
	require.NoError(t, err)
	a.mapMR(b, r)
	return a, b, r.(*mr), a.silence()
}

func closePatiently(m *mr) <-chan error {
	done := make(chan error, 1)
	go func() { done <- m.ClosePatiently() }()
	return done
}

// TestStoppedPeerIsCutOff: Close does not wait for ever for a peer that does not let go of the memory.
func TestStoppedPeerIsCutOff(t *testing.T) {
	a, b, m, resume := stopLetting(t)
	require.NoError(t, m.Close())
	require.ErrorIs(t, b.hungUp().err, verbs.ErrPeerGone)
	resume()
	a.hungUp()
}

// TestClosePatiently: ClosePatiently cuts off nobody. Until the peer lets go the memory stays what it is, and its
// key is nobody else's.
func TestClosePatiently(t *testing.T) {
	a, b, m, resume := stopLetting(t)
	done := closePatiently(m)
	eventually(t, func() bool { return b.ctx.keys.lookup(m.key) == nil })
	for range 1000 { // more than the table of keys has places
		r, err := b.pd.RegMR(b.mem.Bytes(), verbs.AccessLocalWrite)
		require.NoError(t, err)
		require.NotEqual(t, m.key>>keyTagBits, r.RKey()>>keyTagBits)
		require.NoError(t, r.Close())
	}
	time.Sleep(10 * revokeTimeout)
	require.Empty(t, done)
	require.Empty(t, b.gone)
	require.ErrorIs(t, m.Close(), verbs.ErrClosed)
	resume()
	require.NoError(t, <-done)
	wr := write(b, 0, []byte("y"))
	wr.Flags |= verbs.SendSignaled
	a.post(wr)
	require.Equal(t, verbs.WCSuccess, a.next().Status, "all goes on")
	wr.RKey = m.key
	a.post(wr)
	require.Equal(t, verbs.WCRemAccessErr, a.next().Status)
}

// TestClosePatientlyEndsWithQP: who closes the QP does not wait for the peer, and nor does ClosePatiently then.
func TestClosePatientlyEndsWithQP(t *testing.T) {
	_, b, m, _ := stopLetting(t)
	done := closePatiently(m)
	eventually(t, func() bool { return b.ctx.keys.lookup(m.key) == nil })
	require.NoError(t, b.qp.Close())
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("it waits for the peer")
	}
}

// TestStoppedPeerIsCutOffAlone: who has let go of the memory in time stays, whoever has not.
func TestStoppedPeerIsCutOffAlone(t *testing.T) {
	_, b, m, resume := stopLetting(t)
	revokeTimeout = 3 * time.Second // in which the others answer
	_, other := newConnected(t, defaults())
	l := linkOf(other)
	revoke([]*link{linkOf(b), l, l, l, l, l, l, l, l, l, l}, 7, false)
	require.ErrorIs(t, b.hungUp().err, verbs.ErrPeerGone)
	resume()
	require.NoError(t, m.Close())
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NoError(t, l.cause)
}
