//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestLinkCannotTell has the system refuse a message of a link, as it does without memory
// or with too many descriptors on their way: the peer would wait for it for ever.
func TestLinkCannotTell(t *testing.T) {
	a, b := newConnected(t, defaults())
	a.theLink().send([]byte{msgMR}, []int{1 << 30}) // no descriptor
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
	require.NoError(t, b.theLink().tx.close())
	for range 100 {
		a.theLink().tell(msgWake)
	}
	require.ErrorIs(t, a.hungUp().err, verbs.ErrPeerGone)
}
