package rdmanet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/rdmanet/internal/dialtrace"
)

// quiet takes the lines that fallbacks log.
var quiet = slog.New(slog.DiscardHandler)

// noSuchDevice leaves a listener, or a dialer, with TCP.
const noSuchDevice = "nosuch0"

// tcpKinds are the ways in which two ends on a network of TCP may meet.
func tcpKinds() []overBoth {
	rdma := Dialer{Logger: quiet, RetryRDMA: -1}
	tcp := Dialer{Logger: quiet, RetryRDMA: -1, Device: noSuchDevice}
	return []overBoth{
		{"RDMA", rdma, ListenConfig{Logger: quiet}},
		{"TCP as neither has RDMA", tcp, ListenConfig{Logger: quiet, Device: noSuchDevice}},
		{"TCP as the listener has no RDMA", rdma, ListenConfig{Logger: quiet, Device: noSuchDevice}},
		{"TCP as the dialer has no RDMA", tcp, ListenConfig{Logger: quiet}},
	}
}

func (b overBoth) overRDMA() bool { return b.kind == "RDMA" }

// listenOn listens on a network of TCP where tests do; it is closed when the test ends.
func (b overBoth) newListener(t testing.TB) *Listener {
	t.Helper()
	l, err := b.lc.listen(context.Background(), "tcp", testAddr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// meet makes the two ends of a connection.
func (b overBoth) meet(l *Listener) (client, server net.Conn, err error) {
	if client, err = b.dialer.DialContext(context.Background(), l.network, l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if server, err = l.Accept(); err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	return client, server, nil
}

// requireKind sees that a connection is of the kind it should be.
func requireKind(t testing.TB, rdma bool, conns ...net.Conn) {
	t.Helper()
	for _, c := range conns {
		if rdma {
			require.IsType(t, (*Conn)(nil), c)
		} else {
			require.IsType(t, (*net.TCPConn)(nil), c)
		}
	}
}

// TestTCPNetworks has every kind of dialer and listener meet, on every network of TCP.
func TestTCPNetworks(t *testing.T) {
	onTCPPorts(t)
	for _, b := range tcpKinds() {
		t.Run(b.kind, func(t *testing.T) {
			for _, network := range []string{"tcp", "tcp4"} {
				var told []*FallbackError
				tell := func(e *FallbackError) { told = append(told, e) }
				b.dialer.OnFallback, b.lc.OnFallback = tell, tell
				l, err := b.lc.listen(context.Background(), network, testAddr())
				require.NoError(t, err)
				defer l.Close()
				if b.lc.Device == "" {
					require.Nil(t, l.Fallback())
					require.Empty(t, told)
				} else {
					require.Len(t, told, 1)
					require.Same(t, told[0], l.Fallback())
					require.ErrorIs(t, l.Fallback(), ErrNoDevice)
					require.Equal(t, FallbackNoDevice, l.Fallback().Reason)
					require.Equal(t, "listen", l.Fallback().Op)
				}
				told = nil
				client, server, err := b.meet(l)
				require.NoError(t, err)
				defer client.Close()
				defer server.Close()
				requireKind(t, b.overRDMA(), client, server)
				require.Equal(t, l.Addr(), client.RemoteAddr())
				require.Equal(t, client.LocalAddr().String(), server.RemoteAddr().String())
				require.IsType(t, (*net.TCPAddr)(nil), server.RemoteAddr())
				want := ListenerStats{Accepted: 1, Established: 1, Requests: 1}
				if !b.overRDMA() {
					want = ListenerStats{AcceptedTCP: 1}
					require.Len(t, told, 1)
					require.Equal(t, "dial", told[0].Op)
					require.Equal(t, network, told[0].Network)
					require.Equal(t, client.RemoteAddr(), told[0].Addr)
					if b.dialer.Device == "" {
						require.Equal(t, FallbackRefused, told[0].Reason)
						require.ErrorIs(t, told[0], syscall.ECONNREFUSED)
					} else {
						require.Equal(t, FallbackNoDevice, told[0].Reason)
						require.ErrorIs(t, told[0], ErrNoDevice)
					}
				} else {
					require.Empty(t, told)
				}
				require.Equal(t, want, l.Stats())
				require.Contains(t, Listeners(), ListenerInfo{
					Network: network, Addr: l.addr.AddrPort(), Device: l.device(), Backlog: DefaultBacklog(), ListenerStats: want,
				})
				_, err = client.Write([]byte("hello"))
				require.NoError(t, err)
				require.Equal(t, "hello", string(readFull(t, server, 5)))
				require.NoError(t, l.Close())
				require.ErrorIs(t, l.Close(), net.ErrClosed)
			}
		})
	}
}

// TestTCPNetworksDifferential is TestDifferential for the networks of TCP: over RDMA
// with the differences that RDMA has, over TCP with none.
func TestTCPNetworksDifferential(t *testing.T) {
	mostlyWaits(t)
	onTCPPorts(t)
	for _, s := range loadScripts(t, "testdata/differential/*.txt") {
		if s.loopback && !hasLoopback() {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			want := s.run(t, overTCP{})
			atOnce(t, tcpKinds()[:2], func(b overBoth) string { return b.kind }, func(t *testing.T, b overBoth) {
				want, got := slices.Clone(want), s.run(t, b)
				plain := s
				plain.steps = slices.Clone(s.steps)
				for i := range s.steps {
					// A dial that is given up before it begins fails with TCP's error, and a
					// connection that is one of TCP's has none of the differences.
					difference := s.steps[i].difference
					if difference == "dial-timeout" || !b.overRDMA() && difference != "listener-deadline-error" {
						plain.steps[i].difference = ""
					}
					if difference == "dial-timeout" {
						got[i], want[i] = outcome{err: errorFacts{class: timeoutClass(got[i])}}, outcome{err: errorFacts{class: timeoutClass(want[i])}}
					}
				}
				compare(t, plain, want, got)
			})
		})
	}
}

// timeoutClass tells package net's two errors for one thing not apart.
func timeoutClass(o outcome) string {
	if strings.Contains(o.err.class, "deadline") {
		return "timeout"
	}
	return o.err.class
}

// TestTCPNetworksNetConn is nettest's suite over either kind.
func TestTCPNetworksNetConn(t *testing.T) {
	mostlyWaits(t)
	onTCPPorts(t)
	for _, b := range tcpKinds() {
		t.Run(b.kind, func(t *testing.T) {
			l := b.newListener(t)
			b.dialer.RequireRDMA = b.overRDMA() // also when the machine is busy
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				if c1, c2, err = b.meet(l); err != nil {
					return nil, nil, nil, err
				}
				requireKind(t, b.overRDMA(), c1, c2)
				return c1, c2, func() { c1.Close(); c2.Close() }, nil
			})
		})
	}
}

