package rdmanet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link"
)

// DefaultHandshakeTimeout is how long a client may take to ask for its connection
// and to confirm it: 5 s.
const DefaultHandshakeTimeout = link.DefaultHandshakeTimeout

// Listen listens on address on network "rdma", "rdma4" or "rdma6", or on "tcp", "tcp4"
// or "tcp6", which takes clients by RDMA and by TCP on one port number. Addresses are
// written as for package net; an empty host, or a wildcard, listens on all local
// addresses, with "rdma" and "tcp" of both families; port 0 chooses a port, and so does
// an empty address. The listener is a *Listener; the caller must Close it.
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// A ListenConfig has the settings of Listen. The zero value is ready to use. It may be used by
// several goroutines at once while nobody changes it.
type ListenConfig struct {
	// KeepAlive, KeepAliveConfig, Device, ReadBuffer, MaxReadBuffer and
	// Logger are those of Dialer, for accepted connections.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig
	Device          string
	ReadBuffer      int
	MaxReadBuffer   int
	Logger          *slog.Logger

	// AnyUser accepts processes of other users over the software device, which
	// shares memory with them. By default only one's own user and root.
	AnyUser bool

	// TOS, AckTimeout and Retries are those of Dialer, for what accepted connections
	// send. Where TOS or Retries is 0, RDMA connections have their dialer's; the sockets
	// of TCP have the system's TOS.
	TOS        uint8
	AckTimeout time.Duration
	Retries    int

	// Checksum has all RDMA connections have the checksums of Dialer.Checksum, also those
	// of dialers that do not ask; one that is too old for them is refused. TCP clients
	// have none.
	Checksum bool

	// Backlog is how many connections may wait for Accept; 0 means DefaultBacklog(), the
	// system's net.core.somaxconn, which package net takes for TCP, and below 0 is an error.
	// More than 1,048,576 are as many.
	// Further clients wait in their Dial. Those of TCP are not among them: they have the system's.
	Backlog int

	// HandshakeTimeout is how long a client may take to ask for its connection and
	// to confirm it; 0 means DefaultHandshakeTimeout, and below 0 is an error.
	HandshakeTimeout time.Duration

	// RequireRDMA has Listen on a network of TCP fail where no RDMA device can listen on
	// the address, which otherwise takes clients by TCP alone, and Accept where the last
	// device is removed.
	RequireRDMA bool

	// OnFallback, if it is not nil, is told why a listener on a network of TCP does without
	// RDMA: before Listen returns, or when the last device is removed.
	OnFallback func(*FallbackError)

	// Control is that of net.ListenConfig, for the socket of TCP only.
	Control func(network, address string, c syscall.RawConn) error

	// ReusePort lets listeners that have it, in this process or in others of the same
	// user, listen on one address at the same time, so that a server can be replaced
	// without a client being refused: the next one listens, then the last one closes.
	// Clients come to any of them. After Close, Accept goes on to return connections
	// that stood before, and then net.ErrClosed; what nobody accepts in the time of
	// HandshakeTimeout is reset. It needs the software device, without which Listen fails on
	// networks of TCP as well; RDMA clients of other devices come to the listener that was
	// the first. That one's socket of TCP serves all: Control changes nothing about it for the
	// others, and their TOS 0 leaves what it has.
	ReusePort bool
}

