package cm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// resolveTo starts resolving and returns the device that was chosen.
func resolveTo(t *testing.T, opts Options, dst netip.Addr, drivers ...driver.Driver) (*ID, error) {
	id := newID(t, queueOn(t, drivers...), opts)
	return id, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(dst, 4000), 0)
}

func TestChoiceOfDevice(t *testing.T) {
	soft, nic := newSoft(), newNIC()
	broken := &fakeDriver{name: "broken", createErr: errors.New("library not found")}
	hidden := &fakeDriver{name: "hidden", routes: map[netip.Addr]driver.Route{hostAddr: {Device: "hid0", SameHost: true}}}
	for _, c := range []struct {
		name    string
		opts    Options
		dst     netip.Addr
		drivers []driver.Driver
		want    string
	}{
		{"same host", Options{}, hostAddr, []driver.Driver{soft, nic}, "soft0"},
		{"same host, software device asked last", Options{}, hostAddr, []driver.Driver{broken, nic, soft}, "soft0"},
		{"loopback", Options{}, loopback, []driver.Driver{nic, soft}, "soft0"},
		{"another host", Options{}, farAddr, []driver.Driver{soft, broken, nic}, "nic0"},
		{"same host, on a device that is not listed", Options{}, hostAddr, []driver.Driver{nic, hidden}, "nic0"},
		{"same host, a NIC only", Options{}, hostAddr, []driver.Driver{nic}, "nic0"},
		{"forced", Options{Device: "nic0"}, hostAddr, []driver.Driver{soft, nic}, "nic0"},
		{"forced", Options{Device: "soft0"}, hostAddr, []driver.Driver{nic, soft}, "soft0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, err := resolveTo(t, c.opts, c.dst, c.drivers...)
			require.NoError(t, err)
			require.Equal(t, c.want, id.Device())
		})
	}
}

func TestNoRoute(t *testing.T) {
	soft, nic := newSoft(), newNIC()
	broken := &fakeDriver{name: "broken", createErr: errors.New("librdmacm.so.1 not found")}

	_, err := resolveTo(t, Options{}, netip.MustParseAddr("192.0.2.1"), soft, nic, broken)
	require.ErrorIs(t, err, verbs.ErrNoRoute)
	require.ErrorIs(t, err, broken.createErr)
	require.EqualError(t, err, "cm: cannot resolve 192.0.2.1:4000: soft: no RDMA route to address; nic: no RDMA route to address; broken: librdmacm.so.1 not found")

	_, err = resolveTo(t, Options{Device: "soft0"}, farAddr, soft, nic)
	require.ErrorIs(t, err, verbs.ErrNoRoute)
	require.ErrorIs(t, err, verbs.ErrNoDevice, "the other driver does not know the device")

	id, err := resolveTo(t, Options{}, hostAddr)
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.Equal(t, StateIdle, id.State())
	require.Zero(t, soft.open()+nic.open())
}

// A driver with a route that then cannot make an id gives way to the next one.
func TestResolveFallsThrough(t *testing.T) {
	for _, call := range []string{"SetOptions", "ResolveAddr"} {
		soft, nic := newSoft(), newNIC()
		soft.prepare = func(f *fakeID) { f.errs = map[string]error{call: verbs.ErrNotSupported} }
		id, err := resolveTo(t, Options{}, hostAddr, soft, nic)
		require.NoError(t, err)
		require.Equal(t, "nic0", id.Device())
		require.Zero(t, soft.open(), call)
	}
	soft, nic := newSoft(), newNIC()
	soft.prepare = func(f *fakeID) { f.errs = map[string]error{"ResolveAddr": syscall.EADDRINUSE} }
	id, err := resolveTo(t, Options{}, hostAddr, soft, nic)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "which no other driver can help")
	require.Equal(t, StateIdle, id.State())
	require.NoError(t, id.Close())
	require.Zero(t, soft.open()+nic.open())
}

