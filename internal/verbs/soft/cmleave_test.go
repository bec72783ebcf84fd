//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
)

func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := testDevice(t)
		leave(dev, 1)
		require.True(t, leftLately(dev, 1))
		require.False(t, leftLately(dev, 2))
		require.False(t, leftLately(dev+"b", 1))
		time.Sleep(leavePatience + 1)
		require.False(t, leftLately(dev, 1))
		leave(dev, 2)
		left.Lock()
		defer left.Unlock()
		require.NotContains(t, left.at, leftPort{dev, 1}, "it is never forgotten")
	})
}

// TestClaimLeft claims a port that somebody has for most of the time that it waits.
func TestClaimLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := testDevice(t)
		addr := netip.MustParseAddrPort("127.0.0.1:40003")
		fd, err := control.HoldName(control.BoundName(dev, "127.0.0.1", addr.Port()))
		require.NoError(t, err)
		began := time.Now()
		_, err = claimPort(dev, addr, false)
		require.ErrorIs(t, err, unix.EADDRINUSE)
		require.Zero(t, time.Since(began), "nobody has left it")

		leave(dev, addr.Port())
		time.AfterFunc(leavePatience*9/10, func() { unix.Close(fd) })
		c, err := claimPort(dev, addr, false)
		require.NoError(t, err)
		c.release()
	})
}

// TestDialerLeaves closes connections whose port was bound, and binds it again at once.
func TestDialerLeaves(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))
	bound := newTestID(t, driver.CMOptions{})
	require.NoError(t, bound.BindAddr(addr))
	bound.close()
	require.False(t, leftLately(soft0.name, addr.Port()), "who wants it would wait for nothing")
	for range 50 {
		d := newTestID(t, driver.CMOptions{})
		require.NoError(t, d.BindAddr(addr))
		d.resolve(l.LocalAddr())
		d.createQP()
		require.NoError(t, d.Connect(nil, patience))
		a := l.serve(d)
		d.close()
		require.True(t, leftLately(soft0.name, addr.Port()))
		a.close()
	}
}
