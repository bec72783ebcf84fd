package rdmanet

import (
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// roleVar names what a process does that a test started from this test binary.
const roleVar = "RDMANET_TEST_ROLE"

// roles are run by the re-executed test binary; the result is its exit status.
var roles = map[string]func() int{}

func runRole(name string) int {
	if f := roles[name]; f != nil {
		return f()
	}
	return 125
}

// testAddr is where tests listen. The test bed with the kernel's soft-RoCE sets it,
// together with RDMANET_DEVICE, to run the same tests on a real RDMA device.
func testAddr() string {
	if addr := os.Getenv("RDMANET_TEST_ADDR"); addr != "" {
		return addr
	}
	return loopbackAddr
}

// onSoftware has a test run on the software device also where another is tested: it is
// about what that can, or about an address that only that has.
func onSoftware(t *testing.T) {
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		t.Setenv("RDMANET_TEST_ADDR", "")
		t.Setenv("RDMANET_DEVICE", "soft0")
	}
}

// onTCPPorts has a test of the networks of TCP run on the software device where one of iWARP is
// tested, which is left out of them (verbs.ErrTCPPorts).
func onTCPPorts(t *testing.T) {
	t.Helper()
	if onIWARP(t) {
		onSoftware(t)
	}
}

// mostlyWaits has a test run at the same time as others that wait more than they work, after all
// that need the process for themselves. A device under test has them one by one, and so has who
// measures what they promise.
func mostlyWaits(t *testing.T) {
	if os.Getenv("RDMANET_TEST_ADDR") == "" && recordPromise == nil {
		t.Parallel()
	}
}

// onIWARP reports whether the device under test is one of iWARP.
func onIWARP(t *testing.T) bool {
	t.Helper()
	if os.Getenv("RDMANET_TEST_ADDR") == "" {
		return false
	}
	devices, err := Devices()
	require.NoError(t, err)
	return slices.ContainsFunc(devices, func(d Device) bool {
		return d.Name == cm.DefaultDevice() && d.Transport == verbs.TransportIWARP
	})
}

const loopbackAddr = "127.0.0.1:0"

// slowVar says how many times slower than a common host this one may be, as one that
// is emulated.
const slowVar = "RDMANET_TEST_SLOW"

// soon is how much time things have that are promised within a second: see promise.
// What has not happened after patience, or lasting where there is much to do, never will.
var (
	soon     = slowly(time.Second)
	patience = max(30*time.Second, slowly(5*time.Second))
	lasting  = slowly(time.Minute)
)

func slowly(d time.Duration) time.Duration {
	if n, err := strconv.Atoi(os.Getenv(slowVar)); err == nil {
		return time.Duration(n) * d
	}
	return d
}

// flavour is a way to run the same test: the sizes and devices that take
// different paths through the code.
type flavour struct {
	name   string
	dialer Dialer
	listen ListenConfig
}

func flavourName(fl flavour) string { return fl.name }

// faulty reports whether the connections are late: what takes many of them takes long.
func (fl flavour) faulty() bool { return deviceOr(fl.dialer.Device) == faulty0.Name() }

func flavours() []flavour {
	all := []flavour{
		{name: "default"},
		{name: "smallest", dialer: Dialer{ReadBuffer: MinReadBuffer}, listen: ListenConfig{ReadBuffer: MinReadBuffer}},
	}
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		return all // a real device: it is what it is
	}
	const iwarp = "soft0-iwarp"
	return append(all, []flavour{
		{name: "faulty", dialer: Dialer{Device: faulty0.Name()}, listen: ListenConfig{Device: faulty0.Name()}},
		{name: "iwarp", dialer: Dialer{Device: iwarp}, listen: ListenConfig{Device: iwarp}},
		{name: "asynchronous", dialer: Dialer{Device: asynchronous.Name()}, listen: ListenConfig{Device: asynchronous.Name()}},
		{name: "asynchronous-iwarp", dialer: Dialer{Device: asynchronousIWARP.Name()}, listen: ListenConfig{Device: asynchronousIWARP.Name()}},
	}...)
}

// eachFlavour runs f as a subtest in every flavour.
func eachFlavour(t *testing.T, f func(t *testing.T, fl flavour)) {
	for _, fl := range flavours() {
		t.Run(fl.name, func(t *testing.T) { f(t, fl) })
	}
}

// atOnce runs f for each way of doing something, as subtests at the same time: most of what
// they do is to wait. What f looks at must be its own.
func atOnce[W any](t *testing.T, ways []W, name func(W) string, f func(t *testing.T, way W)) {
	var all sync.WaitGroup
	for _, way := range ways {
		all.Go(func() { t.Run(name(way), func(t *testing.T) { f(t, way) }) })
	}
	all.Wait()
}

// dialPair makes the two ends of a connection.
func dialPair(d *Dialer, lc *ListenConfig) (client, server *Conn, err error) {
	l, err := lc.listen(context.Background(), "rdma", testAddr())
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if client, err = d.dial(context.Background(), "rdma", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if server, err = l.AcceptConn(); err != nil {
		client.Close()
		return nil, nil, err
	}
	return client, server, nil
}

// pair makes the two ends of a connection, closed when the test ends.
func (fl flavour) pair(t testing.TB) (client, server *Conn) {
	t.Helper()
	client, server, err := dialPair(&fl.dialer, &fl.listen)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, c := range []*Conn{client, server} {
			_ = c.Close()
		}
		for _, c := range []*Conn{client, server} { // so that the next test counts its own
			select {
			case <-c.done():
			case <-time.After(2 * defaultDrain):
				t.Error("a closed connection is not torn down")
			}
		}
	})
	return client, server
}

func pair(t testing.TB) (client, server *Conn) {
	t.Helper()
	return flavour{}.pair(t)
}

// listening returns a listener that stays until the test ends.
func listening(t *testing.T, lc *ListenConfig) *Listener {
	t.Helper()
	l, err := lc.listen(context.Background(), "rdma", loopbackAddr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// within fails the test if f hangs.
func within(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	// By ticks, so that the time in which all of the process is stopped does not count.
	const ticks = 100
	for range ticks {
		select {
		case <-done:
			return
		case <-time.After(d / ticks):
		}
	}
	t.Fatalf("%s did not return within %v", what, d)
}

// again repeats f until done, as calls that their deadline may end before they have come
// to anything.
func again(t testing.TB, what string, done func() bool, f func()) {
	t.Helper()
	for began := time.Now(); !done(); f() {
		require.Less(t, time.Since(began), patience, "%s comes to nothing", what)
	}
}

// readFull reads n bytes.
func readFull(t testing.TB, c io.Reader, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	return b
}
