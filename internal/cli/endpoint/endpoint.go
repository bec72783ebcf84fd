// Package endpoint opens the ends of a program's connection: by rdmanet on the
// networks that it knows, "rdma" and "tcp" with their versions of IP, and by package
// net on "kernel-tcp" and "unix", so that one program can be compared over all of
// them. "tcp" is RDMA where that gets there and otherwise TCP, "kernel-tcp" is always
// the kernel's socket.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// Networks names the networks, for -help and messages.
const Networks = "rdma, rdma4, rdma6, tcp, tcp4, tcp6, kernel-tcp, kernel-tcp4, kernel-tcp6 or unix"

// Config says how to connect.
type Config struct {
	// Network is one of Networks.
	Network string
	// Device names the RDMA device; empty means the best one for the route.
	Device string
	// Timeout bounds Dial; 0 means no bound but the system's.
	Timeout time.Duration
}

// Check reports settings that cannot work together.
func (c Config) Check() error {
	switch {
	case !c.RDMA() && c.kernel() == "":
		return fmt.Errorf("unknown network %q: use %s", c.Network, Networks)
	case c.Device != "" && !c.RDMA():
		return fmt.Errorf("device %q needs a network of rdma or tcp, not %q", c.Device, c.Network)
	}
	return nil
}

// Listen listens on address.
func (c Config) Listen(ctx context.Context, address string) (net.Listener, error) {
	if kernel := c.kernel(); kernel != "" {
		return new(net.ListenConfig).Listen(ctx, kernel, address)
	}
	lc := rdmanet.ListenConfig{Device: c.Device}
	return lc.Listen(ctx, c.Network, address)
}

// Dial connects to address.
func (c Config) Dial(ctx context.Context, address string) (net.Conn, error) {
	if kernel := c.kernel(); kernel != "" {
		d := net.Dialer{Timeout: c.Timeout}
		return d.DialContext(ctx, kernel, address)
	}
	d := rdmanet.Dialer{Device: c.Device, Timeout: c.Timeout}
	return d.DialContext(ctx, c.Network, address)
}

// Local returns an address of this host that a server can listen on, and a
// function that removes what was made for it. An RDMA device that is named, by Device
// or by RDMANET_DEVICE, need not have a loopback address: then it is its first.
func (c Config) Local() (address string, remove func(), err error) {
	if c.Network == "unix" {
		dir, err := os.MkdirTemp("", "rdmanet")
		if err != nil {
			return "", nil, fmt.Errorf("make a directory for the socket: %w", err)
		}
		return filepath.Join(dir, "socket"), func() { _ = os.RemoveAll(dir) }, nil
	}
	at := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if strings.HasSuffix(c.Network, "6") {
		at = netip.IPv6Loopback()
	}
	if c.RDMA() {
		at = c.onDevice(at)
	}
	return netip.AddrPortFrom(at, 0).String(), func() {}, nil
}

// onDevice is at, or if the named device does not have it an address of the same
// family that it has. What is wrong with the device is for Listen to say.
func (c Config) onDevice(at netip.Addr) netip.Addr {
	name := c.Device
	if name == "" {
		name = os.Getenv("RDMANET_DEVICE")
	}
	devices, _ := rdmanet.Devices()
	for _, d := range devices {
		if d.Name != name || slices.Contains(d.Addrs, at) {
			continue
		}
		for _, a := range d.Addrs {
			if a.Is4() == at.Is4() {
				return a
			}
		}
	}
	return at
}

// RDMA reports whether rdmanet opens the connections: by RDMA, or on a network of TCP
// by RDMA first.
func (c Config) RDMA() bool {
	switch c.Network {
	case "rdma", "rdma4", "rdma6", "tcp", "tcp4", "tcp6":
		return true
	}
	return false
}

// kernel is the name that package net has for a network of the kernel's sockets, "" for
// the others.
func (c Config) kernel() string {
	switch c.Network {
	case "kernel-tcp", "kernel-tcp4", "kernel-tcp6":
		return strings.TrimPrefix(c.Network, "kernel-")
	case "unix":
		return c.Network
	}
	return ""
}

// Device names what carries conn: an RDMA device, or the kernel's sockets.
func Device(conn net.Conn) string {
	if c, ok := conn.(*rdmanet.Conn); ok {
		return c.Device()
	}
	return "none (" + conn.LocalAddr().Network() + " socket)"
}

// Stats returns the connection's counters, where it has any.
func Stats(conn net.Conn) (s rdmanet.ConnStats, ok bool) {
	c, ok := conn.(*rdmanet.Conn)
	if ok {
		s = c.Stats()
	}
	return s, ok
}

// HalfCloser is what every connection of this package is.
type HalfCloser interface{ CloseWrite() error }

// CloseWrite tells the peer that nothing more will be written.
func CloseWrite(conn net.Conn) error {
	if c, ok := conn.(HalfCloser); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