// TestRequireRDMA has no connection rather than one over TCP.
func TestRequireRDMA(t *testing.T) {
	onSoftware(t)
	lc := ListenConfig{Logger: quiet, Device: noSuchDevice, RequireRDMA: true}
	_, err := lc.Listen(context.Background(), "tcp", loopbackAddr)
	requireOpError(t, err, "listen", []string{"tcp"}, ErrNoDevice)

	l, err := net.Listen("tcp", loopbackAddr)
	require.NoError(t, err)
	defer l.Close()
	d := Dialer{RequireRDMA: true, OnFallback: func(*FallbackError) { t.Error("a fallback") }}
	_, err = d.Dial("tcp", l.Addr().String())
	requireOpError(t, err, "dial", []string{"tcp"}, syscall.ECONNREFUSED)
	d.Device = noSuchDevice
	_, err = d.Dial("tcp", l.Addr().String())
	requireOpError(t, err, "dial", []string{"tcp"}, ErrNoDevice)
}

// TestNeither: the error of a dial that gets there neither way is TCP's, with RDMA's where that is
// about this process.
func TestNeither(t *testing.T) {
	timeout := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	rdma := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for name, tt := range map[string]struct {
		device       string
		tcp, rdma    error
		says         string
		timeout, not bool
	}{
		"denied":           {"", refused, rdma(syscall.EACCES), "dial tcp: connect: connection refused (nor by RDMA: permission denied)", false, false},
		"no memory":        {"", timeout, rdma(ErrNoMemory), "dial tcp: i/o timeout (nor by RDMA: cannot allocate RDMA memory)", true, false},
		"a device's name":  {noSuchDevice, refused, rdma(ErrNoDevice), "dial tcp: connect: connection refused (nor by RDMA: no such RDMA device)", false, false},
		"no device":        {"", refused, rdma(ErrNoDevice), "dial tcp: connect: connection refused", false, true},
		"nobody there":     {"", refused, rdma(syscall.ECONNREFUSED), "dial tcp: connect: connection refused", false, true},
		"of another shape": {"", context.Canceled, rdma(syscall.EACCES), "context canceled", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("RDMANET_DEVICE", tt.device)
			err := (&Dialer{}).neither(tt.tcp, tt.rdma)
			require.EqualError(t, err, tt.says)
			require.Equal(t, tt.not, err == tt.tcp)
			if ne, ok := err.(net.Error); ok {
				require.Equal(t, tt.timeout, ne.Timeout())
				type temporary interface{ Temporary() bool }
				require.Equal(t, tt.tcp.(temporary).Temporary(), err.(temporary).Temporary())
			}
		})
	}
}

