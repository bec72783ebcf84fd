package main

import (
	"context"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A files is a file system: what each file says, by its name.
type files map[string]string

// with adds and replaces files.
func (f files) with(more files) files {
	all := files{}
	for _, m := range []files{f, more} {
		for name, text := range m {
			all[name] = text
		}
	}
	return all
}

// without removes files and directories.
func (f files) without(names ...string) files {
	all := files{}
	for name, text := range f {
		keep := true
		for _, n := range names {
			keep = keep && name != n && !strings.HasPrefix(name, n+"/")
		}
		if keep {
			all[name] = text
		}
	}
	return all
}

func (f files) fs() fs.FS {
	m := fstest.MapFS{}
	for name, text := range f {
		m[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return m
}

// withRoCE is a machine with one RDMA device, on which everything is right.
var withRoCE = files{
	"etc/os-release":                              "NAME=\"Debian GNU/Linux\"\nID=debian",
	"sys/class/infiniband/rxe0/parent":            "eth0",
	"sys/class/infiniband_verbs/abi_version":      "6",
	"sys/class/infiniband_verbs/uverbs0/ibdev":    "rxe0",
	"sys/class/infiniband_verbs/uverbs0/dev":      "231:192",
	"sys/class/misc/rdma_cm/dev":                  "10:58",
	"sys/class/net/eth0/address":                  "02:00:00:00:00:01",
	"sys/class/net/eth0/flags":                    "0x1003",
	"sys/module/ib_core/parameters/netns_mode":    "Y",
	"proc/self/limits":                            limits("unlimited", "unlimited", "65536", "65536"),
	"proc/self/status":                            "Name:\tdoctor\nCapEff:\t0000000000000000",
	"proc/self/uid_map":                           "         0          0 4294967295",
	"proc/self/cgroup":                            "0::/user.slice",
	"sys/fs/cgroup/user.slice/memory.max":         "max",
	"sys/fs/cgroup/user.slice/memory.current":     "1048576",
	"sys/fs/cgroup/user.slice/memory.swap.events": "",
}

// plain is a machine without any.
var plain = withRoCE.without("sys/class/infiniband", "sys/class/infiniband_verbs", "sys/class/misc", "sys/module")

// limits is what /proc/self/limits says.
func limits(memlockSoft, memlockHard, nofileSoft, nofileHard string) string {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n"
	return head + "Max open files            " + nofileSoft + "      " + nofileHard + "     files     \n" +
		"Max locked memory         " + memlockSoft + "  " + memlockHard + "   bytes     "
}

// All capabilities, as root has them.
const asRoot = "Name:\tdoctor\nCapEff:\t000001ffffffffff"

var software = rdmanet.Device{
	Name: "soft0", Driver: "soft", Transport: verbs.TransportSoftware, NodeGUID: 1, Firmware: "1", Caps: verbs.CapWriteImm | verbs.CapSameHost, MaxQP: 1000,
	Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")},
	Ports: []rdmanet.Port{{Number: 1, State: verbs.PortActive, LinkLayer: verbs.LinkLayerEthernet, ActiveMTU: 4096, MaxMTU: 4096}},
}

// roce returns a device on which everything is right.
func roce() rdmanet.Device {
	v2 := func(index int, addr string) rdmanet.GID {
		a := netip.MustParseAddr(addr)
		return rdmanet.GID{Index: index, GID: a.As16(), Type: verbs.GIDTypeRoCEv2, NetDev: "eth0", Addr: a}
	}
	return rdmanet.Device{
		Name: "rxe0", Driver: "ibv", Transport: verbs.TransportRoCE, NodeGUID: 0x0200_00ff_fe00_0001, Firmware: "0.0.0", Caps: verbs.CapWriteImm | verbs.CapSRQ, MaxQP: 1024, MaxCQ: 1 << 16, MaxMR: 1 << 16,
		Addrs: []netip.Addr{netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("192.0.2.1")},
		Ports: []rdmanet.Port{{
			Number: 1, State: verbs.PortActive, LinkLayer: verbs.LinkLayerEthernet, ActiveMTU: 4096, MaxMTU: 4096,
			GIDs: []rdmanet.GID{v2(0, "fe80::1%eth0"), v2(1, "192.0.2.1")},
		}},
	}
}

// fakeHost is a host with these files on which everything else is right.
func fakeHost(f files, devices ...rdmanet.Device) host {
	return host{
		goos: "linux", goarch: "amd64", files: f.fs(),
		drivers: []rdmanet.Driver{{Name: "soft"}, {Name: "ibv", Libraries: []verbs.Library{
			{Name: "libibverbs.so.1", Path: "/usr/lib/libibverbs.so.1.14.44.0"},
			{Name: "librdmacm.so.1", Path: "/usr/lib/librdmacm.so.1.3.44.0"},
		}}},
		devices: append([]rdmanet.Device{software}, devices...), maxProcs: 2, self: "/usr/bin/rdmanet-doctor",
		open:   func(string) error { return nil },
		free:   func(string) (int64, error) { return 1 << 30, nil },
		memory: func() error { return nil },
		echo: func(context.Context, string, netip.Addr) (outcome, error) {
			return outcome{1 << 20, time.Millisecond, costs{5, 100 << 10}}, nil
		},
	}
}

// roceHost is a host with one RDMA device, on which everything is right.
func roceHost() host { return fakeHost(withRoCE, roce()) }

// one returns the only check there is.
func one(t *testing.T, checks []check) check {
	t.Helper()
	require.Len(t, checks, 1, "%v", checks)
	return checks[0]
}

// all is a report of all checks of a host.
func all(t *testing.T, h host) *report {
	t.Helper()
	return examine(t.Context(), h, options{connections: defaultConnections})
}

func TestHostReadsFiles(t *testing.T) {
	h := fakeHost(files{"a/b": " text ", "a/c": ""})
	assert.Equal(t, "text", h.read("a/b"))
	assert.Empty(t, h.read("a/d"))
	assert.Equal(t, []string{"b", "c"}, h.list("a"))
	assert.Empty(t, h.list("d"))
	assert.True(t, h.exists("a"))
	assert.False(t, h.exists("d"))
	assert.False(t, h.container())
	h = fakeHost(files{".dockerenv": ""})
	assert.True(t, h.container())
}

func TestOpenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "uverbs0")
	assert.ErrorIs(t, openFile(file), fs.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("kept"), 0o600))
	require.NoError(t, openFile(file))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "kept", string(got))
}

func TestSelfCommand(t *testing.T) {
	assert.Equal(t, "/usr/bin/rdmanet-doctor", selfCommand("/usr/bin/rdmanet-doctor", nil))
	for _, gone := range []string{"/tmp/go-build123/b001/exe/rdmanet-doctor", "/root/.cache/go-build/ab/abcd-d/rdmanet-doctor"} {
		assert.Equal(t, "go run ./cmd/rdmanet-doctor", selfCommand(gone, nil))
	}
	assert.Equal(t, "go run ./cmd/rdmanet-doctor", selfCommand("", os.ErrNotExist))
}

// The real host can be asked everything.
func TestThisHost(t *testing.T) {
	h := thisHost()
	require.Len(t, h.drivers, 2)
	if !h.supported() {
		assert.ErrorIs(t, h.devicesErr, verbs.ErrNotSupported)
		return
	}
	assert.NoError(t, h.devicesErr)
	assert.NoError(t, h.memory())
	free, err := h.free("/")
	assert.NoError(t, err)
	assert.Positive(t, free)
	l := h.limit(nofile)
	assert.False(t, l.unlimited(), "Linux bounds descriptors: /proc/self/limits was not read")
	assert.GreaterOrEqual(t, l.hard, l.soft)
}
