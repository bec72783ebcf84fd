//go:build !linux || !(amd64 || arm64) || noverbs

package ibv

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestDriverIsAbsent(t *testing.T) {
	var d driver.Driver = ibvDriver{}
	_, err := d.Devices()
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorContains(t, err, "this program was built without libibverbs")
	_, err = d.Route("", netip.MustParseAddr("192.0.2.1"))
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = d.CreateID("", func(driver.CMEvent) {})
	require.ErrorIs(t, err, verbs.ErrNotSupported)
}
