//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

var localhost0 = netip.MustParseAddrPort("127.0.0.1:0")

// silentDialer connects to a listener at addr, with a dialer's name, and says nothing.
func silentDialer(t *testing.T, addr netip.AddrPort) *control.Socket {
	t.Helper()
	s, _ := silentDialerFrom(t, addr)
	return s
}

func silentDialerFrom(t *testing.T, addr netip.AddrPort) (*control.Socket, netip.AddrPort) {
	t.Helper()
	c, err := bindEphemeral(soft0.name, addr.Addr(), addr)
	require.NoError(t, err)
	s, err := control.NewSocket(c.take())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	until(func() bool {
		err = s.Connect(control.BoundName(soft0.name, addr.Addr().String(), addr.Port()))
		return !errors.Is(err, unix.EAGAIN)
	})
	require.NoError(t, err)
	return s, c.addr
}

// waitStats waits until a listener's counts are as wanted.
func waitStats(t *testing.T, l *testID, ok func(driver.CMListenStats) bool) {
	t.Helper()
	require.True(t, until(func() bool { return ok(l.ListenStats()) }), "%+v", l.ListenStats())
}

// honest checks that a dialer gets through to l.
func honest(t *testing.T, l *testID) {
	t.Helper()
	d := dialTo(t, l.LocalAddr())
	a := l.serve(d)
	d.close()
	a.next(driver.CMDisconnected)
	a.close()
}

// serve accepts the dialer d, and returns its end.
func (l *testID) serve(d *testID) *testID {
	l.t.Helper()
	a, _ := l.request()
	a.createQP()
	require.NoError(l.t, a.Accept(nil))
	d.next(driver.CMEstablished)
	a.next(driver.CMEstablished)
	return a
}

// TestSilentDialer is let go when its time is up, and others are served.
func TestSilentDialer(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{HandshakeTimeout: 2 * time.Second})
	silentDialer(t, l.LocalAddr())
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.TimedOut == 1 && s.HalfOpen == 0 })
	l.nothing()
	honest(t, l)
}

func TestHalfOpenDialers(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{HandshakeTimeout: time.Minute})
	addr := l.LocalAddr()
	fits := func(ok func(driver.CMListenStats) bool) {
		t.Helper()
		waitStats(t, l, ok)
		l.nothing()
		honest(t, l)
	}
	buf := make([]byte, control.MaxMessage)

	silentDialer(t, addr).Close()
	fits(func(s driver.CMListenStats) bool { return s.Hangup == 1 })

	s := silentDialer(t, addr)
	require.NoError(t, s.Send([]byte("GET / HTTP/1.1\r\n\r\n"), nil))
	fits(func(s driver.CMListenStats) bool { return s.Malformed == 1 })

	s = silentDialer(t, addr)
	sendTooMany(t, s, []byte{control.MsgREQ})
	fits(func(s driver.CMListenStats) bool { return s.Malformed == 2 })

	// A name that no dialer has.
	fd, err := control.OpenSocket()
	require.NoError(t, err)
	s, err = control.NewSocket(fd)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Connect(control.BoundName(soft0.name, "127.0.0.1", addr.Port())))
	req := control.ConnMsg{Src: netip.MustParseAddrPort("127.0.0.1:40000"), Dst: addr}
	require.NoError(t, s.Send(control.AppendREQ(nil, &req), nil))
	fits(func(s driver.CMListenStats) bool { return s.Malformed == 3 })

	// Another address than the one it came to.
	s, req.Src = silentDialerFrom(t, addr)
	req.Dst = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), addr.Port())
	require.NoError(t, s.Send(control.AppendREQ(nil, &req), []int{1, 1}))
	fits(func(s driver.CMListenStats) bool { return s.Malformed == 4 })

	// Another version, which is told so.
	s = silentDialer(t, addr)
	require.NoError(t, s.Send([]byte{control.MsgREQ, control.WireVersion + 1, 1, 2, 3}, nil))
	fits(func(s driver.CMListenStats) bool { return s.Malformed == 5 })
	n, _, err := s.Recv(buf)
	require.NoError(t, err)
	version, reason, _, err := control.ParseREJ(buf[:n])
	require.NoError(t, err)
	require.EqualValues(t, control.WireVersion, version)
	require.Equal(t, control.RejectUnsupported, reason)

	// A request with an offer that means nothing reaches the application, and
	// goes no further.
	s, req.Src = silentDialerFrom(t, addr)
	req.Dst, req.Offer = addr, []byte("nonsense")
	require.NoError(t, s.Send(control.AppendREQ(nil, &req), []int{1, 1}))
	a, _ := l.request()
	a.createQP()
	require.ErrorIs(t, a.Accept(nil), verbs.ErrProtocol)
	a.nothing()
	honest(t, l)
}

func TestManyHalfOpenDialers(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{HandshakeTimeout: time.Minute})
	for range 200 {
		silentDialer(t, l.LocalAddr())
	}
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.HalfOpen == 200 })
	honest(t, l)
	require.Equal(t, 200, l.ListenStats().HalfOpen)
	require.Zero(t, l.ListenStats().Evicted)
}

