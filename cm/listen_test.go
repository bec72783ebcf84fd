package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestBindOnEveryDriver(t *testing.T) {
	a, b := newSoft(), newNIC()
	ec := queueOn(t, a, b)
	id := newID(t, ec, Options{})
	addr := netip.AddrPortFrom(wildcard, 4000)
	require.NoError(t, id.BindAddr(addr))
	require.NoError(t, id.Listen(3))
	for _, d := range []*fakeDriver{a, b} {
		require.Equal(t, addr, d.last().LocalAddr())
		require.Equal(t, []string{"SetOptions", "BindAddr", "Listen"}, d.last().calls)
	}
	a.request(a.last(), "from a")
	b.request(b.ids[0], "from b")
	require.Equal(t, "from a", string(mustGet(t, ec, ConnectRequest).Param.PrivateData))
	require.Equal(t, "from b", string(mustGet(t, ec, ConnectRequest).Param.PrivateData))
}

func TestBindOnTheNamedDevice(t *testing.T) {
	a, b := newSoft(), newNIC()
	ec := queueOn(t, a, b)
	id := newID(t, ec, Options{Device: "nic0"})
	require.NoError(t, id.BindAddr(netip.AddrPortFrom(wildcard, 4000)))
	require.Zero(t, a.open())
	require.Equal(t, "nic0", b.last().device)

	err := newID(t, ec, Options{Device: "mlx5_7"}).BindAddr(netip.AddrPortFrom(wildcard, 4001))
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.EqualError(t, err, `cm: cannot bind 0.0.0.0:4001 on device "mlx5_7": soft: no such RDMA device; nic: no such RDMA device`)
}

// All drivers get one port number, and another is tried if it is taken on one.
func TestBindPortZero(t *testing.T) {
	for _, c := range []struct {
		taken int // ports, from 5001 on, that are taken on the second driver
		ok    bool
	}{{0, true}, {1, true}, {bindTries - 1, true}, {bindTries, false}} {
		t.Run(fmt.Sprint(c.taken), func(t *testing.T) {
			a, b := newSoft(), newNIC()
			next := uint16(5000)
			a.prepare = func(f *fakeID) { next++; f.choose = next }
			taken := map[uint16]bool{}
			for i := range c.taken {
				taken[uint16(5001+i)] = true
			}
			b.prepare = func(f *fakeID) { f.inUse = taken }
			id := newID(t, queueOn(t, a, b), Options{})
			err := id.BindAddr(netip.AddrPortFrom(wildcard, 0))
			if !c.ok {
				require.ErrorIs(t, err, syscall.EADDRINUSE)
				require.ErrorContains(t, err, fmt.Sprintf("found no port that is free on every device in %d tries (name a port, or one device)", bindTries))
				require.Zero(t, a.open()+b.open())
				require.Equal(t, StateIdle, id.State())
				return
			}
			require.NoError(t, err)
			require.EqualValues(t, 5001+c.taken, id.LocalAddr().Port())
			require.EqualValues(t, 5001+c.taken, b.last().LocalAddr().Port())
			require.Equal(t, 1, a.open())
			require.Equal(t, 1, b.open())
		})
	}
}

func TestBindWhereOneDriverCannot(t *testing.T) {
	addr := netip.AddrPortFrom(hostAddr, 4000)
	missing := fmt.Errorf("librdmacm.so.1 not found: %w", verbs.ErrNotSupported)

	t.Run("its library is missing", func(t *testing.T) {
		a, b := newSoft(), newNIC()
		b.createErr = errors.New("librdmacm.so.1 not found")
		require.NoError(t, newID(t, queueOn(t, a, b), Options{}).BindAddr(addr))
	})
	for _, cannot := range []error{missing, syscall.EADDRNOTAVAIL, syscall.ENODEV, verbs.ErrNoDevice, verbs.ErrNoRoute} {
		t.Run(cannot.Error(), func(t *testing.T) {
			a, b := newSoft(), newNIC()
			a.prepare = func(f *fakeID) { f.errs = map[string]error{"BindAddr": cannot} }
			id := newID(t, queueOn(t, a, b), Options{})
			require.NoError(t, id.BindAddr(addr))
			require.Zero(t, a.open())
			require.NoError(t, id.Listen(1))
		})
	}
	t.Run("its ports are TCP's", func(t *testing.T) {
		for _, apart := range []bool{false, true} {
			a, b := newSoft(), newNIC()
			b.prepare = func(f *fakeID) {
				if apart {
					f.errs = map[string]error{"BindAddr": fmt.Errorf("siw0: %w", verbs.ErrTCPPorts)}
				}
			}
			id := newID(t, queueOn(t, a, b), Options{ApartFromTCP: apart})
			require.NoError(t, id.BindAddr(addr))
			require.Equal(t, apart, a.last().options.ApartFromTCP)
			if !apart {
				require.NoError(t, id.LeftOut())
				continue
			}
			require.ErrorIs(t, id.LeftOut(), verbs.ErrTCPPorts)
			require.ErrorContains(t, id.LeftOut(), "siw0")
			require.NoError(t, id.Listen(1))
		}
	})
	t.Run("none can", func(t *testing.T) {
		a, b := newSoft(), newNIC()
		a.prepare = func(f *fakeID) { f.errs = map[string]error{"BindAddr": syscall.EADDRNOTAVAIL} }
		b.createErr = missing
		id := newID(t, queueOn(t, a, b), Options{})
		err := id.BindAddr(addr)
		require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
		require.ErrorIs(t, err, verbs.ErrNotSupported)
		var de *NoDriverError
		require.ErrorAs(t, err, &de)
		require.Len(t, de.Drivers, 2)
		require.Zero(t, a.open())
		require.Equal(t, StateIdle, id.State())
	})
	for _, hard := range []error{syscall.EADDRINUSE, syscall.EACCES} {
		t.Run(hard.Error(), func(t *testing.T) {
			a, b := newSoft(), newNIC()
			b.prepare = func(f *fakeID) { f.errs = map[string]error{"BindAddr": hard} }
			id := newID(t, queueOn(t, a, b), Options{})
			require.ErrorIs(t, id.BindAddr(addr), hard)
			require.Zero(t, a.open()+b.open(), "nothing stays bound")
			b.prepare = nil
			require.NoError(t, id.BindAddr(addr), "it may be tried again")
		})
	}
	t.Run("no driver at all", func(t *testing.T) {
		err := newID(t, queueOn(t), Options{}).BindAddr(addr)
		require.ErrorIs(t, err, verbs.ErrNoDevice)
		require.EqualError(t, err, "cm: cannot bind 10.0.0.1:4000: this program has no RDMA driver")
	})
	t.Run("options are refused", func(t *testing.T) {
		a := newSoft()
		a.prepare = func(f *fakeID) { f.errs = map[string]error{"SetOptions": missing} }
		require.ErrorIs(t, newID(t, queueOn(t, a), Options{ReuseAddr: true}).BindAddr(addr), verbs.ErrNotSupported)
		require.Zero(t, a.open())
	})
}

