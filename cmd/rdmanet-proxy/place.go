package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

// maxSocketPath is how long the path of a Unix socket may be, on Linux.
const maxSocketPath = 107

// A place is one side of the proxy.
type place struct {
	endpoint.Config
	address string
}

// String writes the place as set reads it.
func (p place) String() string { return scheme(p.Network) + "://" + p.address }

// ofSchemes are the networks that the schemes stand for. TCP is what programs speak that
// know nothing of RDMA: the kernel's.
var ofSchemes = map[string]string{
	"tcp": "kernel-tcp", "tcp4": "kernel-tcp4", "tcp6": "kernel-tcp6", "unix": "unix",
	"rdma": "rdma", "rdma4": "rdma4", "rdma6": "rdma6",
	"rdma+tcp": "tcp", "rdma+tcp4": "tcp4", "rdma+tcp6": "tcp6",
}

const schemes = "tcp, tcp4, tcp6, unix, rdma, rdma4, rdma6, rdma+tcp, rdma+tcp4 or rdma+tcp6"

// scheme is the scheme that stands for a network.
func scheme(network string) string {
	for s, n := range ofSchemes {
		if n == network {
			return s
		}
	}
	return network
}

// set reads a place as the flags have it, scheme://address.
func (p *place) set(s string) error {
	scheme, address, ok := strings.Cut(s, "://")
	if !ok {
		return fmt.Errorf("write it as scheme://address, as tcp://%s", s)
	}
	network, ok := ofSchemes[scheme]
	if !ok {
		return fmt.Errorf("unknown scheme %q: use %s", scheme, schemes)
	}
	p.Network, p.address = network, address
	switch {
	case address == "":
		return errors.New("the address is missing")
	case network == "unix" && len(address) > maxSocketPath:
		return fmt.Errorf("the path has %d bytes: a socket's has at most %d", len(address), maxSocketPath)
	case network != "unix":
		return p.checkAddress()
	}
	return nil
}

// checkAddress says what is wrong with host:port, as far as it is known before a name is
// looked up.
func (p *place) checkAddress() error {
	host, service, err := net.SplitHostPort(p.address)
	if err != nil {
		return err
	}
	if _, err := port(service); err != nil {
		return err
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil && strings.HasSuffix(p.Network, "4") && !addr.Unmap().Is4():
		return fmt.Errorf("%s is no IPv4 address", host)
	case err == nil && strings.HasSuffix(p.Network, "6") && addr.Unmap().Is4():
		return fmt.Errorf("%s is no IPv6 address", host)
	case err != nil && host != "" && !couldBeName(host):
		return fmt.Errorf("%q is neither an IP address nor the name of a host", host)
	}
	return nil
}

// port is the number of a port, which may have a name.
func port(service string) (int, error) {
	if service == "" {
		return 0, nil
	}
	return net.DefaultResolver.LookupPort(context.Background(), "tcp", service)
}

// couldBeName reports whether a resolver may know host. What ends in a number is an
// address that was mistyped.
func couldBeName(host string) bool {
	if strings.ContainsAny(host, " \t/\\@:[]%") {
		return false
	}
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	return strings.Trim(last, "0123456789") != ""
}

// dialable says why nobody can connect to the place.
func (p *place) dialable() error {
	if p.Network == "unix" {
		return nil
	}
	_, service, _ := net.SplitHostPort(p.address)
	if n, err := port(service); err != nil || n == 0 {
		return fmt.Errorf("-to %s: the port is missing, 0 is for -listen", p)
	}
	return nil
}
