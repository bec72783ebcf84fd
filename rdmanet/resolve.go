package rdmanet

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// checkNetwork knows the networks: those of RDMA alone, and those of TCP, which RDMA
// serves where it can.
func checkNetwork(network string) error {
	if slices.Contains(networks[:], network) {
		return nil
	}
	return unknownNetwork(network)
}

// An unknownNetwork is a net.UnknownNetworkError that says which networks there are.
type unknownNetwork string

func (e unknownNetwork) Error() string {
	return net.UnknownNetworkError(e).Error() + " (there are " + strings.Join(networks[:], ", ") + ")"
}
func (e unknownNetwork) Unwrap() error   { return net.UnknownNetworkError(e) }
func (e unknownNetwork) Timeout() bool   { return false }
func (e unknownNetwork) Temporary() bool { return false }

var networks = [...]string{"rdma", "rdma4", "rdma6", "tcp", "tcp4", "tcp6"}

// networkID is one of networks, in the space that a Conn has for it.
type networkID uint8

func idOf(network string) networkID { return networkID(slices.Index(networks[:], network)) }

func (id networkID) String() string { return networks[id] }

// withTCP reports whether a network, which is one, takes TCP as well.
func withTCP(network string) bool { return network[0] == 't' }

// ipVersion is '4' or '6' for a network of one address family, 0 for one of both.
func ipVersion(network string) byte {
	switch v := network[len(network)-1]; v {
	case '4', '6':
		return v
	}
	return 0
}

// serves reports whether a network takes an address.
func serves(network string, a netip.Addr) bool {
	switch ipVersion(network) {
	case '4':
		return a.Is4() || a.Is4In6()
	case '6':
		return a.Is6() && !a.Is4In6()
	}
	return true
}

// anyToListen is what an empty host stands for where one listens: all addresses.
func anyToListen(network string) netip.Addr {
	if ipVersion(network) == '4' {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// anyToDial is what it stands for where one dials: IPv4 wherever the network has that.
func anyToDial(network string) netip.Addr {
	if ipVersion(network) == '6' {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// resolve turns "host:port", with names as package net takes them, into addresses. empty
// is that of an empty host.
func resolve(ctx context.Context, r *net.Resolver, network, address string, empty netip.Addr) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if r == nil {
		r = net.DefaultResolver
	}
	port := 0
	if service != "" {
		if port, err = r.LookupPort(ctx, "tcp", service); err != nil {
			return nil, err
		}
	}
	at := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, uint16(port)) }
	if host == "" {
		return []netip.AddrPort{at(empty)}, nil
	}
	var addrs []netip.AddrPort
	add := func(a netip.Addr, alone bool) {
		if a = a.Unmap(); serves(network, a) {
			addrs = append(addrs, at(a))
		}
		if v4 := netip.IPv4Unspecified(); alone && a.WithZone("") == netip.IPv6Unspecified() && serves(network, v4) {
			addrs = append(addrs, at(v4)) // "::" is as good as none
		}
	}
	if a, err := netip.ParseAddr(host); err == nil { // which a Resolver does not look up either
		add(a, true)
	} else {
		ips, err := lookUp(ctx, r, network, host)
		if err != nil {
			return nil, err
		}
		for _, ip := range ips {
			if a, ok := netip.AddrFromSlice(ip.IP); ok {
				add(a.Unmap().WithZone(ip.Zone), len(ips) == 1)
			}
		}
	}
	if len(addrs) == 0 {
		return nil, &net.AddrError{Err: "no suitable address found", Addr: host}
	}
	return addrs, nil
}

// lookUp asks for IPv4 alone on a network of that, as package net does: who dials by it does not wait for
// name servers that say nothing of IPv6. On one of IPv6 it asks for both, since only that tells zones.
func lookUp(ctx context.Context, r *net.Resolver, network, host string) ([]net.IPAddr, error) {
	if ipVersion(network) != '4' {
		return r.LookupIPAddr(ctx, host)
	}
	found, err := r.LookupIP(ctx, "ip4", host)
	if err != nil {
		return nil, err
	}
	ips := make([]net.IPAddr, len(found))
	for i, ip := range found {
		ips[i].IP = ip
	}
	return ips, nil
}

// loopbacks replaces wildcard destinations by what Linux has TCP connect to from src, which
// may be the zero value.
func loopbacks(src netip.Addr, addrs []netip.AddrPort) []netip.AddrPort {
	for i, a := range addrs {
		if a.Addr().IsUnspecified() {
			addrs[i] = netip.AddrPortFrom(hereFrom(src, a.Addr()), a.Port())
		}
	}
	return slices.Compact(addrs)
}

// hereFrom is where a connection from src to the wildcard a goes.
func hereFrom(src, a netip.Addr) netip.Addr {
	bound4 := src.Is4() && !src.IsUnspecified()
	switch {
	case a.Is4() && bound4:
		return src
	case a.Is4() && !src.Is6(), a.Is6() && bound4:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// reachableFrom keeps the addresses that a dialer bound to src can have as its
// destination: those of its family, if the network has that.
func reachableFrom(network string, src netip.AddrPort, addrs []netip.AddrPort) []netip.AddrPort {
	if !src.Addr().IsValid() || src.Addr().IsUnspecified() {
		return addrs
	}
	if !serves(network, src.Addr()) {
		return nil
	}
	return slices.DeleteFunc(addrs, func(a netip.AddrPort) bool {
		return !a.Addr().IsUnspecified() && a.Addr().Is4() != src.Addr().Is4()
	})
}

// sourceFor is the source of a connection to dst. A wildcard, which says no more than
// the port, becomes that of dst's family; package net refuses IPv6's for IPv4 alone.
func sourceFor(network string, src, dst netip.AddrPort) (netip.AddrPort, error) {
	switch local := src.Addr(); {
	case !local.IsUnspecified():
		return src, nil
	case local.Is6() && ipVersion(network) == '4':
		return src, &net.AddrError{Err: "non-IPv4 address", Addr: local.String()}
	case dst.Addr().Is4():
		return netip.AddrPortFrom(netip.IPv4Unspecified(), src.Port()), nil
	}
	return netip.AddrPortFrom(netip.IPv6Unspecified(), src.Port()), nil
}

// tcpAddr is a as a net.Addr; nil for the zero value.
func tcpAddr(a netip.AddrPort) net.Addr {
	if !a.IsValid() {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}
