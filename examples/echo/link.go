package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/child"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

// A server is a process of this host that echoes on one network.
type server struct {
	*child.Process
	remove func()
}

// startServer starts this program again as a server. The caller must call stop.
func startServer(ctx context.Context, c endpoint.Config) (*server, error) {
	local, remove, err := c.Local()
	if err != nil {
		return nil, err
	}
	process, err := child.Start(ctx, "-network", c.Network, "-device", c.Device, "-listen", local)
	if err != nil {
		remove()
		return nil, err
	}
	return &server{process, remove}, nil
}

// stop ends the server and reports a failure of its own.
func (s *server) stop() error {
	defer s.remove()
	return s.Stop()
}

// A link is a connection to a server, on one network.
type link struct {
	network string
	conn    net.Conn
	close   func() error
}

// dial connects to a server. What the connection waits for ends with ctx.
func dial(ctx context.Context, c endpoint.Config, address string) (*link, error) {
	conn, err := c.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	release := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return &link{c.Network, conn, func() error {
		release()
		return conn.Close()
	}}, nil
}

// kernelNetworks are what RDMA is compared with.
var kernelNetworks = []string{"kernel-tcp", "unix"}

// dialKernel starts a server on each of the kernel's networks and connects to it. One that
// is not to be had, as unix where there is no directory for temporary files, is left out,
// and why is said. The caller must call stop.
func dialKernel(ctx context.Context, opt options) (links []*link, stop func() error) {
	var stops []func() error
	for _, network := range kernelNetworks {
		c := endpoint.Config{Network: network, Timeout: opt.Timeout}
		s, err := startServer(ctx, c)
		var l *link
		if err == nil {
			stops = append(stops, s.stop)
			l, err = dial(ctx, c, s.Address())
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			fmt.Fprintf(opt.out, "%s is left out: %v\n", network, err)
			continue
		}
		stops = append(stops, l.close)
		links = append(links, l)
	}
	return links, func() (err error) {
		for i := len(stops) - 1; i >= 0; i-- {
			err = errors.Join(err, stops[i]())
		}
		return err
	}
}
