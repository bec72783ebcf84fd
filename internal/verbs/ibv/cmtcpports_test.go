//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// What devices of iWARP are kept from.
func TestRefuseTCPPorts(t *testing.T) {
	roce, iwarp := &device{name: "rxe0", transport: verbs.TransportRoCE}, &device{name: "siw0", transport: verbs.TransportIWARP}
	require.NoError(t, refuseTCPPorts())
	require.NoError(t, refuseTCPPorts(roce))
	err := refuseTCPPorts(roce, iwarp)
	require.ErrorIs(t, err, verbs.ErrTCPPorts)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorContains(t, err, "siw0")
}

// An id that is to stay apart from TCP binds to no address of an iWARP device, nor to the
// wildcard, and resolves none; without the option, and on other devices, it does.
func TestApartFromTCP(t *testing.T) {
	iwarp := onIWARP(t)
	at := deviceAddr(t)
	judge := func(err error, apart bool) {
		t.Helper()
		if apart && iwarp {
			require.ErrorIs(t, err, verbs.ErrTCPPorts)
		} else {
			require.NoError(t, err)
		}
	}
	for _, apart := range []bool{false, true} {
		opts := driver.CMOptions{ApartFromTCP: apart}
		l := newTestID(t, opts)
		judge(l.BindAddr(netip.AddrPortFrom(at, 0)), apart)
		judge(newTestID(t, opts).BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)), apart)
		judge(newTestID(t, opts).ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(at, 9), 5*time.Second), apart)
	}
}