// TestFallbackIsRemembered has the second dial know what the first found out, and one
// that takes RDMA end that.
func TestFallbackIsRemembered(t *testing.T) {
	onTCPPorts(t)
	tcp, err := net.Listen("tcp", testAddr())
	require.NoError(t, err)
	defer tcp.Close()
	addr := tcp.Addr().String()
	var reasons []FallbackReason
	var lines bytes.Buffer
	d := Dialer{
		Logger:     slog.New(slog.NewTextHandler(&lines, nil)),
		OnFallback: func(e *FallbackError) { reasons = append(reasons, e.Reason) },
	}
	was := fallbacks[0][FallbackRefused].Swap(0) // the first of a process is logged at level info
	defer fallbacks[0][FallbackRefused].Add(was)
	before := ReadStats().DialFallbacks
	for range 3 {
		c, err := d.Dial("tcp", addr)
		require.NoError(t, err)
		requireKind(t, false, c)
		require.NoError(t, c.Close())
	}
	require.Equal(t, []FallbackReason{FallbackRefused, FallbackRemembered, FallbackRemembered}, reasons)
	require.Equal(t, 1, strings.Count(lines.String(), "\n"), "one line, however many dials:\n%s", &lines)
	for _, part := range []string{"TCP without RDMA", "reason=refused", "remote=" + addr, "connection refused"} {
		require.Contains(t, lines.String(), part)
	}
	after := ReadStats().DialFallbacks
	require.Equal(t, uint64(1), after["refused"]-before["refused"])
	require.Equal(t, uint64(2), after["remembered"]-before["remembered"])

	// RDMA is there now: nobody looks, but who must have it.
	l, err := (&ListenConfig{}).listen(context.Background(), "rdma", addr)
	require.NoError(t, err)
	defer l.Close()
	c, err := d.Dial("tcp", addr)
	require.NoError(t, err)
	requireKind(t, false, c)
	require.NoError(t, c.Close())
	required := Dialer{RequireRDMA: true}
	for _, d := range []*Dialer{&required, &d} {
		c, err := d.Dial("tcp", addr)
		require.NoError(t, err)
		requireKind(t, true, c)
		require.NoError(t, c.Close())
	}
	require.Len(t, reasons, 4)
}