// An id bound on several devices keeps the one its destination leads to.
func TestResolveOfABoundID(t *testing.T) {
	soft, nic := newSoft(), newNIC()
	ec := queueOn(t, soft, nic)
	src := netip.AddrPortFrom(wildcard, 4000)

	id := newID(t, ec, Options{})
	require.NoError(t, id.BindAddr(src))
	_, err := id.CreateQP(nil, nil)
	require.ErrorIs(t, err, verbs.ErrState, "on which device?")
	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(farAddr, 1), 0))
	require.Equal(t, "nic0", id.Device())
	require.Equal(t, src, id.LocalAddr())
	require.Zero(t, soft.open())
	require.Equal(t, 1, nic.open())
	nic.last().emit(AddrError)
	require.Equal(t, StateBound, id.State())
	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(farAddr, 2), 0))
	require.Len(t, nic.ids, 1)

	id = newID(t, ec, Options{})
	nic.createErr = errors.New("unplugged")
	require.NoError(t, id.BindAddr(src))
	nic.createErr = nil
	err = id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(farAddr, 1), 0)
	require.ErrorIs(t, err, verbs.ErrNoRoute)
	require.ErrorContains(t, err, "nic: the id is not bound on this driver")
	require.Equal(t, StateBound, id.State())
}

// A driver may tell of the address inside the call, and the handler go on from there.
func TestResolveGoesOnInTheHandler(t *testing.T) {
	soft, nic := newSoft(), newNIC()
	nic.prepare = func(f *fakeID) {
		f.answer = func(f *fakeID, call string, _ time.Duration) {
			f.emit(map[string]EventType{"ResolveAddr": AddrResolved, "ResolveRoute": RouteResolved}[call])
		}
	}
	ec := onDrivers(t, NewHandlerChannel(func(ev *Event) {
		if ev.Type == AddrResolved {
			require.NoError(t, ev.ID.ResolveRoute(0))
		}
	}), soft, nic)
	id := newID(t, ec, Options{})
	require.NoError(t, id.BindAddr(netip.AddrPortFrom(wildcard, 4000)))
	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(farAddr, 1), 0))
	require.Equal(t, StateRouteResolved, id.State())
	require.Zero(t, soft.open())
	require.Equal(t, 1, nic.open())
}

// After a failure an id may try another address, by another driver.
func TestResolveAgain(t *testing.T) {
	soft, nic := newSoft(), newNIC()
	ec := queueOn(t, soft, nic)
	id := newID(t, ec, Options{})
	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(loopback, 1), 0))
	first := soft.last()
	first.emit(AddrError)
	mustGet(t, ec, AddrError)
	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(farAddr, 1), 0))
	require.True(t, first.closed())
	first.emit(AddrResolved)
	requireEmpty(t, ec)
	require.Equal(t, StateAddrResolving, id.State(), "what was replaced has no say")
	nic.last().emit(AddrResolved)
	require.Equal(t, StateAddrResolved, id.State())
}

func TestCloseDuringResolve(t *testing.T) {
	d := newSoft()
	id := newID(t, queueOn(t, d), Options{})
	d.prepare = func(*fakeID) { require.NoError(t, id.Close()) }
	err := id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(loopback, 1), 0)
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.Zero(t, d.open())
}

func TestDevices(t *testing.T) {
	broken := &fakeDriver{name: "broken", createErr: errors.New("librdmacm.so.1 not found")}
	devices, err := devicesOf([]driver.Driver{newSoft(), broken, newNIC()})
	require.ErrorIs(t, err, broken.createErr)
	require.ErrorContains(t, err, "broken: ")
	require.Len(t, devices, 2)
	require.Equal(t, "nic0", devices[1].Name())
}

func TestDefaultDevice(t *testing.T) {
	t.Setenv("RDMANET_DEVICE", "rxe0")
	require.Equal(t, "rxe0", DefaultDevice())
}
