package rdmanet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/rdmanet/internal/dialtrace"
)

// Dial connects to address on network "rdma", "rdma4" or "rdma6", or on "tcp", "tcp4"
// or "tcp6". Addresses are written as for package net: "host:port", with names of hosts
// and services. The connection is a *Conn, or on the networks of TCP, where RDMA does
// not get there, a *net.TCPConn; the caller must Close it.
func Dial(network, address string) (net.Conn, error) {
	return new(Dialer).Dial(network, address)
}

// DialTimeout is Dial that gives up after timeout, name resolution included; 0 means about two minutes, as
// of Dialer.Timeout.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	d := Dialer{Timeout: timeout}
	return d.Dial(network, address)
}

// A Dialer has the settings of Dial. The zero value is ready to use. It may be
// used by several goroutines at once while nobody changes it.
type Dialer struct {
	// Timeout is how long a dial takes at most, Deadline when it gives up; the
	// earlier counts. Zero means about two minutes, as the system has for TCP.
	Timeout  time.Duration
	Deadline time.Time

	// LocalAddr is the local address to use, a *net.TCPAddr; nil chooses one.
	LocalAddr net.Addr

	// KeepAlive and KeepAliveConfig are as in net.Dialer, with the meanings and the
	// defaults of Conn.SetKeepAliveConfig: KeepAlive is the Idle of a connection
	// without a KeepAliveConfig, and below 0 there is no keepalive. As with package net, what those
	// would refuse changes nothing and is no error. On TCP the defaults are those of package net.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	// Resolver looks names up; nil means net.DefaultResolver.
	Resolver *net.Resolver

	// Device is the RDMA device to use, as "soft0"; "" means what the environment
	// variable RDMANET_DEVICE says, or else the best device for the address. "none", here
	// or there, is to use no RDMA: networks of TCP do without, others fail with
	// ErrNoDevice. RDMANET_DEVICE=none is above what a Device says.
	Device string

	// ReadBuffer is the size of the receive ring in bytes at first, MaxReadBuffer
	// what it may grow to: each from 4 KiB to 64 MiB, the package's constants, rounded
	// up to a power of two. No ring starts above 256 KiB. Zeros mean the defaults; with only
	// one of them given, ReadBuffer is also the bound, or the bound limits ReadBuffer.
	ReadBuffer    int
	MaxReadBuffer int

	// TOS is the type of service of the connection's packets: 0 to 255, the DSCP in the
	// upper six bits (104 is DSCP 26), ECN in the lower two, which TCP ignores; 0 leaves
	// it to the system. Networks put traffic into classes by it, and lossless RoCE has
	// one of its own. On RDMA it is the traffic class of RoCE v2 and of InfiniBand's GRH,
	// whose service level the subnet manager chooses by it; the listener's end has the
	// same unless ListenConfig.TOS says otherwise. On TCP it is IP_TOS or IPV6_TCLASS of
	// the dialer's socket. On the software device it changes nothing.
	TOS uint8

	// AckTimeout is how long this end's device waits for the peer's to acknowledge what
	// it sent, before it sends that again: 4.096 us times a power of two, 2 to 2^31,
	// rounded up; 0 means DefaultAckTimeout. Retries is how often it is sent again, 1 to
	// 7, and below 0 not at all; 0 means DefaultRetries. The listener's end does it as
	// often unless ListenConfig.Retries says otherwise.
	//
	// AckTimeout x (Retries + 1) after it sent something a device gives a silent peer up
	// and calls fail with ErrPeerGone: 268 ms x 8 = 2.1 s by default. A device may wait
	// four times as long (IBA 9.7.6.1.3), or have a shortest time of its own. Outages
	// that are shorter go by unnoticed, so less than a fabric needs to find another way
	// cuts connections. iWARP and TCP do as the system's TCP does; on the software device
	// nothing is ever lost. Linux before 5.1 has an AckTimeout of its own choice, and
	// soft-RoCE makes six of seven Retries, which would never end there.
	AckTimeout time.Duration
	Retries    int

	// Checksum has both ends compare a CRC-32C of all bytes that are read with that of
	// the bytes that were written: an end that finds a difference breaks the connection
	// off, and calls at both ends fail with ErrChecksum. Either end can ask for it. A
	// dial with Checksum does not return a connection without: where the peer is too old
	// it fails with ErrNoChecksum, and on a network of TCP it does not fall back.
	Checksum bool

	// NoLink gives the connection a lane of its own: a QP, completion queues and memory that
	// it shares with no other. The lane comes up for it, no other dial goes by it, and it is
	// closed as soon as the connection has ended at both ends. Otherwise connections to one
	// listener share lanes. NoLink is for a bulk transfer beside which echoes must not wait,
	// and for a connection that must not end when a lane of others does. It costs each dial
	// a handshake of the connection manager, and each end a QP and some hundred KiB, so it
	// is not for many connections, nor for short ones. Accept may return the connection
	// sooner or later than those that were dialled before and after it. On TCP it has no
	// meaning.
	NoLink bool

	// AnyUser allows connecting to a process of another user over the software device,
	// which shares memory with it. By default only processes of the same user and of root
	// are allowed.
	AnyUser bool

	// Logger gets what goes wrong without an error being returned, and every fallback
	// to TCP: the first of the process for each reason at level info, the rest, and those that
	// are remembered, at level debug. nil means slog.Default(). Lines about a QP that
	// connections share go to that of the dial which it was made for.
	Logger *slog.Logger

	// RequireRDMA has a dial on a network of TCP fail where it would fall back.
	RequireRDMA bool

	// OnFallback, if it is not nil, is told why before a dial returns a *net.TCPConn. The dial
	// waits until it returns; dials of several goroutines call it at the same time.
	OnFallback func(*FallbackError)

	// RetryRDMA is how long a destination that could only be reached by TCP is dialled
	// without RDMA, by whatever Dialer of this process; 0 means DefaultRetryRDMA, and
	// below 0 every dial tries RDMA first and remembers nothing. That RDMA was slow is
	// remembered for a second at most. A dial that tries RDMA all the same, as on network
	// "rdma", and gets there ends the time.
	RetryRDMA time.Duration

	// Control is that of net.Dialer, for the sockets of TCP only.
	Control func(network, address string, c syscall.RawConn) error
}

