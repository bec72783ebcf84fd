package hello

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecret: the id of a link is the same for all its lanes, and tells nothing of others.
func TestSecret(t *testing.T) {
	one, two := NewSecret(), NewSecret()
	a, b := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
	require.Equal(t, one.Link(a), one.Link(a))
	seen := map[LinkID]bool{one.Link(a): true, one.Link(b): true, two.Link(a): true, two.Link(b): true}
	require.Len(t, seen, 4)
	require.NotContains(t, seen, LinkID(0))
}
