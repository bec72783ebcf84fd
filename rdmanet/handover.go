package rdmanet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A server hands its address over to the next one, which may be another process, by
// sharing it for a while: both listen with ReusePort, and then the first closes its
// Listener. On the software device the listening socket itself is shared, and that of
// TCP with it, so that nobody who waits there is lost. Whoever the first has taken from
// there is either told to dial again, where the handshake has not been answered, or
// comes to its Accept, even after Close.

// join listens on an address of TCP that another Listener shares; inUse is why it takes
// that.
func (lc *ListenConfig) join(ctx context.Context, network, address string, s sizes, inUse error) (*Listener, error) {
	addrs, err := resolve(ctx, nil, network, address, anyToListen(network))
	if err != nil {
		return nil, inUse
	}
	l, at := newListener(network, s, lc), bindAddr(network, addrs)
	if err := l.bindRDMA(lc, at); errors.Is(err, syscall.EADDRINUSE) {
		return nil, opError(opListen, network, nil, tcpAddr(at), err) // which says why it cannot be shared
	} else if err != nil {
		return nil, inUse
	}
	tcp, err := listenerOf(l.id.Companion())
	if err == nil && tcp == nil {
		_ = l.links.Close()
		return nil, &halfShared{inUse}
	}
	if err == nil {
		l.joinTCP(lc, tcp) // events, which follow, look at it
		err = l.shareTCP(tcp)
	}
	if err == nil {
		err = l.startRDMA()
	}
	if err != nil {
		_ = l.links.Close()
		if tcp != nil {
			_ = tcp.Close()
		}
		return nil, opError(opListen, network, nil, l.addr, err)
	}
	return l, nil
}

// joinTCP has the listener take TCP clients of a socket that another one shares.
func (l *Listener) joinTCP(lc *ListenConfig, tcp *net.TCPListener) {
	l.tcp = newTCPSide(tcp)
	// What a socket is accepted with is not part of the socket, or is what the first
	// listener has set.
	l.tcp.tos = lc.TOS
	l.tcp.keepAlive = &net.KeepAliveConfig{Enable: lc.KeepAlive >= 0, Idle: lc.KeepAlive}
	if lc.KeepAliveConfig.Enable {
		config := lc.KeepAliveConfig // the caller may change lc
		l.tcp.keepAlive = &config
	}
}

// listenerOf makes a listener of the descriptor that came with a shared address; nil if
// there is none, or it is not one of TCP.
func listenerOf(f *os.File) (*net.TCPListener, error) {
	if f == nil {
		return nil, nil
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, l.Close()
	}
	return tcp, nil
}

// shareTCP has the listening socket of TCP go with the address of RDMA.
func (l *Listener) shareTCP(tcp *net.TCPListener) error {
	f, err := tcp.File()
	if err != nil {
		return err
	}
	return l.id.SetCompanion(f)
}

// handOverPause is how long a dialer waits before it tries again a listener that is
// closing, at first, and handOverTries how often it does.
const (
	handOverPause = time.Millisecond
	handOverTries = 6
	// handOverPatience bounds when the last of them begins: who has the address then is
	// there at once. It may well have the dialer wait.
	handOverPatience = time.Second
)

// dialThrough dials one address, and again where a listener was closing: another may have
// its address. The error is that of the first attempt, unless somebody else was met.
func (d *Dialer) dialThrough(ctx context.Context, network string, src, dst netip.AddrPort, s sizes) (*Conn, error) {
	return throughHandOver(ctx, func() (*Conn, error) { return d.dialOnce(ctx, network, src, dst, s) })
}

func throughHandOver[C any](ctx context.Context, dial func() (C, error)) (C, error) {
	conn, first := dial()
	if first == nil || !closing(first) {
		return conn, first
	}
	var none C
	began, err := time.Now(), first
	for try, pause := 1, handOverPause; closing(err) && try < handOverTries && time.Since(began) < handOverPatience; try, pause = try+1, 2*pause {
		select {
		case <-time.After(pause):
			conn, err = dial()
		case <-ctx.Done():
			return none, first
		}
	}
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, verbs.ErrTryAgain), peerShort(err), ctx.Err() != nil:
		return none, err // of the next listener, which keeps it waiting
	}
	return none, first
}

// closing reports whether a dial failed because the listener was just closing, or its
// process ending. Nobody there has had a connection of it.
func closing(err error) bool {
	var rejected *cm.RejectedError
	if errors.Is(err, cm.ErrUnreachable) {
		return errors.Is(err, ErrPeerGone)
	}
	if !errors.As(err, &rejected) || rejected.Reason != cm.RejectConsumer {
		return false
	}
	if refusal := rejected.Refusal(); refusal != nil {
		return refusal.Code == cm.RefusedShutdown
	}
	return len(bytes.Trim(rejected.PrivateData, "\x00")) == 0 // an id that was closed
}

// drain ends a listener that shares its address. Connections that stand already come to
// Accept; in case nobody calls it, they are reset after a while.
func (l *Listener) drain() {
	l.serving.Wait()
	if l.tcp != nil {
		close(l.tcp.left)
	}
	time.AfterFunc(l.handshakeTimeout, l.resetWaiting)
}

// resetWaiting resets the connections that nobody accepted.
func (l *Listener) resetWaiting() {
	if l.links != nil {
		l.links.Abandon()
	}
	if l.tcp != nil && l.reusePort {
		for c := range l.tcp.left {
			reset(c)
		}
	}
}

// nextLeft returns the connections that a closed listener is left with, of either kind as they come: one
// must not wait until there are no more of the other, as those that nobody has accepted by then are reset.
func (l *Listener) nextLeft(tcp <-chan acceptedTCP) (*Conn, *net.TCPConn, error) {
	var left <-chan *net.TCPConn // closed when no more come
	if tcp != nil {
		left = l.tcp.left
	}
	var ended <-chan struct{} // when each dialer has said that it opens no more, or by Abandon
	if l.links != nil {
		ended = l.links.Ended()
	}
	for left != nil || ended != nil {
		if l.links != nil {
			l.links.Poll()
		}
		var last bool
		select {
		case c, open := <-left:
			if open {
				l.acceptedTCP.Add(1)
				return nil, c, nil
			}
			left = nil
			continue
		case <-l.arrivals():
		case <-ended:
			last = true
		}
		if c := l.take(); c != nil {
			l.accepted.Add(1)
			return c, nil, nil
		}
		if last {
			ended = nil
		}
	}
	return nil, nil, l.opError(opAccept, net.ErrClosed)
}
