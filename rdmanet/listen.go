package rdmanet

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
)

// DefaultBacklog is how many connections wait for Accept unless ListenConfig says otherwise.
const DefaultBacklog = 128

// DefaultHandshakeTimeout is how long a client may take to ask for its connection
// and to confirm it.
const DefaultHandshakeTimeout = 5 * time.Second

// Listen listens on address on network "rdma", "rdma4" or "rdma6". Addresses are
// written as for package net; an empty host, or a wildcard, listens on all local
// addresses, with "rdma" of both families; port 0 chooses a port, and so does an
// empty address. The listener is a
// *Listener; the caller must Close it.
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// A ListenConfig has the settings of Listen. The zero value is ready to use.
type ListenConfig struct {
	// KeepAlive, KeepAliveConfig, Device, ReadBuffer, MaxReadBuffer, RecvDepth and
	// Logger are those of Dialer, for accepted connections.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig
	Device          string
	ReadBuffer      int
	MaxReadBuffer   int
	RecvDepth       int
	Logger          *slog.Logger

	// AnyUser accepts processes of other users over the software device, which
	// shares memory with them. By default only one's own user and root.
	AnyUser bool

	// Backlog is how many connections may wait for Accept; 0 means
	// DefaultBacklog. Further clients wait in their Dial.
	Backlog int

	// HandshakeTimeout is how long a client may take to ask for its connection and
	// to confirm it; 0 means DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration

	asynchronous bool // see sizes
}

// Listen listens on address; ctx bounds the look-up of names only.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := lc.listen(ctx, network, address)
	if err != nil {
		return nil, err // not a typed nil
	}
	return l, nil
}

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (*Listener, error) {
	fail := func(at net.Addr, err error) error { return opError(opListen, network, nil, at, err) }
	if err := checkNetwork(network); err != nil {
		return nil, fail(nil, err)
	}
	s, err := newSizes(lc.ReadBuffer, lc.MaxReadBuffer, lc.RecvDepth)
	if err != nil {
		return nil, fail(nil, err)
	}
	s.asynchronous = lc.asynchronous
	if address == "" {
		address = ":0"
	}
	addrs, err := resolve(ctx, nil, network, address)
	if err != nil {
		return nil, fail(nil, err)
	}
	at := bindAddr(network, addrs)
	l := newListener(network, s, lc)
	opts := cm.Options{
		Device: deviceOr(lc.Device), AnyUser: lc.AnyUser, AFOnly: network != networkAny,
		HandshakeTimeout: l.handshakeTimeout, AckTimeout: ackTimeout,
	}
	if l.id, err = cm.NewHandlerChannel(l.event).CreateID(opts); err != nil {
		return nil, fail(tcpAddr(at), err)
	}
	if err := l.id.BindAddr(at); err != nil {
		_ = l.id.Close()
		return nil, fail(tcpAddr(at), bindCause("bind", err))
	}
	l.addr = net.TCPAddrFromAddrPort(l.id.LocalAddr())
	if err := l.id.Listen(cap(l.queue)); err != nil {
		_ = l.id.Close()
		return nil, fail(tcpAddr(at), bindCause("listen", err))
	}
	live.addListener(l)
	return l, nil
}

// bindAddr is the address to bind to, IPv4 if there is a choice. A wildcard without
// a family is both, as in package net.
func bindAddr(network string, addrs []netip.AddrPort) netip.AddrPort {
	a := addrs[max(slices.IndexFunc(addrs, func(a netip.AddrPort) bool { return a.Addr().Is4() }), 0)]
	if network == networkAny && a.Addr().IsUnspecified() {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), a.Port())
	}
	return a
}

// bindCause puts the errno that programs look for in front.
func bindCause(call string, err error) error {
	if errno, ok := addressErrno(err); ok {
		return os.NewSyscallError(call, newConnError(errno, err))
	}
	return err
}