// Listen listens on address; ctx bounds the look-up of names only. With ReusePort it tries for a second
// to share an address whose listener may be about to come or to leave. That the port is in
// use is an error whichever side it is on, RDMA's or TCP's. Errors are *net.OpError; errors.Is finds
// syscall.EADDRINUSE, syscall.EADDRNOTAVAIL, syscall.EACCES for a port below 1024, ErrNoDevice and
// ErrNoMemory.
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
	s, err := newSizes(optionsOfListen, lc.ReadBuffer, lc.MaxReadBuffer)
	if err != nil {
		return nil, fail(nil, err)
	}
	if s.path, err = lc.pathOptions(); err != nil {
		return nil, fail(nil, err)
	}
	if err := lc.checkBounds(); err != nil {
		return nil, fail(nil, err)
	}
	s.checksum = lc.Checksum
	if withTCP(network) {
		return lc.listenBoth(ctx, network, address, s)
	}
	if address == "" {
		address = ":0"
	}
	addrs, err := resolve(ctx, nil, network, address, anyToListen(network))
	if err != nil {
		return nil, fail(nil, err)
	}
	at := bindAddr(network, addrs)
	l := newListener(network, s, lc)
	if err := l.listenAlone(lc, at); err != nil {
		return nil, fail(tcpAddr(at), err)
	}
	live.addListener(l)
	return l, nil
}

// listenAlone begins to listen by RDMA only. On iWARP the system may choose a port that TCP
// has, which only the beginning finds out.
func (l *Listener) listenAlone(lc *ListenConfig, at netip.AddrPort) error {
	var err error
	for range portTries {
		if err = l.listenRDMA(lc, at, nil); at.Port() != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return err
}

// listenRDMA begins to listen on every device that has the address, or the one that
// was asked for; with tcp the address is shared together with that.
func (l *Listener) listenRDMA(lc *ListenConfig, at netip.AddrPort, tcp *net.TCPListener) error {
	if err := l.bindRDMA(lc, at); err != nil {
		return err
	}
	var err error
	if l.reusePort && tcp != nil {
		err = l.shareTCP(tcp)
	}
	if err == nil {
		err = l.startRDMA()
	}
	if err != nil {
		_ = l.links.Close()
		l.id, l.links = nil, nil
	}
	return err
}

// checkBounds checks the counts and times that no other option depends on.
func (lc *ListenConfig) checkBounds() error {
	switch {
	case lc.Backlog < 0:
		return invalid("%s.Backlog %d is out of bounds: choose 1 or more, or 0 for the system's", optionsOfListen, lc.Backlog)
	case lc.HandshakeTimeout < 0:
		return invalid("%s.HandshakeTimeout %v is out of bounds: choose more than 0, or 0 for %v", optionsOfListen, lc.HandshakeTimeout, DefaultHandshakeTimeout)
	}
	return nil
}

// bindRDMA makes the id of a listener and binds it.
func (l *Listener) bindRDMA(lc *ListenConfig, at netip.AddrPort) error {
	if err := switchedOff(lc.Device); err != nil {
		return err
	}
	options := cm.Options{
		Device: deviceOr(lc.Device), AnyUser: lc.AnyUser, AFOnly: ipVersion(l.network) != 0, ApartFromTCP: withTCP(l.network),
		HandshakeTimeout: l.handshakeTimeout, TOS: l.sizes.path.tos, AckTimeout: l.sizes.path.ackTimeout, ReusePort: l.reusePort,
		OnEvict: l.evicted,
	}
	if err := l.bindLinks(options, at); err != nil {
		return bindCause("bind", err)
	}
	l.addr = net.TCPAddrFromAddrPort(l.id.LocalAddr())
	return nil
}

// startRDMA begins to listen: events follow.
func (l *Listener) startRDMA() error {
	if err := l.links.Start(min(l.backlog, maxUnanswered)); err != nil {
		return bindCause("listen", err)
	}
	return nil
}

// bindAddr is the address to bind to, IPv4 if there is a choice. A wildcard without
// a family is both, as in package net.
func bindAddr(network string, addrs []netip.AddrPort) netip.AddrPort {
	a := addrs[max(slices.IndexFunc(addrs, func(a netip.AddrPort) bool { return a.Addr().Is4() }), 0)]
	if ipVersion(network) == 0 && a.Addr().IsUnspecified() {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), a.Port())
	}
	return a
}

// bindCause puts the errno that programs look for in front.
func bindCause(call string, err error) error {
	if errno, ok := addressErrno(err); ok {
		return os.NewSyscallError(call, newConnError(errno, err))
	}
	return plain(err)
}