// TestNothingIsRememberedOfNobody has a server that was started late: a dial that failed
// altogether says nothing about RDMA.
func TestNothingIsRememberedOfNobody(t *testing.T) {
	onTCPPorts(t)
	b := overBoth{lc: ListenConfig{Logger: quiet}}
	l := b.newListener(t)
	require.NoError(t, l.Close())
	_, err := b.dialer.Dial("tcp", l.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	l, err = b.lc.listen(context.Background(), "tcp", l.Addr().String())
	require.NoError(t, err)
	defer l.Close()
	c, err := b.dialer.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	requireKind(t, true, c)
}

// TestEachAddressIsRemembered: of a host's addresses each is remembered for what RDMA met there. One that was
// slow is so for a second, also where another was refused before it. What is told is that of the address that
// TCP reached.
func TestEachAddressIsRemembered(t *testing.T) {
	l := silentOverRDMA(t)
	withHeadStarts(t, 0, 0)
	port := l.addr.AddrPort().Port()
	nobody, slow := [4]byte{127, 0, 0, 5}, [4]byte{127, 0, 0, 1}
	for name, tt := range map[string]struct {
		addrs   [][4]byte
		refused bool
	}{
		"refused and slow":   {[][4]byte{nobody, slow}, true},
		"slow and not tried": {[][4]byte{slow, nobody}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var told *FallbackError
			d := Dialer{Logger: quiet, Resolver: newNameServer(tt.addrs...).resolver(), OnFallback: func(e *FallbackError) { told = e }}
			to := func(a [4]byte) destination {
				return d.destination(netip.AddrPort{}, netip.AddrPortFrom(netip.AddrFrom4(a), port))
			}
			defer unreached.forget(to(nobody))
			defer unreached.forget(to(slow))
			ctx, tried := t.Context(), make(chan struct{})
			if tt.refused { // TCP waits for that
				ctx = dialtrace.With(ctx, &dialtrace.Hooks{ConnectDone: func(_, address string, _ error) {
					if address == to(nobody).addr.String() {
						close(tried)
					}
				}})
				d.Control = func(string, string, syscall.RawConn) error { <-tried; return nil }
			}
			c, err := d.DialContext(ctx, "tcp4", fmt.Sprintf("host.example.:%d", port))
			require.NoError(t, err)
			defer c.Close()
			requireKind(t, false, c)
			require.Equal(t, FallbackSlow, told.Reason)
			require.Equal(t, to(slow).addr.String(), told.Addr.String())
			require.Equal(t, ErrSlow, unreached.recall(to(slow)))
			require.Equal(t, tt.refused, errors.Is(unreached.recall(to(nobody)), syscall.ECONNREFUSED))
		})
	}
}

// withHeadStart gives RDMA another head start for a test. TestMain has given it one that is
// enough on a busy machine.
func withHeadStart(t *testing.T, d time.Duration) { withHeadStarts(t, d, d) }

// withHeadStarts is withHeadStart with another one for addresses of this host.
func withHeadStarts(t *testing.T, d, here time.Duration) {
	before, beforeHere := headStart, headStartHere
	headStart, headStartHere = d, here
	t.Cleanup(func() { headStart, headStartHere = before, beforeHere })
}

// TestPlainServer has a server of package net cost a dialer that would rather have RDMA far
// less than the head start of RDMA: it is refused, and need not wait.
func TestPlainServer(t *testing.T) {
	onTCPPorts(t)
	l, err := net.Listen("tcp", testAddr())
	require.NoError(t, err)
	defer l.Close()
	d := Dialer{Logger: quiet, RetryRDMA: -1}
	var told *FallbackError
	d.OnFallback = func(e *FallbackError) { told = e }
	fastest(t, 20, "Dial", rdmaHeadStart/2, func() time.Duration {
		began := time.Now()
		c, err := d.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		took := time.Since(began)
		requireKind(t, false, c)
		require.NoError(t, c.Close())
		require.Equal(t, FallbackRefused, told.Reason)
		return took
	})
}

// silentOverRDMA is a listener over RDMA whose one place is taken, so that who comes waits,
// and a server of package net at the same address.
func silentOverRDMA(t *testing.T) *Listener {
	t.Helper()
	onSoftware(t)
	tcp, err := net.Listen("tcp", loopbackAddr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tcp.Close() })
	l, err := (&ListenConfig{Backlog: 1}).listen(context.Background(), "rdma", tcp.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	full := <-flavour{}.dialBehind(l.addr.AddrPort())
	require.NoError(t, full.err)
	t.Cleanup(func() { _ = full.conn.Close() })
	return l
}

