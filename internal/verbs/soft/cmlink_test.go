//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// TestPeerGone: a hang-up is seen at once, whatever the goroutines do that tell of it.
func TestPeerGone(t *testing.T) {
	noLeaks(t)
	id := resolved(t, netip.MustParseAddrPort("127.0.0.1:1"), driver.CMOptions{})
	require.False(t, id.CMID.(driver.PeerChecker).PeerGone(), "it has no peer yet")
	a := newActor(t)
	d := dialTo(t, a.addr)
	s, _, _ := a.accept()
	require.False(t, d.CMID.(driver.PeerChecker).PeerGone())
	require.NoError(t, s.Close())
	require.True(t, d.CMID.(driver.PeerChecker).PeerGone())
	d.next(driver.CMUnreachable)
}
