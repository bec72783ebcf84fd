package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestHostOnWhichEverythingIsRight(t *testing.T) {
	r := all(t, roceHost())
	assert.True(t, r.OK)
	var names []string
	for _, c := range r.Checks {
		assert.Equal(t, statusOK, c.Status, c)
		assert.Empty(t, c.Fix)
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{
		"libraries", "libraries", "kernel", "device files", "device files", "namespace", "shared memory",
		"device", "port", "address", "self-test", // soft0
		"device", "port", "address", "capacity", "self-test", // rxe0
		"memlock", "descriptors", "threads",
	}, names)
	assert.Len(t, r.Devices, 2)
}

func TestNoHardwareIsNoFailure(t *testing.T) {
	r := all(t, withoutCM(fakeHost(plain)))
	assert.True(t, r.OK)
	assert.Len(t, r.Devices, 1)
	assert.True(t, slices.ContainsFunc(r.Checks, func(c check) bool { return c.Name == "kernel" && c.Status == statusNote }))
}

func TestSystemWithoutRDMA(t *testing.T) {
	h := host{goos: "plan9", goarch: "mips", devicesErr: errors.New("soft: not here\nibv: neither")}
	for _, name := range []string{"soft", "ibv"} {
		h.drivers = append(h.drivers, rdmanet.Driver{Name: name, Err: fmt.Errorf("%w: not here", verbs.ErrNotSupported)})
	}
	r := all(t, h)
	assert.True(t, r.OK)
	assert.Equal(t, []check{{"system", "", statusNote, "RDMA is not supported on plan9/mips: soft: not here; ibv: neither", ""}}, r.Checks)
	assert.Equal(t, []device{}, r.Devices)
}

// Every failure says what fixes it, whatever is broken.
func TestEveryFailureHasAFix(t *testing.T) {
	broken := errors.New("broken")
	for name, breakIt := range map[string]func(*host){
		"nothing there": func(h *host) { h.files = files{}.fs() },
		"files":         func(h *host) { h.open = func(string) error { return broken } },
		"memory":        func(h *host) { h.memory = func() error { return broken } },
		"list":          func(h *host) { h.devices, h.devicesErr = nil, broken },
		"device":        func(h *host) { h.devices[1].Err = broken },
		"ports":         func(h *host) { h.devices[1].Ports[0].State = verbs.PortNop },
		"addresses":     func(h *host) { h.devices[1].Addrs = nil },
		"echo": func(h *host) {
			h.chosen = "mlx5_9"
			h.echo = func(context.Context, string, netip.Addr) (outcome, error) { return outcome{}, broken }
		},
		"limits": func(h *host) { h.files = limited("0", "0", "0").fs() },
	} {
		t.Run(name, func(t *testing.T) {
			h := roceHost()
			breakIt(&h)
			r := all(t, h)
			for _, c := range r.Checks {
				assert.False(t, c.Status == statusFail && c.Fix == "", "%v", c)
				assert.NotContains(t, c.Fix, "\n")
				assert.NotContains(t, c.Detail, "\n")
			}
			assert.Equal(t, name == "nothing there", r.OK, "%v", r.Checks)
		})
	}
}

func TestOneDeviceOnly(t *testing.T) {
	h := roceHost()
	r := examine(t.Context(), h, options{device: "soft0", connections: 1})
	assert.Len(t, r.Devices, 1)
	for _, c := range r.Checks {
		assert.NotContains(t, c.Subject, "rxe0")
		assert.NotEqual(t, "device files", c.Name)
	}
	assert.Len(t, h.devices, 2, "the host itself is as it was")

	r = examine(t.Context(), h, options{device: "rxe0", connections: 1})
	assert.Equal(t, "rxe0", r.Devices[0].Name)
	assert.True(t, r.OK)
}

// Nothing is sent through a device that cannot carry it.
func TestBrokenDeviceIsNotUsed(t *testing.T) {
	for _, breakIt := range []func(*rdmanet.Device){
		func(d *rdmanet.Device) { d.Err = errors.New("removed") },
		func(d *rdmanet.Device) { d.Ports[0].State = verbs.PortDown },
		func(d *rdmanet.Device) { d.Addrs = nil },
	} {
		d := roce()
		breakIt(&d)
		h := fakeHost(withRoCE, d)
		h.echo = func(_ context.Context, device string, _ netip.Addr) (outcome, error) {
			assert.Equal(t, "soft0", device)
			return outcome{}, nil
		}
		r := all(t, h)
		assert.False(t, r.OK)
	}
}

// What the self-test has measured is what the limits are compared with.
func TestLimitsAreComparedWithWhatWasMeasured(t *testing.T) {
	h := fakeHost(limited("8192", "8192", "500"), roce())
	h.echo = func(_ context.Context, device string, _ netip.Addr) (outcome, error) {
		if device == "rxe0" {
			return outcome{costs: costs{descriptors: 2, locked: 64}}, nil
		}
		return outcome{costs: costs{descriptors: 3}}, nil
	}
	r := examine(t.Context(), h, options{connections: 64})
	n := len(r.Checks)
	assert.Equal(t, check{"memlock", "", statusOK, "8 KiB; connections to 64 processes, up to 2 lanes for each, lock 8 KiB, 64 B for each lane", ""}, r.Checks[n-3])
	assert.Equal(t, check{"descriptors", "", statusOK, "500; connections to 64 processes, up to 2 lanes for each, take 384, 3 for each lane", ""}, r.Checks[n-2])
}