// TestSlowRDMA has a server whose RDMA side says nothing: TCP overtakes it.
func TestSlowRDMA(t *testing.T) {
	l := silentOverRDMA(t)
	withHeadStart(t, rdmaHeadStart)
	b := overBoth{lc: ListenConfig{Logger: quiet, Backlog: 1}}
	var told *FallbackError
	b.dialer = Dialer{Logger: quiet, RetryRDMA: -1, OnFallback: func(e *FallbackError) { told = e }}
	c, err := b.dialer.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	requireKind(t, false, c)
	require.Equal(t, FallbackSlow, told.Reason)
	require.ErrorIs(t, told, ErrSlow)

	// With less time than the head start TCP has half of it.
	withHeadStart(t, lasting)
	b.dialer.Timeout = 8 * soon
	c, err = b.dialer.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, c.Close())

	// The attempts over RDMA do not come to an Accept.
	s, err := l.AcceptConn()
	require.NoError(t, err)
	defer s.Close()
	require.Eventually(t, func() bool { s := l.Stats(); return s.HalfOpen == 0 && s.Pending == 0 }, patience, time.Millisecond, "%+v", l.Stats())
	require.LessOrEqual(t, l.Stats().Failed, uint64(2)) // fewer if they did not get there in their time
}

// TestFastRDMALeavesNoTrace counts what the TCP side of a listener sees of dialers that
// took RDMA: nothing. TestTimingHeadStart does with the head start that RDMA has.
func TestFastRDMALeavesNoTrace(t *testing.T) {
	onTCPPorts(t)
	b := tcpKinds()[0]
	l := b.newListener(t)
	for range 50 {
		client, server, err := b.meet(l)
		require.NoError(t, err)
		requireKind(t, true, client, server)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
	require.Zero(t, l.Stats().AcceptedTCP)
}

// TestSlowWithinAHostLeavesNoTrace has RDMA outlast its head start at every dial, as on a busy
// machine: a server on the same host still accepts one connection for each, and none that
// its dialer never had.
func TestSlowWithinAHostLeavesNoTrace(t *testing.T) {
	onTCPPorts(t)
	withHeadStarts(t, 0, lasting)
	b := tcpKinds()[0]
	for range 20 {
		l := b.newListener(t)
		client, server, err := b.meet(l)
		require.NoError(t, err)
		requireKind(t, true, client, server)
		require.Equal(t, client.LocalAddr().String(), server.RemoteAddr().String())
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		require.Zero(t, l.Stats().AcceptedTCP)
		require.NoError(t, l.Close())
	}
}

// TestVersionFallsBack has a server that speaks another version over RDMA.
func TestVersionFallsBack(t *testing.T) {
	onSoftware(t)
	tcp, err := net.Listen("tcp", loopbackAddr)
	require.NoError(t, err)
	defer tcp.Close()
	id, err := cm.NewHandlerChannel(func(ev *cm.Event) {
		refusal := cm.NewRefusal(cm.RefusedVersion, "")
		private, _ := refusal.MarshalBinary()
		_ = ev.ID.Reject(private)
		_ = ev.ID.Close()
	}).CreateID(cm.Options{})
	require.NoError(t, err)
	defer id.Close()
	require.NoError(t, id.BindAddr(tcp.Addr().(*net.TCPAddr).AddrPort()))
	require.NoError(t, id.Listen(8))
	var told *FallbackError
	d := Dialer{Logger: quiet, OnFallback: func(e *FallbackError) { told = e }, RetryRDMA: -1}
	c, err := d.Dial("tcp", tcp.Addr().String())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Equal(t, FallbackVersion, told.Reason)
	require.ErrorIs(t, told, cm.ErrVersion)
}

// TestTCPDialsEnd has dials given up while both attempts are under way.
func TestTCPDialsEnd(t *testing.T) {
	tcp, err := net.Listen("tcp", loopbackAddr)
	require.NoError(t, err)
	defer tcp.Close()
	d := Dialer{Logger: quiet, RetryRDMA: -1}
	ctx, cancel := context.WithCancel(context.Background())
	d.Control = func(string, string, syscall.RawConn) error { cancel(); return nil }
	_, err = d.DialContext(ctx, "tcp", tcp.Addr().String())
	requireOpError(t, err, "dial", []string{"tcp"}, context.Canceled)
}

// TestTCPTimeoutKind: on a network of TCP, too, a dial that takes too long says so to whoever asks, and
// is counted as a timeout.
func TestTCPTimeoutKind(t *testing.T) {
	tcp, err := net.Listen("tcp", loopbackAddr)
	require.NoError(t, err)
	defer tcp.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	d := Dialer{Logger: quiet, Device: "none"}
	d.Control = func(string, string, syscall.RawConn) error { <-ctx.Done(); return nil }
	before := ReadStats().DialErrors
	_, err = d.DialContext(ctx, "tcp", tcp.Addr().String())
	requireTimeout := func(err error) {
		t.Helper()
		requireOpError(t, err, "dial", []string{"tcp"}, os.ErrDeadlineExceeded)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, err.(*net.OpError).Timeout())
		require.ErrorContains(t, err, "i/o timeout")
	}
	requireTimeout(err)
	require.Equal(t, map[string]uint64{"timeout": 1}, since(ReadStats().DialErrors, before))

	requireTimeout(asTimeout(&net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}))
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	require.Equal(t, error(refused), asTimeout(refused))
	require.Equal(t, os.ErrDeadlineExceeded, asTimeout(os.ErrDeadlineExceeded))
	require.NoError(t, asTimeout(nil))
}