func TestListenWhereOneDriverCannot(t *testing.T) {
	addr := netip.AddrPortFrom(wildcard, 4000)
	for _, c := range []struct {
		a, b error
		want error
		open int
	}{
		{nil, verbs.ErrNotSupported, nil, 1},
		{verbs.ErrNotSupported, nil, nil, 1},
		{verbs.ErrNotSupported, syscall.ENODEV, syscall.ENODEV, 0},
		{nil, syscall.EADDRINUSE, syscall.EADDRINUSE, 0},
		{syscall.EADDRINUSE, nil, syscall.EADDRINUSE, 0},
	} {
		t.Run(fmt.Sprint(c.a, "/", c.b), func(t *testing.T) {
			a, b := newSoft(), newNIC()
			ec := queueOn(t, a, b)
			id := newID(t, ec, Options{})
			require.NoError(t, id.BindAddr(addr))
			a.last().errs = map[string]error{"Listen": c.a}
			b.last().errs = map[string]error{"Listen": c.b}
			for _, d := range []*fakeDriver{a, b} {
				if c.want == nil && d.last().errs["Listen"] != nil {
					d.last().errs["Close"] = verbs.ErrBusy // which is nothing to who listens on the other
				}
			}
			err := id.Listen(1)
			require.Equal(t, c.open, a.open()+b.open())
			if c.want == nil {
				require.NoError(t, err)
				require.Equal(t, StateListening, id.State())
				return
			}
			require.ErrorIs(t, err, c.want)
			require.Equal(t, StateIdle, id.State())
			require.NoError(t, id.BindAddr(addr), "it may be tried again")
			require.NoError(t, id.Listen(1))
		})
	}
}

// Close in the middle of BindAddr leaves nothing behind.
func TestCloseDuringBind(t *testing.T) {
	d := newSoft()
	id := newID(t, queueOn(t, d), Options{})
	d.prepare = func(*fakeID) { require.NoError(t, id.Close()) }
	require.ErrorIs(t, id.BindAddr(netip.AddrPortFrom(loopback, 1)), verbs.ErrClosed)
	require.Zero(t, d.open())
}

// What one device was asked before another failed to listen is dropped.
func TestListenFailsAfterARequest(t *testing.T) {
	a, b := newSoft(), newNIC()
	ec := queueOn(t, a, b)
	id := newID(t, ec, Options{})
	require.NoError(t, id.BindAddr(netip.AddrPortFrom(wildcard, 4000)))
	b.last().errs = map[string]error{"Listen": syscall.EADDRINUSE}
	req := a.request(a.last(), "early")
	require.ErrorIs(t, id.Listen(1), syscall.EADDRINUSE)
	requireEmpty(t, ec)
	require.True(t, req.closed())
	require.Zero(t, a.open()+b.open())
}

func TestCloseDuringListen(t *testing.T) {
	a, b := newSoft(), newNIC()
	id := newID(t, queueOn(t, a, b), Options{})
	require.NoError(t, id.BindAddr(netip.AddrPortFrom(wildcard, 4000)))
	b.last().errs = map[string]error{"Listen": syscall.EADDRINUSE}
	a.last().onListen = func() { require.NoError(t, id.Close()) }
	require.ErrorIs(t, id.Listen(1), syscall.EADDRINUSE)
	require.Equal(t, StateClosed, id.State())
	require.Zero(t, a.open()+b.open())
}

// A listener that loses a device goes on with the others, and ends with the last.
func TestListenerLosesItsDevices(t *testing.T) {
	a, b := newSoft(), newNIC()
	ec := queueOn(t, a, b)
	id := newID(t, ec, Options{})
	require.NoError(t, id.BindAddr(netip.AddrPortFrom(wildcard, 4000)))
	require.NoError(t, id.Listen(3))
	b.last().emit(DeviceRemoval)
	mustGet(t, ec, DeviceRemoval)
	require.Equal(t, StateListening, id.State())
	last := a.last()
	a.request(last, "still there")
	require.Equal(t, "still there", string(mustGet(t, ec, ConnectRequest).Param.PrivateData))
	last.emit(DeviceRemoval)
	mustGet(t, ec, DeviceRemoval)
	require.Equal(t, StateDisconnected, id.State())
	require.NoError(t, id.Close())
}
