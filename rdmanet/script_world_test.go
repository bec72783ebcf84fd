package rdmanet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A transport is what a script runs over.
type transport interface {
	name() string
	network(suffix string) string
	dial(ctx context.Context, how dialHow, network, address string) (net.Conn, error)
	listen(network, address string) (net.Listener, error)
}

// dialHow are the settings of a dialer that the transports share.
type dialHow struct {
	timeout   time.Duration
	deadline  time.Time
	localAddr net.Addr
}

type overTCP struct{}

func (overTCP) name() string                 { return "tcp" }
func (overTCP) network(suffix string) string { return "tcp" + suffix }

func (overTCP) dial(ctx context.Context, how dialHow, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: how.timeout, Deadline: how.deadline, LocalAddr: how.localAddr}
	return d.DialContext(ctx, network, address)
}

func (overTCP) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return closingListener{l.(*net.TCPListener)}, nil
}

// A closingListener ends the listening with Close, as those of the software device do.
type closingListener struct{ *net.TCPListener }

func (l closingListener) Close() error { return closeListener(l.TCPListener) }

type overRDMA struct{ flavour flavour }

func (r overRDMA) name() string               { return "rdma " + r.flavour.name }
func (overRDMA) network(suffix string) string { return "rdma" + suffix }

func (r overRDMA) dial(ctx context.Context, how dialHow, network, address string) (net.Conn, error) {
	d := r.flavour.dialer
	d.Timeout, d.Deadline, d.LocalAddr = how.timeout, how.deadline, how.localAddr
	return d.DialContext(ctx, network, address)
}

func (r overRDMA) listen(network, address string) (net.Listener, error) {
	return r.flavour.listen.Listen(context.Background(), network, address)
}

// overBoth is the networks of TCP as rdmanet has them.
type overBoth struct {
	kind   string
	dialer Dialer
	lc     ListenConfig
}

func (b overBoth) name() string               { return "tcp by " + b.kind }
func (overBoth) network(suffix string) string { return "tcp" + suffix }

func (b overBoth) dial(ctx context.Context, how dialHow, network, address string) (net.Conn, error) {
	d := b.dialer
	d.Timeout, d.Deadline, d.LocalAddr = how.timeout, how.deadline, how.localAddr
	return d.DialContext(ctx, network, address)
}

func (b overBoth) listen(network, address string) (net.Listener, error) {
	return b.lc.Listen(context.Background(), network, address)
}

// A world is what a run of a script has made so far.
type world struct {
	t     *testing.T
	tr    transport
	place *strings.Replacer

	mu        sync.Mutex
	conns     map[string]net.Conn
	listeners map[string]net.Listener
	addrs     map[string]string // of listeners, also of closed ones
	counts    map[string]int64

	starting   int             // steps that will be in the background
	background map[string]bool // and those that are, by their goroutines

	timed time.Time // when a deadline in the future was set last
	void  bool      // the script is to be run again, for what the last step has found
}

func newWorld(t *testing.T, tr transport) *world {
	return &world{
		t: t, tr: tr, place: testPlace(t),
		conns: map[string]net.Conn{}, listeners: map[string]net.Listener{},
		addrs: map[string]string{}, counts: map[string]int64{}, background: map[string]bool{},
	}
}

// testPlace puts the addresses of the device under test where scripts have those of
// the loopback device, which RDMA devices do without. The host must have as many.
func testPlace(t *testing.T) *strings.Replacer {
	at := netip.MustParseAddrPort(testAddr()).Addr()
	if at.IsLoopback() {
		return strings.NewReplacer()
	}
	const hostVar = "RDMANET_TEST_HOST"
	name := os.Getenv(hostVar)
	found, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip6", name)
	require.NoError(t, err, "%s must name the device's addresses, one of them IPv6", hostVar)
	v4 := at.String()
	return strings.NewReplacer("localhost", name, "[::1]", "["+found[0].String()+"]",
		"127.0.0.", v4[:strings.LastIndexByte(v4, '.')+1])
}

func (w *world) conn(name string) net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conns[name]
}

func (w *world) listener(name string) net.Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listeners[name]
}

// add takes a connection in under a name, if there is one.
func (w *world) add(name string, c net.Conn, err error) error {
	if err == nil {
		w.mu.Lock()
		w.conns[name] = c
		w.mu.Unlock()
	}
	return err
}

// close ends all that the script left open.
func (w *world) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	for _, l := range w.listeners {
		_ = l.Close()
	}
}
