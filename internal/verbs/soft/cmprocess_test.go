//go:build linux && (amd64 || arm64)

package soft

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// The test binary starts itself again as the other process, with these set.
const (
	childRole = "SOFT_CM_TEST_ROLE"
	childAddr = "SOFT_CM_TEST_ADDR"

	processMessages = 5000
)

// TestChildProcess is what the other process runs.
func TestChildProcess(t *testing.T) {
	role := os.Getenv(childRole)
	if role == "" {
		t.Skip("is for the tests that start a second process")
	}
	say := func(words ...any) { fmt.Fprintln(os.Stderr, append([]any{"child:"}, words...)...) }
	switch role {
	case "dial":
		d := dialData(t, unbuilt(t, netip.MustParseAddrPort(os.Getenv(childAddr))))
		d.takeHello(d.next(driver.CMEstablished).Param.PrivateData)
		require.NoError(t, d.exchange(processMessages))
		require.NoError(t, d.next(driver.CMDisconnected).Err)
	case "listen":
		l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
		say(l.LocalAddr())
		a := acceptData(t, l)
		a.next(driver.CMEstablished)
		require.NoError(t, a.exchange(processMessages))
		require.NoError(t, a.next(driver.CMDisconnected).Err)
	case "listen shared":
		l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{ReusePort: true})
		say(l.LocalAddr())
		a := acceptData(t, l)
		a.next(driver.CMEstablished)
		require.NoError(t, a.next(driver.CMDisconnected).Err)
	case "another namespace":
		addr := netip.MustParseAddrPort(os.Getenv(childAddr))
		require.Equal(t, driver.RejectNoService, dialTo(t, addr).next(driver.CMRejected).Reason)
		require.NoError(t, newTestID(t, driver.CMOptions{}).BindAddr(addr))
	case "listen without proc":
		require.NoError(t, syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
		require.NoError(t, syscall.Unmount("/proc", syscall.MNT_DETACH))
		l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
		say(l.LocalAddr())
		a, _ := l.request()
		a.createQP()
		require.ErrorIs(t, a.Accept(nil), syscall.ENOENT)
	case "listen and hang":
		l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
		say(l.LocalAddr())
		acceptData(t, l).next(driver.CMEstablished)
		l.request()
		say("waiting")
		select {}
	}
}

// A child is the other process.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startChild(t *testing.T, role string, addr netip.AddrPort) *child {
	t.Helper()
	return startChildWith(t, role, addr, nil)
}

func startChildWith(t *testing.T, role string, addr netip.AddrPort, attr *syscall.SysProcAttr) *child {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestChildProcess$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), childRole+"="+role, childAddr+"="+addr.String())
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	cmd.Stdout = os.Stderr
	cmd.SysProcAttr = attr
	err = cmd.Start()
	if attr != nil && errors.Is(err, syscall.EPERM) {
		t.Skip("needs CAP_SYS_ADMIN, to make a namespace")
	}
	require.NoError(t, err)
	c := &child{t, cmd, bufio.NewScanner(out)}
	t.Cleanup(func() { c.kill() })
	return c
}

// said is the next line of the child that is meant for its parent.
func (c *child) said() string {
	c.t.Helper()
	for c.out.Scan() {
		if line, ok := strings.CutPrefix(c.out.Text(), "child: "); ok {
			return line
		}
	}
	require.FailNow(c.t, "the child said nothing")
	return ""
}

// wait waits for the child to end well.
func (c *child) wait() {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Wait())
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// unbuilt is a dialer that has resolved dst and has no QP yet.
func unbuilt(t *testing.T, dst netip.AddrPort) *testID {
	t.Helper()
	id := newTestID(t, driver.CMOptions{})
	id.resolve(dst)
	return id
}

