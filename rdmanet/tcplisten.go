package rdmanet

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"
)

// portTries bounds how often the system chooses a port of TCP that is then taken on an RDMA
// device, or one of iWARP that TCP has.
const portTries = 16

// tcpSide is the half of a Listener that takes TCP clients; nil on networks of RDMA alone.
type tcpSide struct {
	listener *net.TCPListener
	// queue is where a client meets an Accept. It holds nobody: the kernel's backlog does.
	queue chan acceptedTCP
	// left has who was between the two when a listener that shares its address closed.
	left chan *net.TCPConn

	// To be set on who comes, where the socket that listens does not do it: nil and 0.
	keepAlive *net.KeepAliveConfig
	tos       uint8
}

func newTCPSide(l *net.TCPListener) *tcpSide {
	return &tcpSide{listener: l, queue: make(chan acceptedTCP), left: make(chan *net.TCPConn, 1)}
}

type acceptedTCP struct {
	conn *net.TCPConn
	err  error
}

// sharePatience is for how long Listen tries again to share an address of which somebody has the port of TCP
// alone, and sharePause the longest pause between.
const (
	sharePatience = time.Second
	sharePause    = 2 * time.Millisecond
)

// listenBoth listens on a network of TCP. Who shares the address may come or leave at that moment, and has
// its port of TCP and not that of RDMA then.
func (lc *ListenConfig) listenBoth(ctx context.Context, network, address string, s sizes) (*Listener, error) {
	for began := time.Now(); ; {
		l, err := lc.tryBoth(ctx, network, address, s)
		var half *halfShared
		if !errors.As(err, &half) {
			return l, err
		}
		if time.Since(began) > sharePatience {
			return nil, half.error
		}
		time.Sleep(rand.N(sharePause)) // at random: two that come at once are in each other's way
	}
}

// halfShared is why an address cannot be shared of which somebody has the port of TCP alone.
type halfShared struct{ error }

// tryBoth is listenBoth without trying again. Package net judges the address, and its errors are the errors.
func (lc *ListenConfig) tryBoth(ctx context.Context, network, address string, s sizes) (*Listener, error) {
	for try := 1; ; try++ {
		l := newListener(network, s, lc)
		nl, err := lc.forTCP().Listen(ctx, network, address)
		if lc.ReusePort && errors.Is(err, syscall.EADDRINUSE) {
			if l, err = lc.join(ctx, network, address, s, err); err == nil {
				l.start()
			}
			return l, err
		}
		if err != nil {
			return nil, err
		}
		l.tcp = newTCPSide(nl.(*net.TCPListener))
		l.addr = nl.Addr().(*net.TCPAddr)
		err = l.listenRDMA(lc, l.addr.AddrPort(), l.tcp.listener)
		inUse := errors.Is(err, syscall.EADDRINUSE)
		switch {
		case inUse && anyPort(address) && try < portTries:
			_ = nl.Close()
			continue
		case err != nil && (inUse || lc.RequireRDMA || lc.ReusePort):
			_ = nl.Close()
			return nil, opError(opListen, network, nil, l.addr, err)
		case err != nil:
			l.fallBack(err)
		default:
			l.tellLeftOut()
		}
		l.start()
		return l, nil
	}
}

func (l *Listener) start() {
	l.serving.Go(l.acceptTCP)
	live.addListener(l)
}

func (lc *ListenConfig) forTCP() *net.ListenConfig {
	return &net.ListenConfig{Control: controlTOS(lc.TOS, lc.Control), KeepAlive: lc.KeepAlive, KeepAliveConfig: lc.KeepAliveConfig}
}

// anyPort reports whether a good address leaves the port to the system.
func anyPort(address string) bool {
	_, port, _ := net.SplitHostPort(address)
	n, err := strconv.Atoi(port)
	return port == "" || err == nil && n == 0
}

// fallBack makes known that the listener does without RDMA from now on, once: a device that is removed while
// Listen is at it says so by an event and by the error.
func (l *Listener) fallBack(err error) {
	l.fellBack.Do(func() { // whoever is the second waits until it is told
		e := &FallbackError{Op: opListen, Network: l.network, Addr: l.addr, Reason: reasonOf(err), Err: err}
		l.mu.Lock()
		l.fallback = e
		l.mu.Unlock()
		e.report(l.logger, l.onFallback)
	})
}

// tellLeftOut makes known which devices do not serve the listener although they have its
// address, while others do.
func (l *Listener) tellLeftOut() {
	if err := l.id.LeftOut(); err != nil {
		l.logger.Info("rdmanet: device left out of a network of TCP", "listener", l.addr, "network", l.network, "err", err)
	}
}

// Fallback returns why a listener on a network "tcp", "tcp4" or "tcp6" takes no clients
// by RDMA, or nil if it does.
func (l *Listener) Fallback() *FallbackError {
	if !l.ok() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fallback
}

// acceptTCP brings TCP clients to Accept, one at a time. What is wrong with a socket's
// accept, as a lack of descriptors, is for Accept to say, as package net does.
func (l *Listener) acceptTCP() {
	for {
		c, err := l.tcp.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && l.tcp.keepAlive != nil {
			_ = c.SetKeepAliveConfig(*l.tcp.keepAlive) // as package net, which ignores it as well
		}
		if err == nil && l.tcp.tos != 0 {
			_ = setTOS(c, l.tcp.tos)
		}
		select {
		case l.tcp.queue <- acceptedTCP{c, err}:
		case <-l.ctx.Done():
			switch {
			case err != nil:
			case l.reusePort:
				l.tcp.left <- c
			default:
				reset(c)
			}
			return
		}
	}
}
