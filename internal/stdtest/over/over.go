// Package over stands in for package net's TCP in tests of the standard library:
// their binaries are linked with it, and what they dial and listen on is rdmanet's.
// Command stdtest does the linking.
package over

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// Environment variables that stdtest sets for a test binary.
const (
	// EnvNetwork is what takes the place of "tcp" in the name of a network: "rdma" by
	// default. It cannot be "tcp": rdmanet asks package net for these itself.
	EnvNetwork = "RDMANET_STDTEST_NETWORK"

	// EnvEvents is a file that gets a line for each connection that was dialled by RDMA,
	// and for each listener.
	EnvEvents = "RDMANET_STDTEST_EVENTS"
)

// errNoSocket is the error of settings that are about a socket. Ignoring them would
// make tests pass that test nothing.
var errNoSocket = errors.New("stdtest: there is no socket to control")

// Dial is the DialContext of a net.Dialer, over rdmanet.
func Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	if d.Control != nil || d.ControlContext != nil {
		return nil, errNoSocket
	}
	ctx, stop := canceledBy(ctx, d.Cancel) //lint:ignore SA1019 tests of package net set it
	defer stop()
	as := rdmanet.Dialer{
		Timeout: d.Timeout, Deadline: d.Deadline, LocalAddr: d.LocalAddr, Resolver: d.Resolver,
		KeepAlive: d.KeepAlive, KeepAliveConfig: d.KeepAliveConfig,
	}
	c, err := as.DialContext(ctx, instead(network), address)
	if _, ok := c.(*rdmanet.Conn); ok { // and not one that fell back to TCP
		record(dialled)
	}
	return c, err
}

// canceledBy is ctx that a net.Dialer's Cancel ends too, until stop is called.
func canceledBy(ctx context.Context, cancel <-chan struct{}) (_ context.Context, stop func()) {
	ctx, stop = context.WithCancel(ctx)
	if cancel != nil {
		go func() {
			select {
			case <-cancel:
				stop()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, stop
}

// Listen is the Listen of a net.ListenConfig, over rdmanet.
func Listen(ctx context.Context, lc *net.ListenConfig, network, address string) (net.Listener, error) {
	if lc.Control != nil {
		return nil, errNoSocket
	}
	as := rdmanet.ListenConfig{KeepAlive: lc.KeepAlive, KeepAliveConfig: lc.KeepAliveConfig}
	l, err := as.Listen(ctx, instead(network), address)
	if err == nil {
		record(listened)
	}
	return l, err
}

// instead is the network that takes the place of a TCP network.
func instead(network string) string {
	return over + strings.TrimPrefix(network, "tcp")
}
