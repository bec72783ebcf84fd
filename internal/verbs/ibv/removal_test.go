//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// run runs a command of iproute2.
func run(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// shortLived makes a soft-RoCE device of the test's own, which the test may remove.
func shortLived(t *testing.T) (name string, addr netip.Addr) {
	t.Helper()
	needDevice(t)
	if os.Getenv(requireRDMA) == "" {
		t.Skipf("the test makes and removes network devices; set %s=1 on a machine made for it", requireRDMA)
	}
	run(t, "ip link add rdmatest0 type veth peer name rdmatest1")
	t.Cleanup(func() { run(t, "ip link del rdmatest0") })
	run(t, "ip link set rdmatest0 up")
	run(t, "ip link set rdmatest1 up")
	run(t, "ip addr add 198.18.0.1/24 dev rdmatest0")
	run(t, "rdma link add rxegone type rxe netdev rdmatest0")
	t.Cleanup(func() { _ = exec.Command("rdma", "link", "del", "rxegone").Run() })
	require.Eventually(t, func() bool {
		_, err := findDevice("rxegone")
		return err == nil
	}, 30*time.Second, 100*time.Millisecond)
	return "rxegone", netip.MustParseAddr("198.18.0.1")
}

// removalAddr tells the child of TestDeviceRemoval where its device is.
const removalAddr = "IBV_TEST_REMOVAL_ADDR"

// A device that is removed under a connection tells the ids, and what was made on
// it can be closed. soft-RoCE is gone only when every process has closed it, which
// librdmacm does at exit; so a process of its own has the connection.
func TestDeviceRemoval(t *testing.T) {
	if addr := os.Getenv(removalAddr); addr != "" {
		loseDevice(t, netip.MustParseAddr(addr))
		return
	}
	name, addr := shortLived(t)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDeviceRemoval$", "-test.v")
	child.Env = append(os.Environ(), removalAddr+"="+addr.String(), testDevice+"="+name)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var said strings.Builder
	lines := bufio.NewScanner(out)
	removed := make(chan error, 1)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if lines.Text() == connectedLine {
			go func() { removed <- exec.CommandContext(ctx, "rdma", "link", "del", name).Run() }()
		}
	}
	require.NoError(t, child.Wait(), "%s", &said)
	select {
	case err := <-removed:
		require.NoError(t, err)
	case <-ctx.Done():
		t.Fatal("the device is still in use")
	}
	// The name serves again, with a device that has nothing to do with the former.
	run(t, "rdma link add "+name+" type rxe netdev rdmatest0")
}

const connectedLine = "connected"

// loseDevice connects and waits for the device to go away.
func loseDevice(t *testing.T, addr netip.Addr) {
	l, c := newTestID(t, driver.CMOptions{}), newTestID(t, driver.CMOptions{})
	require.NoError(t, l.BindAddr(netip.AddrPortFrom(addr, 0)))
	require.NoError(t, l.Listen(4))
	c.resolve(l.LocalAddr())
	closeClient := c.qpToClose()
	require.NoError(t, c.Connect(nil, 5*time.Second))
	s := l.adopt(l.next(driver.CMConnectRequest).ID)
	closeServer := s.qpToClose()
	require.NoError(t, s.Accept(nil))
	c.next(driver.CMEstablished)
	s.next(driver.CMEstablished)
	fmt.Println(connectedLine)
	for _, x := range []*testID{c, s} {
		ev := <-x.events
		if ev.Type == driver.CMDisconnected { // the kernel has removed the other id first
			ev = x.next(driver.CMDeviceRemoval)
		}
		assert.Equal(t, driver.CMDeviceRemoval, ev.Type)
		assert.ErrorIs(t, ev.Err, verbs.ErrNoDevice)
	}
	assert.ErrorIs(t, c.Disconnect(), verbs.ErrState)
	closeClient()
	closeServer()
	for _, x := range []*testID{c, s, l} {
		assert.NoError(t, x.Close())
	}
}

// A device that breaks down says so by an asynchronous event, which no id hears of
// from the kernel.
func TestDeviceFatal(t *testing.T) {
	l, c, other := newTestID(t, driver.CMOptions{}), newTestID(t, driver.CMOptions{}), newTestID(t, driver.CMOptions{})
	c.resolve(l.listen(4))
	closeClient := c.qpToClose()
	defer closeClient()
	require.NoError(t, c.Connect(nil, 5*time.Second))
	s := l.adopt(l.next(driver.CMConnectRequest).ID)
	closeServer := s.qpToClose()
	defer closeServer()
	require.NoError(t, s.Accept(nil))
	c.next(driver.CMEstablished)
	s.next(driver.CMEstablished)

	ctx := c.Verbs().(*devContext)
	for range 2 { // the kernel may remove the device next
		require.True(t, ctx.async.handle(&cAsyncEvent{eventType: uint32(verbs.EventDeviceFatal)}))
		ctx.lost()
	}
	for _, x := range []*testID{c, s, l} {
		assert.ErrorIs(t, x.next(driver.CMDeviceRemoval).Err, verbs.ErrNoDevice)
		assert.Empty(t, x.events, "once")
	}
	assert.Empty(t, other.events, "an id that is on no device")
	ev, err := ctx.AsyncEvent(t.Context())
	require.NoError(t, err)
	assert.Equal(t, verbs.EventDeviceFatal, ev.Type)
	// Closing the last id may free the library's context: nothing reads from it any more.
	select {
	case <-ctx.async.done:
	default:
		t.Error("the context's events are still read")
	}
	other.listen(1)
	assert.NotSame(t, ctx, other.Verbs(), "the next id has a context of its own")
}

// qpToClose makes a QP on the id and returns what closes it with all it needs,
// whatever the device says.
func (x *testID) qpToClose() func() {
	x.t.Helper()
	ctx := x.Verbs()
	pd, err := ctx.AllocPD()
	require.NoError(x.t, err)
	cq, err := ctx.CreateCQ(32, nil)
	require.NoError(x.t, err)
	qp, err := x.CreateQP(pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	require.NoError(x.t, err)
	return func() {
		_ = qp.Close()
		_ = cq.Close()
		_ = pd.Close()
	}
}