func TestOldestHalfOpenIsEvicted(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{MaxHalfOpen: 3, HandshakeTimeout: time.Minute})
	var all []*control.Socket
	for i := range 10 {
		all = append(all, silentDialer(t, l.LocalAddr()))
		waitStats(t, l, func(s driver.CMListenStats) bool { return int(s.Evicted)+s.HalfOpen == i+1 })
	}
	require.Equal(t, 3, l.ListenStats().HalfOpen)
	for i, s := range all {
		if i < 7 {
			_, _, err := s.Recv(make([]byte, 1))
			require.Error(t, err)
		} else {
			require.NoError(t, s.Send([]byte{0}, nil))
		}
	}
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.Malformed == 3 && s.HalfOpen == 0 })
	honest(t, l)
}

func TestBacklog(t *testing.T) {
	noLeaks(t)
	const backlog, dialers = 2, 7
	l := listenAt(t, "127.0.0.1:0", backlog, driver.CMOptions{})
	for range dialers {
		dialTo(t, l.LocalAddr())
	}
	var pending []*testID
	for range backlog {
		a, _ := l.request()
		pending = append(pending, a)
	}
	for i := range dialers {
		require.EqualValues(t, min(backlog+i, dialers), l.ListenStats().Requests)
		switch i % 3 {
		case 0:
			require.NoError(t, pending[i].Reject(nil))
		case 1:
			pending[i].createQP()
			require.NoError(t, pending[i].Accept(nil))
		case 2:
			require.NoError(t, pending[i].Close())
		}
		if i+backlog < dialers {
			a, _ := l.request()
			pending = append(pending, a)
		}
	}
	l.nothing()
}

// TestBacklogHoldsDialersBack checks that nobody is let in while the application
// does not answer.
func TestBacklogHoldsDialersBack(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{})
	dialTo(t, l.LocalAddr())
	a, _ := l.request()
	for range 5 {
		require.NoError(t, silentDialer(t, l.LocalAddr()).Send([]byte("garbage"), nil))
	}
	// One may have been accepted while the request was on its way.
	malformed := func(n uint64) func() bool {
		return func() bool { return l.ListenStats().Malformed >= n }
	}
	time.Sleep(20 * time.Millisecond) // nothing is to happen
	require.False(t, malformed(2)())
	require.NoError(t, a.Reject(nil))
	require.True(t, until(malformed(5)))
}

func TestKernelBacklogFull(t *testing.T) {
	noLeaks(t)
	// A listener that does not accept, with room for one.
	c, err := claimPort(soft0.name, localhost0, false)
	require.NoError(t, err)
	defer c.release()
	require.NoError(t, unix.Listen(c.fd, 0))
	silentDialer(t, c.addr)

	d := resolved(t, c.addr, driver.CMOptions{})
	require.NoError(t, d.Connect(nil, 20*time.Millisecond))
	require.ErrorIs(t, d.next(driver.CMUnreachable).Err, unix.ETIMEDOUT)

	// It gets in when there is room.
	d = dialTo(t, c.addr)
	l, err := control.NewSocket(c.take())
	require.NoError(t, err)
	defer l.Close()
	for range 2 {
		fd, _, err := l.Accept()
		require.NoError(t, err)
		s, err := control.NewSocket(fd)
		require.NoError(t, err)
		defer s.Close()
		defer refuse(s, driver.RejectConsumer, nil)
	}
	d.nothing()
}

func TestListenerOutOfDescriptors(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	for range 5 {
		silentDialer(t, l.LocalAddr())
	}
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.HalfOpen == 5 })

	// The next one is made now and connects when no descriptor is left.
	c, err := bindEphemeral(soft0.name, localhost0.Addr(), netip.AddrPort{})
	require.NoError(t, err)
	s, err := control.NewSocket(c.take())
	require.NoError(t, err)
	defer s.Close()
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	low := old
	low.Cur = 3
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	err = s.Connect(control.BoundName(soft0.name, "127.0.0.1", l.LocalAddr().Port()))
	evicted := until(func() bool { return l.ListenStats().Evicted == 5 })
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, err)
	require.True(t, evicted)
	// The application was told, and it lives on, once the one that waited is there.
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.HalfOpen == 1 })
	require.NotEmpty(t, l.events)
	for len(l.events) > 0 {
		require.ErrorIs(t, l.next(driver.CMConnectError).Err, unix.EMFILE)
	}
	honest(t, l)
}

