//go:build !linux || !(amd64 || arm64)

package soft

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestDriverIsAbsent(t *testing.T) {
	var d driver.Driver = softDriver{}
	_, err := d.Devices()
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorContains(t, err, "the software device needs linux on amd64 or arm64")
	_, err = d.Route("", netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = d.CreateID("", func(driver.CMEvent) {})
	require.ErrorIs(t, err, verbs.ErrNotSupported)
}