func TestTwoProcesses(t *testing.T) {
	for _, role := range []string{"dial", "listen"} {
		t.Run("the other end is to "+role, func(t *testing.T) {
			noLeaks(t)
			var e *dataEnd
			var c *child
			if role == "dial" {
				l := listenAt(t, "0.0.0.0:0", 4, driver.CMOptions{})
				c = startChild(t, role, netip.AddrPortFrom(localhost0.Addr(), l.LocalAddr().Port()))
				e = acceptData(t, l)
				e.next(driver.CMEstablished)
			} else {
				c = startChild(t, role, netip.AddrPort{})
				e = dialData(t, unbuilt(t, netip.MustParseAddrPort(c.said())))
				e.takeHello(e.next(driver.CMEstablished).Param.PrivateData)
			}
			q := e.qp.(*qp)
			require.Nil(t, q.peer.door.local.Load())
			require.False(t, q.in.Local)
			claims := &peer{qpn: q.num, door: &doorbell{}} // to be one of ours
			claims.findLocal(q.ctx, q.link.rx)
			require.Nil(t, claims.door.local.Load())
			require.False(t, claims.local)
			require.NoError(t, e.exchange(processMessages))
			require.NoError(t, e.Disconnect())
			c.wait()
		})
	}
}

// TestPeerOfSharedListener: the kernel names the last process that has called listen(2) on the socket of
// listeners that share an address, though another accepts.
func TestPeerOfSharedListener(t *testing.T) {
	noLeaks(t)
	c := startChild(t, "listen shared", netip.AddrPort{})
	addr := netip.MustParseAddrPort(c.said())
	own := newTestID(t, driver.CMOptions{ReusePort: true})
	require.NoError(t, own.BindAddr(addr))
	require.NoError(t, own.Listen(4))
	require.NoError(t, own.Close())

	e := dialData(t, unbuilt(t, addr))
	e.next(driver.CMEstablished)
	q := e.qp.(*qp)
	pid, _, err := q.link.rx.PeerCred()
	require.NoError(t, err)
	require.EqualValues(t, os.Getpid(), pid)
	require.False(t, q.in.Local)
	require.Nil(t, q.peer.door.local.Load())
	require.NoError(t, e.Disconnect())
	c.wait()
}

// TestListenerWithoutProc: a listener whose process cannot check what dialers offer refuses them, and says
// why. Dialers would dial one that is short of something again until their time is up.
func TestListenerWithoutProc(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a mount namespace")
	}
	noLeaks(t)
	c := startChildWith(t, "listen without proc", netip.AddrPort{}, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS})
	ev := dialData(t, unbuilt(t, netip.MustParseAddrPort(c.said()))).next(driver.CMRejected)
	require.Equal(t, driver.RejectNone, ev.Reason)
	require.ErrorIs(t, ev.Err, syscall.ECONNREFUSED)
	require.Regexp(t, `^the listener failed: "readlink /proc/self/fd/[0-9]+: no such file or directory \(mount -t proc proc /proc\)"$`, ev.Err.Error())
	c.wait()
}

func TestProcessIsKilled(t *testing.T) {
	noLeaks(t)
	c := startChild(t, "listen and hang", netip.AddrPort{})
	addr := netip.MustParseAddrPort(c.said())
	e := dialData(t, unbuilt(t, addr))
	e.next(driver.CMEstablished)
	waiting := dialTo(t, addr)
	require.Equal(t, "waiting", c.said())

	c.kill()
	require.ErrorIs(t, e.next(driver.CMDisconnected).Err, verbs.ErrPeerGone)
	require.ErrorIs(t, waiting.next(driver.CMUnreachable).Err, verbs.ErrPeerGone)
	require.Equal(t, verbs.QPErr, e.qp.State())

	// Nothing of its address is left.
	again := newTestID(t, driver.CMOptions{})
	require.NoError(t, again.BindAddr(addr))
}

func TestListenersOfTwoProcesses(t *testing.T) {
	noLeaks(t)
	c := startChild(t, "listen", netip.AddrPort{})
	addr := netip.MustParseAddrPort(c.said())
	for _, a := range []netip.Addr{addr.Addr(), netip.IPv6Unspecified()} {
		err := newTestID(t, driver.CMOptions{}).BindAddr(netip.AddrPortFrom(a, addr.Port()))
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	}
	require.NoError(t, newTestID(t, driver.CMOptions{}).BindAddr(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), addr.Port())))
}

// TestNetworkNamespace checks that addresses reach no further than their network
// namespace, as those of TCP do.
func TestNetworkNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a network namespace")
	}
	noLeaks(t)
	l := listenAt(t, "0.0.0.0:0", 4, driver.CMOptions{})
	addr := netip.AddrPortFrom(localhost0.Addr(), l.LocalAddr().Port())
	startChildWith(t, "another namespace", addr, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}).wait()
	l.nothing()
	honest(t, l)
}