// TestDialersThatLeave has dialers leave while their requests wait: one that the application
// has, and one that waits to be given to it. Both are noticed at once, with all descriptors.
func TestDialersThatLeave(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 2, driver.CMOptions{})
	ln := listenerOf(l)
	stays := dialTo(t, l.LocalAddr())
	first, _ := l.request()
	dialer := dialTo(t, l.LocalAddr())
	second, _ := l.request()
	left := make(chan struct{})
	stop := second.CMID.(*cmID).OnLeave(func() { close(left) })
	stopFirst := first.CMID.(*cmID).OnLeave(func() { t.Error("it has not left") })

	// A third one is taken in before there is room for it, as at the end of a crowd.
	ln.mu.Lock()
	ln.backlog++
	ln.room.Broadcast()
	ln.mu.Unlock()
	third, src := silentDialerFrom(t, l.LocalAddr())
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.HalfOpen == 1 })
	ln.mu.Lock()
	ln.backlog--
	ln.mu.Unlock()
	req := control.ConnMsg{Src: src, Dst: l.LocalAddr()}
	require.NoError(t, third.Send(control.AppendREQ(nil, &req), []int{1, 1}))
	waiting := func() int {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		return ln.waiting
	}
	require.True(t, until(func() bool { return waiting() == 1 }))
	third.Close()
	require.True(t, until(func() bool { return waiting() == 0 }))
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.Hangup == 1 })

	require.True(t, second.CMID.(*cmID).Waits())
	dialer.close()
	select {
	case <-left:
	case <-time.After(patience):
		t.Fatal("not noticed")
	}
	stop()
	second.close()
	stopFirst()
	first.createQP()
	require.NoError(t, first.Accept(nil), "who was watched can be accepted")
	stays.next(driver.CMEstablished)
	first.next(driver.CMEstablished)
	l.nothing()
	stays.close()
	first.next(driver.CMDisconnected)
	first.close()
	honest(t, l)
}

// TestForeignAddresses has clients send a request with addresses that are not theirs, as one that
// another process has sent before: the kernel names the sender, and it is not taken.
func TestForeignAddresses(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	other, src := silentDialerFrom(t, l.LocalAddr())
	for name, m := range map[string]control.ConnMsg{
		"another's port":    {Src: src, Dst: l.LocalAddr()},
		"another's address": {Src: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), src.Port()), Dst: l.LocalAddr()},
		"another listener":  {Src: src, Dst: netip.AddrPortFrom(l.LocalAddr().Addr(), l.LocalAddr().Port()+1)},
	} {
		before := l.ListenStats().Malformed
		s, own := silentDialerFrom(t, l.LocalAddr())
		if name == "another listener" {
			m.Src = own
		}
		require.NoError(t, s.Send(control.AppendREQ(nil, &m), nil), name)
		buf := make([]byte, control.MaxMessage)
		require.NoError(t, s.SetReadDeadline(time.Now().Add(patience)))
		n, _, err := s.Recv(buf)
		require.NoError(t, err, name)
		_, reason, _, err := control.ParseREJ(buf[:n])
		require.NoError(t, err, name)
		require.Equal(t, driver.RejectNone, reason, name)
		require.Equal(t, before+1, l.ListenStats().Malformed, name)
	}
	l.nothing()
	require.NoError(t, other.Close())
	honest(t, l)
}

// sendTooMany sends msg with more descriptors than send takes.
func sendTooMany(t *testing.T, s *control.Socket, msg []byte) {
	t.Helper()
	var err error
	require.NoError(t, s.Control(func(fd uintptr) { err = control.SendTo(fd, msg, slices.Repeat([]int{1}, control.MaxFDs+1)) }))
	require.NoError(t, err)
}

// leaveDescriptors has the process get no more than n descriptors, until the end of the test or until restored.
func leaveDescriptors(t *testing.T, n int) (restore func()) {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	var free []int // the next that there are
	for range n + 1 {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		free = append(free, fd)
	}
	control.CloseFDs(free)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free[n]), Max: was.Max}))
	restore = sync.OnceFunc(func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) })
	t.Cleanup(restore)
	return restore
}

// TestRequestForLastDescriptor: a listener on all addresses that has a descriptor for a dialer and no more, to ask which
// addresses there are, takes the dialer's for what it was a moment ago.
func TestRequestForLastDescriptor(t *testing.T) {
	l := listenAt(t, "0.0.0.0:0", 1, driver.CMOptions{})
	addr := netip.MustParseAddr("192.0.2.1") // as one of an interface
	age := func(by time.Duration) {
		hostNetCache.Lock()
		hostNetCache.addrs = map[netip.Addr]struct{}{addr: {}}
		hostNetCache.at = time.Now().Add(-by)
		hostNetCache.Unlock()
	}
	t.Cleanup(func() { age(time.Hour) })
	// A descriptor that an earlier test gives back meanwhile is one to ask with, and one that is taken for
	// a moment is none for the dialer until the limit is gone.
	const tries = 20
	var d *testID
	for tried := uint64(1); l.ListenStats().Requests == 0; tried++ {
		require.LessOrEqual(t, tried, uint64(tries))
		age(0)
		d = resolved(t, netip.AddrPortFrom(addr, l.LocalAddr().Port()), driver.CMOptions{})
		age(time.Hour)
		restore := leaveDescriptors(t, 1)
		require.NoError(t, d.Connect(nil, patience))
		heard := func() bool { s := l.ListenStats(); return s.Requests+s.Malformed == tried }
		for end := time.Now().Add(time.Second); !heard() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		restore()
		eventually(t, heard)
	}
	for {
		if ev := <-l.events; ev.Type == driver.CMConnectRequest {
			require.NoError(t, ev.ID.Close())
			break
		}
	}
	d.next(driver.CMRejected)
}