// Dial is DialContext with context.Background().
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to address, giving up when ctx ends. If the host has
// several addresses they are tried in turn, each with its share of the time left;
// the error is that of the first. Errors are *net.OpError; errors.Is finds
// syscall.ECONNREFUSED, context.DeadlineExceeded, context.Canceled, ErrNoRoute,
// ErrNoDevice, cm.ErrVersion and the like. A dial that took too long is
// os.ErrDeadlineExceeded, too, unless looking up the name did.
//
// On the networks "tcp", "tcp4" and "tcp6" RDMA is tried first. TCP is tried as soon as
// that has failed, and otherwise beside it after a quarter of a second, in the manner
// of RFC 8305, or after two seconds to an address of this host; what is there first is
// returned. A server may accept the connection that was not, which ends at once. If that is a *net.TCPConn then
// OnFallback is told why, the Logger gets a line and the process counts it; if it is
// nothing the error is that of TCP.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	growDialStack()
	if ctx == nil {
		panic("nil context") // as net.Dialer does
	}
	ctx, task := traceDialling(ctx, network, address)
	defer task.end()
	if err := checkNetwork(network); err == nil && withTCP(network) && !d.RequireRDMA && !d.Checksum {
		conn, err := d.dialEither(ctx, network, address)
		if err != nil {
			live.dials.count(err)
		}
		return conn, err
	}
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		live.dials.count(err)
		return nil, err // not a typed nil
	}
	return conn, nil
}

// dial connects by RDMA.
func (d *Dialer) dial(ctx context.Context, network, address string) (*Conn, error) {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	p, err := d.plan(ctx, network, address)
	if err != nil {
		return nil, opError(opDial, network, nil, nil, err)
	}
	return d.dialRDMA(ctx, p)
}

// A dialPlan is a dial whose arguments were checked and whose names were looked up.
type dialPlan struct {
	network string
	sizes   sizes
	src     netip.AddrPort
	addrs   []netip.AddrPort // where to go, never empty

	failed map[netip.AddrPort]error // by RDMA, of those that were tried
}

