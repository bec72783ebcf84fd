package rdmanet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// requireOpError checks that err is a *net.OpError of op that says all of says and
// is all of is.
func requireOpError(t *testing.T, err error, op string, says []string, is ...error) {
	t.Helper()
	require.Error(t, err)
	e, ok := err.(*net.OpError)
	require.True(t, ok, "%T: %v", err, err)
	assert.Equal(t, op, e.Op)
	assert.True(t, strings.HasPrefix(e.Net, "rdma") || len(says) > 0 && says[0] == e.Net, e.Net)
	for _, s := range says {
		assert.ErrorContains(t, err, s)
	}
	for _, target := range is {
		assert.ErrorIs(t, err, target)
	}
}

// requireNothingHeld checks that failures keep no memory of rings.
func requireNothingHeld(t *testing.T) {
	t.Helper()
	before := MemoryInUse()
	t.Cleanup(func() { // closed connections are torn down behind Close
		require.Eventually(t, func() bool { return MemoryInUse() <= before }, patience, time.Millisecond)
	})
}

// waitForNoMemory waits for that of connections of before that are still being torn down.
func waitForNoMemory(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return MemoryInUse() == 0 }, patience, time.Millisecond)
}

func TestBadDialAndListen(t *testing.T) {
	requireNothingHeld(t)
	for _, tt := range []struct {
		name             string
		network, address string
		dialOnly         bool
		says             []string
		is               []error
	}{
		{"unknown network", "quic", "127.0.0.1:1", false, []string{"quic", "unknown network"}, []error{net.UnknownNetworkError("quic")}},
		{"no network", "", "127.0.0.1:1", false, []string{"", "unknown network"}, []error{net.UnknownNetworkError("")}},
		{"tcp5", "tcp5", "127.0.0.1:1", false, []string{"tcp5", "unknown network"}, []error{net.UnknownNetworkError("tcp5")}},
		{"no port", "rdma", "127.0.0.1", false, []string{"missing port in address"}, nil},
		{"no address", "rdma", "", true, []string{"missing address"}, nil},
		{"two ports", "rdma", "127.0.0.1:1:2", false, []string{"too many colons in address"}, nil},
		{"bad port", "rdma", "127.0.0.1:65536", false, []string{"invalid port"}, nil},
		{"unknown service", "rdma", "127.0.0.1:nosuchservice", false, []string{"unknown port"}, nil},
		{"unresolvable host", "rdma", "no.such.host.invalid:1", false, []string{"lookup no.such.host.invalid"}, nil},
		{"IPv6 on rdma4", "rdma4", "[::1]:1", false, []string{"no suitable address found"}, nil},
		{"IPv4 on rdma6", "rdma6", "127.0.0.1:1", false, []string{"no suitable address found"}, nil},
		{"port 0", "rdma", "127.0.0.1:0", true, []string{"nobody can listen on port 0"}, []error{syscall.ECONNREFUSED}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Dial(tt.network, tt.address)
			assert.Nil(t, c)
			requireOpError(t, err, "dial", tt.says, tt.is...)
			if !tt.dialOnly {
				l, err := Listen(tt.network, tt.address)
				assert.Nil(t, l)
				requireOpError(t, err, "listen", tt.says, tt.is...)
			}
		})
	}
}

