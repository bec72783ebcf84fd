//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// testDevice is a name space of this process, so that tests that run at the same
// time do not take each other's ports.
func testDevice(t *testing.T) string {
	t.Helper()
	return "t" + strconv.Itoa(os.Getpid())
}

func TestClaimConflicts(t *testing.T) {
	type bound struct {
		addr   string
		v6only bool
	}
	var (
		lo4   = bound{"127.0.0.1", false}
		lo4b  = bound{"127.0.0.2", false}
		lo6   = bound{"::1", false}
		any4  = bound{"0.0.0.0", false}
		any6  = bound{"::", true}
		any46 = bound{"::", false}
	)
	// As bind(2) has it for TCP sockets with default options.
	for _, tt := range []struct {
		a, b     bound
		conflict bool
	}{
		{lo4, lo4, true}, {lo4, lo4b, false}, {lo4, lo6, false},
		{lo4, any4, true}, {lo4, any6, false}, {lo4, any46, true},
		{lo4b, any4, true}, {lo4b, any46, true},
		{lo6, lo6, true}, {lo6, any4, false}, {lo6, any6, true}, {lo6, any46, true},
		{any4, any4, true}, {any4, any6, false}, {any4, any46, true},
		{any6, any6, true}, {any6, any46, true}, {any46, any46, true},
	} {
		for _, p := range [][2]bound{{tt.a, tt.b}, {tt.b, tt.a}} {
			dev := testDevice(t)
			first, err := claimPort(dev, netip.AddrPortFrom(netip.MustParseAddr(p[0].addr), 0), p[0].v6only)
			require.NoError(t, err)
			again := netip.AddrPortFrom(netip.MustParseAddr(p[1].addr), first.addr.Port())
			second, err := claimPort(dev, again, p[1].v6only)
			if tt.conflict {
				require.ErrorIs(t, err, unix.EADDRINUSE, "%v then %v", p[0], p[1])
			} else {
				require.NoError(t, err, "%v then %v", p[0], p[1])
				second.release()
			}
			first.release()
			// Nothing is left of either.
			third, err := claimPort(dev, again, p[1].v6only)
			require.NoError(t, err)
			third.release()
		}
	}
}

func TestClaimIsPerDevice(t *testing.T) {
	addr := netip.MustParseAddrPort("127.0.0.1:0")
	a, err := claimPort(testDevice(t)+"a", addr, false)
	require.NoError(t, err)
	defer a.release()
	b, err := claimPort(testDevice(t)+"b", a.addr, false)
	require.NoError(t, err)
	b.release()
}

func TestClaimRefusals(t *testing.T) {
	_, err := claimPort(testDevice(t), netip.MustParseAddrPort("203.0.113.77:0"), false)
	require.ErrorIs(t, err, unix.EADDRNOTAVAIL)

	// A port that somebody is claiming for ever.
	dev := testDevice(t)
	lock, err := control.HoldName(control.LockName(dev, 40000))
	require.NoError(t, err)
	defer unix.Close(lock)
	_, err = claim(dev, netip.MustParseAddrPort("127.0.0.1:40000"), false, 0)
	require.ErrorIs(t, err, unix.EADDRINUSE)
}

func TestClaimOneOfMany(t *testing.T) {
	dev := testDevice(t)
	before := leaktest.Take()
	var wg sync.WaitGroup
	claims := make([]*portClaim, 8)
	for i := range claims {
		wg.Go(func() {
			host := "127.0.0.1"
			if i%2 == 1 {
				host = "0.0.0.0"
			}
			claims[i], _ = claimPort(dev, netip.MustParseAddrPort(host+":40001"), false)
		})
	}
	wg.Wait()
	won := 0
	for _, c := range claims {
		if c != nil {
			won++
			c.release()
		}
	}
	require.Equal(t, 1, won)
	require.Empty(t, before.LeakedFiles())
}

func TestClaimAddressesOfOnePort(t *testing.T) {
	dev := testDevice(t)
	ip := netip.MustParseAddr("127.1.0.1")
	for range control.HostSlots {
		c, err := claimPort(dev, netip.AddrPortFrom(ip, 40002), false)
		require.NoError(t, err)
		defer c.release()
		ip = ip.Next()
	}
	before := leaktest.Take()
	_, err := claimPort(dev, netip.AddrPortFrom(ip, 40002), false)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.Empty(t, before.LeakedFiles())
}

func TestBindEphemeral(t *testing.T) {
	dev := testDevice(t)
	ip := netip.MustParseAddr("127.0.0.1")
	seen := map[netip.AddrPort]bool{}
	for range 50 {
		c, err := bindEphemeral(dev, ip, netip.AddrPort{})
		require.NoError(t, err)
		defer c.release()
		require.False(t, seen[c.addr], c.addr)
		require.Equal(t, ip, c.addr.Addr())
		seen[c.addr] = true
	}
}

// TestDialerHasAnotherPort: a dialer does not get the address that it dials.
func TestDialerHasAnotherPort(t *testing.T) {
	dev := testDevice(t)
	ip := netip.MustParseAddr("127.0.0.1")
	bind := func(dst string) (netip.AddrPort, error) {
		fd, err := control.OpenSocket()
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		return bindFree(fd, dev, ip, slices.Values([]uint16{40010, 40011}), netip.MustParseAddrPort(dst))
	}
	addr, err := bind("127.0.0.1:40010")
	require.NoError(t, err)
	require.EqualValues(t, 40011, addr.Port())
	_, err = bind("127.0.0.1:40010")
	require.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	addr, err = bind("127.0.0.2:40010")
	require.NoError(t, err)
	require.EqualValues(t, 40010, addr.Port())
}