func (d *Dialer) plan(ctx context.Context, network, address string) (*dialPlan, error) {
	if err := checkNetwork(network); err != nil {
		return nil, err
	}
	p := &dialPlan{network: network}
	var err error
	if p.sizes, err = newSizes(optionsOfDialer, d.ReadBuffer, d.MaxReadBuffer); err != nil {
		return nil, err
	}
	if p.sizes.path, err = d.pathOptions(); err != nil {
		return nil, err
	}
	p.sizes.checksum = d.Checksum
	noPort := false // is in LocalAddr
	if d.LocalAddr != nil {
		la, ok := d.LocalAddr.(*net.TCPAddr)
		if !ok {
			return nil, &net.AddrError{Err: "mismatched local address type", Addr: d.LocalAddr.String()}
		}
		if la != nil {
			noPort = la.Port != int(uint16(la.Port))
			if p.src = unmapped(la.AddrPort()); !p.src.Addr().IsValid() && len(la.IP) > 0 {
				return nil, &net.AddrError{Err: "no suitable address found", Addr: la.String()}
			}
		}
	}
	if address == "" {
		return nil, errMissingAddress
	}
	if p.addrs, err = resolve(dialtrace.Lookup(ctx), d.Resolver, network, address, anyToDial(network)); err != nil {
		return nil, err
	}
	if p.addrs = reachableFrom(network, p.src, p.addrs); len(p.addrs) == 0 {
		return nil, &net.AddrError{Err: "no suitable address found", Addr: d.LocalAddr.String()}
	}
	p.addrs = loopbacks(p.src.Addr(), p.addrs)
	if noPort { // as package net has it from its bind, which comes last
		return nil, opError(opDial, network, d.LocalAddr, tcpAddr(p.addrs[0]), os.NewSyscallError("bind", syscall.EINVAL))
	}
	return p, nil
}

// dialRDMA tries the addresses in turn.
func (d *Dialer) dialRDMA(ctx context.Context, p *dialPlan) (*Conn, error) {
	return inTurn(ctx, p.addrs, func(ctx context.Context, dst netip.AddrPort) (*Conn, error) {
		conn, err := dialtrace.Connect(ctx, p.network, dst, func() (*Conn, error) {
			c, err := d.dialAddr(ctx, p.network, p.src, dst, p.sizes)
			return c, opError(opDial, p.network, d.LocalAddr, tcpAddr(dst), err)
		})
		if err != nil {
			if p.failed == nil {
				p.failed = map[netip.AddrPort]error{}
			}
			p.failed[dst] = err
			return nil, err
		}
		unreached.forget(d.destination(p.src, dst))
		return conn, nil
	})
}

// inTurn dials one address after the other, each within its share of the time that is
// left. The error is that of the first.
func inTurn[C any](ctx context.Context, addrs []netip.AddrPort, dial func(context.Context, netip.AddrPort) (C, error)) (conn C, first error) {
	for i, dst := range addrs {
		c, err := withShare(ctx, len(addrs)-i, func(ctx context.Context) (C, error) { return dial(ctx, dst) })
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return conn, first
}

// withShare gives a dial its share of the time that is left for so many.
func withShare[C any](ctx context.Context, left int, dial func(context.Context) (C, error)) (C, error) {
	if at, ok := ctx.Deadline(); ok && left > 1 {
		share := max(time.Until(at)/time.Duration(left), min(2*time.Second, time.Until(at)))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	return dial(ctx)
}

// bound applies Timeout and Deadline to ctx.
func (d *Dialer) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	at := d.Deadline
	if d.Timeout != 0 {
		if t := time.Now().Add(d.Timeout); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if at.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, at)
}

// dialOnce makes one attempt.
func (d *Dialer) dialOnce(ctx context.Context, network string, src, dst netip.AddrPort, s sizes) (_ *Conn, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := switchedOff(d.Device); err != nil {
		return nil, err
	}
	if dst.Port() == 0 {
		return nil, os.NewSyscallError("connect", newConnError(syscall.ECONNREFUSED, errPortZero))
	}
	if src, err = sourceFor(network, src, dst); err != nil {
		return nil, err
	}
	return d.dialOnLink(ctx, network, src, dst, s)
}

var (
	errMissingAddress = errors.New("missing address")
	errPortZero       = errors.New("nobody can listen on port 0")
)

// dialCause gives a failed dial the cause that programs look for.
func dialCause(ctx context.Context, err error) error {
	call := "connect"
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var address *link.AddressError
	if errors.As(err, &address) {
		call, err = "bind", address.Err
	}
	var rejected *cm.RejectedError
	errno, failed := addressErrno(err)
	switch {
	case errors.As(err, &rejected) && rejected.Refusal() == nil && !rejected.Timeout():
		return os.NewSyscallError("connect", newConnError(syscall.ECONNREFUSED, err))
	case failed:
		return os.NewSyscallError(call, newConnError(errno, err))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.DeadlineExceeded
	case errors.Is(err, ErrPeerGone):
		return os.NewSyscallError("connect", newConnError(syscall.ECONNRESET, err))
	}
	return err
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func loggerOr(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.Default()
	}
	return l
}