func TestBadAddresses(t *testing.T) {
	requireNothingHeld(t)
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	at := l.Addr().String()

	t.Run("port in use", func(t *testing.T) {
		_, err := Listen("rdma", at)
		requireOpError(t, err, "listen", []string{at, "bind: address already in use"}, syscall.EADDRINUSE)
		_, err = (&Dialer{LocalAddr: l.Addr()}).Dial("rdma", at)
		requireOpError(t, err, "dial", []string{at, "bind: address already in use"}, syscall.EADDRINUSE)
	})
	t.Run("not an address of this host", func(t *testing.T) {
		_, err := Listen("rdma", "192.0.2.1:0")
		requireOpError(t, err, "listen", []string{"192.0.2.1", "cannot assign requested address"}, syscall.EADDRNOTAVAIL)
		_, err = Dial("rdma", "192.0.2.1:1")
		requireOpError(t, err, "dial", []string{"192.0.2.1"}, ErrNoRoute)
		_, err = (&Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}}).Dial("rdma", at)
		requireOpError(t, err, "dial", []string{"192.0.2.1"}, syscall.EADDRNOTAVAIL)
	})
	t.Run("nobody listens", func(t *testing.T) {
		gone, err := Listen("rdma", testAddr())
		require.NoError(t, err)
		require.NoError(t, gone.Close())
		_, err = Dial("rdma", gone.Addr().String())
		requireOpError(t, err, "dial", []string{gone.Addr().String(), "connect: connection refused: no RDMA listener on "}, syscall.ECONNREFUSED)
	})
	t.Run("local address of another kind", func(t *testing.T) {
		_, err := (&Dialer{LocalAddr: &net.UDPAddr{}}).Dial("rdma", at)
		requireOpError(t, err, "dial", []string{"mismatched local address type"})
		_, err = (&Dialer{LocalAddr: &net.UnixAddr{Name: "x"}}).Dial("rdma", at)
		requireOpError(t, err, "dial", []string{"mismatched local address type"})
		_, err = (&Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv6loopback}}).Dial("rdma", at)
		requireOpError(t, err, "dial", []string{"no suitable address found"})
		_, err = (&Dialer{LocalAddr: &net.TCPAddr{IP: net.IP{1, 2, 3}}}).Dial("rdma", at)
		requireOpError(t, err, "dial", []string{"no suitable address found"})
	})
	t.Run("local port out of range", func(t *testing.T) {
		for _, port := range []int{-1, -65536, 65536, 70000} {
			for _, network := range []string{"rdma", "tcp"} {
				_, err := (&Dialer{LocalAddr: &net.TCPAddr{Port: port}}).Dial(network, at)
				requireOpError(t, err, "dial", []string{network, "bind: invalid argument"}, syscall.EINVAL)
			}
		}
	})
	t.Run("no local address in an interface", func(t *testing.T) {
		c, err := (&Dialer{LocalAddr: (*net.TCPAddr)(nil)}).Dial("rdma", at)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}

// hasLoopback reports whether the device under test has the loopback addresses.
func hasLoopback() bool {
	return slices.ContainsFunc(driver.Drivers(), func(d driver.Driver) bool {
		_, err := d.Route(cm.DefaultDevice(), netip.MustParseAddrPort(loopbackAddr).Addr())
		return err == nil
	})
}

// TestNoLoopback dials and listens on loopback addresses, which no real device has.
func TestNoLoopback(t *testing.T) {
	if hasLoopback() {
		l, err := Listen("rdma", loopbackAddr)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		return
	}
	for _, at := range []string{"127.0.0.1:1", "[::1]:1", ":1"} {
		_, err := Dial("rdma", at)
		requireOpError(t, err, "dial", []string{"loopback"}, ErrNoRoute)
	}
	_, err := Listen("rdma", loopbackAddr)
	requireOpError(t, err, "listen", []string{"loopback"}, syscall.EADDRNOTAVAIL)
}

func TestBadSizes(t *testing.T) {
	requireNothingHeld(t)
	for _, tt := range []struct {
		name      string
		ring, max int
		says      []string
	}{
		{"ring too small", MinReadBuffer - 1, 0, []string{"ReadBuffer", "out of bounds", "choose"}},
		{"ring too large", MaxReadBuffer + 1, 0, []string{"ReadBuffer", "out of bounds", "choose"}},
		{"negative ring", -1, 0, []string{"ReadBuffer -1", "out of bounds"}},
		{"bound too small", 0, 1, []string{"ReadBuffer", "out of bounds"}},
		{"bound too large", 0, MaxReadBuffer + 1, []string{"MaxReadBuffer", "out of bounds"}},
		{"bound below the ring", 32768, 16384, []string{"MaxReadBuffer 16384 is smaller than ReadBuffer 32768"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := (&Dialer{ReadBuffer: tt.ring, MaxReadBuffer: tt.max}).Dial("rdma", "127.0.0.1:1")
			requireOpError(t, err, "dial", tt.says)
			_, err = (&ListenConfig{ReadBuffer: tt.ring, MaxReadBuffer: tt.max}).Listen(context.Background(), "rdma", "127.0.0.1:0")
			requireOpError(t, err, "listen", tt.says)
		})
	}
}

func TestBadDevice(t *testing.T) {
	requireNothingHeld(t)
	check := func(t *testing.T, d Dialer, lc ListenConfig) {
		_, err := d.Dial("rdma", "127.0.0.1:1")
		requireOpError(t, err, "dial", []string{"nosuch9"}, ErrNoDevice)
		_, err = lc.Listen(context.Background(), "rdma", "127.0.0.1:0")
		requireOpError(t, err, "listen", []string{"nosuch9"}, ErrNoDevice)
	}
	t.Run("named", func(t *testing.T) { check(t, Dialer{Device: "nosuch9"}, ListenConfig{Device: "nosuch9"}) })
	t.Run("by the environment", func(t *testing.T) {
		t.Setenv("RDMANET_DEVICE", "nosuch9")
		check(t, Dialer{}, ListenConfig{})
	})
	t.Run("not the one listened on", func(t *testing.T) {
		l, err := Listen("rdma", testAddr())
		require.NoError(t, err)
		defer l.Close()
		_, err = (&Dialer{Device: "soft0-iwarp"}).Dial("rdma", l.Addr().String())
		requireOpError(t, err, "dial", []string{"soft0-iwarp"}, syscall.ECONNREFUSED)
	})
}

// firstMemory is what the first connection to a listener takes at each end: the memory of many, and of fewer
// where it is pinned.
func firstMemory() int {
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		return link.LaneRings
	}
	return link.MaxFirstRing
}

