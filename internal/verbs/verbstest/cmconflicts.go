package verbstest

import (
	"fmt"
	"net/netip"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// testConflicts: which addresses exclude each other on one port is as bind(2) has it
// for TCP sockets, where an IPv6 wildcard without AFOnly takes IPv4 too.
func testConflicts(e *env) {
	var (
		addr4 = e.cmAddr()
		addr6 = e.addr6()
		any4  = netip.IPv4Unspecified()
		any6  = netip.IPv6Unspecified()
	)
	for _, c := range []struct {
		a, b         netip.Addr
		aOnly, bOnly bool
		conflict     bool
	}{
		{a: addr4, b: addr4, conflict: true},
		{a: addr4, b: any4, conflict: true},
		{a: addr4, b: any6, conflict: true},
		{a: addr4, b: any6, bOnly: true},
		{a: any4, b: any4, conflict: true},
		{a: any4, b: any6, conflict: true},
		{a: any4, b: any6, bOnly: true},
		{a: any6, b: any6, conflict: true},
		{a: any6, b: any6, bOnly: true, conflict: true},
		{a: any6, b: any6, aOnly: true, bOnly: true, conflict: true},
		{a: addr6, b: addr6, conflict: true},
		{a: addr6, b: addr4},
		{a: addr6, b: any4},
		{a: addr6, b: any6, conflict: true},
		{a: addr6, b: any6, bOnly: true, conflict: true},
		// What can mean nothing changes nothing.
		{a: addr4, b: any4, aOnly: true, bOnly: true, conflict: true},
		{a: addr6, b: any6, aOnly: true, conflict: true},
	} {
		if !c.a.IsValid() {
			continue // the device has no IPv6 address
		}
		for range 2 {
			what := fmt.Sprintf("%v (AFOnly %v), then %v (AFOnly %v)", c.a, c.aOnly, c.b, c.bOnly)
			first, second := e.newID(), e.newID()
			require.NoError(e.t, first.SetOptions(driver.CMOptions{AFOnly: c.aOnly}))
			require.NoError(e.t, second.SetOptions(driver.CMOptions{AFOnly: c.bOnly}))
			require.NoError(e.t, first.BindAddr(netip.AddrPortFrom(c.a, 0)), what)
			require.NoError(e.t, first.Listen(1), what)
			err := second.BindAddr(netip.AddrPortFrom(c.b, first.LocalAddr().Port()))
			if c.conflict {
				require.ErrorIs(e.t, err, syscall.EADDRINUSE, what)
			} else {
				require.NoError(e.t, err, what)
				require.NoError(e.t, second.Listen(1), what)
			}
			require.NoError(e.t, first.Close())
			require.NoError(e.t, second.Close())
			c.a, c.b, c.aOnly, c.bOnly = c.b, c.a, c.bOnly, c.aOnly
		}
	}
}

// addr6 is an IPv6 address by which the device's CM is reached, the zero value if it
// has none.
func (e *env) addr6() netip.Addr {
	e.t.Helper()
	_, gids, err := verbs.PortGIDs(e.ctx, e.at.Port)
	require.NoError(e.t, err)
	if e.cfg.has(DeviatesOnlyCM) {
		return netip.Addr{} // a GID of iWARP is no address
	}
	for _, g := range gids {
		a := g.GID.Addr()
		if a.IsLinkLocalUnicast() {
			a = a.WithZone(g.NetDev)
		}
		if a.Is6() && g.Type == e.at.Type && g.NetDev == e.at.NetDev {
			return a
		}
	}
	return netip.Addr{}
}
