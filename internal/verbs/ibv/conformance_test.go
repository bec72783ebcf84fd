//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"math"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// requireRDMA makes tests fail that would be skipped for lack of a device.
const requireRDMA = "RDMANET_REQUIRE_RDMA"

func TestMain(m *testing.M) {
	device := os.Getenv(testDevice)
	verbstest.ServePeerIfAsked(verbstest.Peer{
		Open: func() (verbs.Context, error) {
			d, err := findDevice(device)
			if err != nil {
				return nil, err
			}
			return d.Open()
		},
		Driver: ibvDriver{},
		Device: device,
	})
	os.Exit(m.Run())
}

// testDevice names the device to test; without it the first one is.
const testDevice = "RDMANET_DEVICE"

// testAddress is an address of the device with a port, where it is not in the GID table.
const testAddress = "RDMANET_TEST_ADDR"

// testAddr is the address of testAddress, the zero value if it is not set.
func testAddr(t testing.TB) netip.Addr {
	at := os.Getenv(testAddress)
	if at == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddrPort(at)
	require.NoError(t, err, testAddress)
	return a.Addr()
}

// needDevice returns the device to test.
func needDevice(t testing.TB) *device {
	t.Helper()
	list, err := listDevices()
	name := os.Getenv(testDevice)
	for _, d := range list {
		if name == "" || d.name == name {
			return d
		}
	}
	const hint = "no RDMA device %q (%v); as root: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
	if os.Getenv(requireRDMA) != "" {
		t.Fatalf(hint, name, err)
	}
	t.Skipf(hint, name, err)
	return nil
}

// TestConformance runs the suite that every driver passes.
func TestConformance(t *testing.T) { verbstest.Run(t, conformance(t)) }

// TestConformanceOfSharedChannels is the part of it that sleeps, on channels that all share.
func TestConformanceOfSharedChannels(t *testing.T) {
	cfg := conformance(t)
	open := cfg.Open
	cfg.Open = func(t testing.TB) verbs.Context {
		ctx := open(t)
		ctx.(*devContext).ownChannels.Store(math.MaxInt32 / 2)
		return ctx
	}
	cfg.Only = []string{"Arm", "Channel", "Wakeups", "Destroy", "Allocations"}
	verbstest.Run(t, cfg)
}

func conformance(t *testing.T) verbstest.Config {
	d := needDevice(t)
	return verbstest.Config{
		Open: func(t testing.TB) verbs.Context {
			ctx, err := d.Open()
			require.NoError(t, err)
			return ctx
		},
		Driver: ibvDriver{},
		Device: d.name,
		Peer: func(t testing.TB) *exec.Cmd {
			cmd := verbstest.PeerCommand(t)
			cmd.Env = append(cmd.Env, testDevice+"="+d.name)
			return cmd
		},
		Slow:       slow(),
		Addr:       testAddr(t),
		Deviations: deviations(d),
	}
}

// slow is how many times slower the device is than a common one.
func slow() int {
	n, _ := strconv.Atoi(os.Getenv("RDMANET_TEST_SLOW"))
	return n
}

// deviations are those that the suite describes.
func deviations(d *device) verbstest.Deviation {
	// What libibverbs registers cannot be invalidated: memory windows can.
	known := verbstest.DeviatesInvalidate
	if strings.HasPrefix(d.name, "rxe") {
		known |= verbstest.DeviatesLocalStatus | verbstest.DeviatesNoErrorEvents | verbstest.DeviatesEarlySlots | verbstest.DeviatesQuietFlush |
			verbstest.DeviatesSQE | verbstest.DeviatesWindows | verbstest.DeviatesOwnQKey
	}
	if d.transport == verbs.TransportIWARP {
		known |= verbstest.DeviatesOnlyCM | verbstest.DeviatesNoRNR | verbstest.DeviatesEarlySuccess
	}
	if strings.HasPrefix(d.name, softIWARPName) {
		known |= verbstest.DeviatesLocalStatus | verbstest.DeviatesNoErrorEvents | verbstest.DeviatesEarlySlots | verbstest.DeviatesQuietFlush |
			verbstest.DeviatesReadOrder | verbstest.DeviatesEmptyRead | verbstest.DeviatesErrPosts | verbstest.DeviatesRights |
			verbstest.DeviatesSolicited | verbstest.DeviatesClosedAnswer | verbstest.DeviatesLateWrites
	}
	return known
}

// softIWARPName begins the names of the kernel's soft-iWARP devices here.
const softIWARPName = "siw"

func onSoftIWARP(t testing.TB) bool { return strings.HasPrefix(needDevice(t).name, softIWARPName) }

func onIWARP(t testing.TB) bool { return needDevice(t).transport == verbs.TransportIWARP }

// byCM is how QPs of the device are connected; nil: by hand.
func byCM(t testing.TB) *verbstest.ByCM {
	if d := needDevice(t); deviations(d)&verbstest.DeviatesOnlyCM != 0 {
		return &verbstest.ByCM{Driver: ibvDriver{}, Device: d.name, Addr: testAddr(t)}
	}
	return nil
}