func TestMemoryLimit(t *testing.T) {
	waitForNoMemory(t)
	requireNothingHeld(t)
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	limit := func(t *testing.T, n int64) {
		before := SetMemoryLimit(n)
		t.Cleanup(func() { SetMemoryLimit(before) })
	}
	t.Run("of the dialer", func(t *testing.T) {
		limit(t, int64(firstMemory()/2))
		_, err := Dial("rdma", l.Addr().String())
		requireOpError(t, err, "dial", []string{"limit", "SetMemoryLimit", "smaller rings"}, ErrNoMemory)
	})
	t.Run("of the listener", func(t *testing.T) {
		waitForNoMemory(t)
		limit(t, int64(firstMemory()*3/2))
		done := make(chan dialled, 1)
		go func() {
			c, err := (&Dialer{Timeout: lasting}).dial(context.Background(), "rdma", l.Addr().String())
			done <- dialled{c, err}
		}()
		_, err := l.Accept()
		requireOpError(t, err, "accept", []string{"clients wait", "limit", "SetMemoryLimit"}, ErrNoMemory, syscall.ENOMEM)
		require.True(t, temporary(err))
		SetMemoryLimit(DefaultMemoryLimit) // the client has waited
		s, err := acceptServed(l.(*Listener))
		require.NoError(t, err)
		d := <-done
		require.NoError(t, d.err)
		require.NoError(t, d.conn.Close())
		require.NoError(t, s.Close())
	})
	t.Run("of the listener, and the dialer gives up", func(t *testing.T) {
		waitForNoMemory(t)
		limit(t, int64(firstMemory()*3/2))
		before := l.(*Listener).Stats()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil && !l.(*Listener).shortages.Waiting() {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		_, err := new(Dialer).dial(ctx, "rdma", l.Addr().String())
		requireOpError(t, err, "dial", nil, context.Canceled)
		// Its place is free, at the latest when it is looked for.
		require.Eventually(t, func() bool { return l.(*Listener).Stats().Failed == before.Failed+1 }, patience, time.Millisecond)
		require.False(t, l.(*Listener).shortages.Waiting())
	})
	t.Run("raised again", func(t *testing.T) {
		c, err := Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		s, err := acceptServed(l.(*Listener))
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	})
}

// TestMemoryLimitStopsGrowth has a connection go on with the ring that it has.
func TestMemoryLimitStopsGrowth(t *testing.T) {
	waitForNoMemory(t)
	client, server := pair(t)
	size := server.Stats().ReadBuffer
	before := SetMemoryLimit(MemoryInUse())
	defer SetMemoryLimit(before)
	n := scale(4 << 20)
	written := make(chan error, 1)
	go func() { _, err := client.Write(make([]byte, n)); written <- err }()
	readFull(t, server, n)
	require.NoError(t, <-written)
	require.Equal(t, size, server.Stats().ReadBuffer)
}
