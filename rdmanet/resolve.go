package rdmanet

import (
	"context"
	"net"
	"net/netip"
	"slices"
)

// checkNetwork knows the networks: those of RDMA alone, and those of TCP, which RDMA
// serves where it can.
func checkNetwork(network string) error {
	switch network {
	case "rdma", "rdma4", "rdma6", "tcp", "tcp4", "tcp6":
		return nil
	}
	return net.UnknownNetworkError(network)
}

// withTCP says whether a network, which is one, takes TCP as well.
func withTCP(network string) bool { return network[0] == 't' }

// ipVersion is '4' or '6' for a network of one address family, 0 for one of both.
func ipVersion(network string) byte {
	switch v := network[len(network)-1]; v {
	case '4', '6':
		return v
	}
	return 0
}

// serves says whether a network takes an address.
func serves(network string, a netip.Addr) bool {
	switch ipVersion(network) {
	case '4':
		return a.Is4() || a.Is4In6()
	case '6':
		return a.Is6() && !a.Is4In6()
	}
	return true
}

// resolve turns "host:port", with names as package net takes them, into addresses.
// An empty host gives the wildcard address of the network; wildcards come first v6.
func resolve(ctx context.Context, r *net.Resolver, network, address string) ([]netip.AddrPort, error) {
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
		if ipVersion(network) == '4' {
			return []netip.AddrPort{at(netip.IPv4Unspecified())}, nil
		}
		return []netip.AddrPort{at(netip.IPv6Unspecified())}, nil
	}
	ips, err := r.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(ips) == 1 && ips[0].IP.Equal(net.IPv6unspecified) {
		ips = append(ips, net.IPAddr{IP: net.IPv4zero}) // "::" is as good as none
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		a, ok := netip.AddrFromSlice(ip.IP)
		if !ok {
			continue
		}
		if a = a.Unmap().WithZone(ip.Zone); serves(network, a) {
			addrs = append(addrs, at(a))
		}
	}
	if len(addrs) == 0 {
		return nil, &net.AddrError{Err: "no suitable address found", Addr: host}
	}
	return addrs, nil
}

// loopbacks replaces wildcard destinations by the loopback addresses, as package net does.
func loopbacks(network string, addrs []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	add := func(a netip.Addr, port uint16) {
		if ap := netip.AddrPortFrom(a, port); !slices.Contains(out, ap) {
			out = append(out, ap)
		}
	}
	for _, a := range addrs {
		if !a.Addr().IsUnspecified() {
			out = append(out, a)
			continue
		}
		if ipVersion(network) != '6' {
			add(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port())
		}
		if ipVersion(network) != '4' && a.Addr().Is6() {
			add(netip.IPv6Loopback(), a.Port())
		}
	}
	return out
}

// reachableFrom keeps the addresses that a dialer bound to src can have as its
// destination: those of its family.
func reachableFrom(src netip.AddrPort, addrs []netip.AddrPort) []netip.AddrPort {
	if !src.Addr().IsValid() || src.Addr().IsUnspecified() {
		return addrs
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