// TestLookupTimeoutKind: that a name server took too long is a timeout as well.
func TestLookupTimeoutKind(t *testing.T) {
	silent := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	for _, network := range []string{"tcp", "rdma"} {
		before := ReadStats().DialErrors
		_, err := (&Dialer{Resolver: silent, Timeout: 10 * time.Millisecond}).Dial(network, "host.example.:7")
		requireOpError(t, err, "dial", []string{network}, context.DeadlineExceeded)
		require.Equal(t, map[string]uint64{"timeout": 1}, since(ReadStats().DialErrors, before), network)
	}
}

// TestTCPSettings sees that the settings for TCP's sockets get there.
func TestTCPSettings(t *testing.T) {
	var dialled, listened atomic.Int32
	b := tcpKinds()[1]
	b.dialer.Control = func(string, string, syscall.RawConn) error { dialled.Add(1); return nil }
	b.lc.Control = func(string, string, syscall.RawConn) error { listened.Add(1); return nil }
	config := net.KeepAliveConfig{Enable: true, Idle: 77 * time.Second, Interval: 7 * time.Second, Count: 3}
	b.dialer.KeepAliveConfig, b.lc.KeepAliveConfig = config, config
	client, server, err := b.meet(b.newListener(t))
	require.NoError(t, err)
	defer client.Close()
	defer server.Close()
	require.Equal(t, []int32{1, 1}, []int32{dialled.Load(), listened.Load()})
	for _, c := range []net.Conn{client, server} {
		requireKeepAlive(t, c.(*net.TCPConn), config)
	}
	b.dialer.Control = func(string, string, syscall.RawConn) error { return os.ErrPermission }
	_, err = b.dialer.Dial("tcp", client.RemoteAddr().String())
	require.ErrorIs(t, err, os.ErrPermission)
}

// TestTCPDialsAtOnce has many dialers of both kinds at one listener.
func TestTCPDialsAtOnce(t *testing.T) {
	onSoftware(t)
	const each = 32
	kinds := []overBoth{tcpKinds()[0], tcpKinds()[3]}
	kinds[0].dialer.RequireRDMA = true // a slow one would dial TCP beside it, and leave one of two
	l := kinds[0].newListener(t)
	var echoes sync.WaitGroup
	echoes.Go(func() {
		for range each * len(kinds) {
			c, err := l.Accept()
			if !assert.NoError(t, err) {
				return
			}
			echoes.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	var dials sync.WaitGroup
	for k, b := range kinds {
		for i := range each {
			dials.Go(func() {
				c, err := b.dialer.Dial("tcp", l.Addr().String())
				if !assert.NoError(t, err) {
					return
				}
				defer c.Close()
				msg := fmt.Appendf(nil, "%d-%d", k, i)
				_, err = c.Write(msg)
				assert.NoError(t, err)
				got := make([]byte, len(msg))
				_, err = io.ReadFull(c, got)
				assert.NoError(t, err)
				assert.Equal(t, msg, got)
			})
		}
	}
	dials.Wait()
	echoes.Wait()
	require.Equal(t, uint64(each), l.Stats().Accepted)
	require.Equal(t, uint64(each), l.Stats().AcceptedTCP)
}
