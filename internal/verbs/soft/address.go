//go:build linux && (amd64 || arm64)

package soft

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// The software device reaches processes of this network namespace, so its
// addresses are the namespace's own: those of the interfaces, all of 127/8 and ::1.

const (
	// hostNetTTL is how long a snapshot of the host's addresses is believed.
	hostNetTTL = time.Second
	// hostNetMissTTL is how long an address that is not in it counts as not local.
	hostNetMissTTL = 50 * time.Millisecond
)

// A hostNet is what the kernel says about this network namespace.
type hostNet struct {
	at        time.Time
	addrs     map[netip.Addr]struct{} // of the interfaces, canonical
	portLo    uint16                  // ephemeral ports, both ends inclusive
	portHi    uint16
	privBelow int // ports below need CAP_NET_BIND_SERVICE
}

var hostNetCache struct {
	sync.Mutex
	hostNet
}

// currentHostNet returns a snapshot that is at most maxAge old.
func currentHostNet(maxAge time.Duration) (hostNet, error) {
	c := &hostNetCache
	c.Lock()
	defer c.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < maxAge {
		return c.hostNet, nil
	}
	addrs, err := interfaceAddrs()
	if err != nil && !c.at.IsZero() {
		return c.hostNet, nil // who has no descriptor to ask with believes it for longer
	}
	if err != nil {
		return hostNet{}, fmt.Errorf("cannot list the addresses of this host: %w", err)
	}
	h := hostNet{at: time.Now(), addrs: addrs}
	h.portLo, h.portHi = ephemeralRange()
	h.privBelow = privilegedBelow()
	c.hostNet = h
	return h, nil
}

// isLocal reports whether a, which is canonical, is an address of this host.
func isLocal(a netip.Addr) (bool, error) {
	if a.IsLoopback() {
		return true, nil
	}
	for _, age := range []time.Duration{hostNetTTL, hostNetMissTTL} {
		h, err := currentHostNet(age)
		if err != nil {
			return false, err
		}
		if _, ok := h.addrs[a]; ok {
			return true, nil
		}
	}
	return false, nil
}

// knownLocal reports whether a is known to be an address of this host.
func knownLocal(a netip.Addr) bool {
	local, err := isLocal(a)
	return err == nil && local
}

// sourceFor is the address from which the kernel has a process of this host connect to
// another by TCP: the destination's own, or 127.0.0.1 for those of 127/8 that no interface
// has. to is canonical, and an address of this host.
func sourceFor(to netip.Addr) (netip.Addr, error) {
	if !to.Is4() || !to.IsLoopback() || to == loopbackFor(to) {
		return to, nil
	}
	h, err := currentHostNet(hostNetTTL)
	if err != nil {
		return to, err
	}
	if _, ok := h.addrs[to]; ok {
		return to, nil
	}
	return loopbackFor(to), nil
}

// interfaceAddrs asks the kernel for all addresses of this network namespace in one dump: hosts
// with many interfaces make asking for each of them slow.
func interfaceAddrs() (map[netip.Addr]struct{}, error) {
	rib, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, os.NewSyscallError("netlinkrib", err)
	}
	msgs, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return nil, os.NewSyscallError("parsenetlinkmessage", err)
	}
	addrs := map[netip.Addr]struct{}{}
	for i := range msgs {
		if msgs[i].Header.Type != syscall.RTM_NEWADDR || len(msgs[i].Data) < syscall.SizeofIfAddrmsg {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&msgs[i])
		if err != nil {
			return nil, os.NewSyscallError("parsenetlinkrouteattr", err)
		}
		if a, ok := ownAddr(attrs); ok {
			if a.IsLinkLocalUnicast() && a.Is6() {
				// struct ifaddrmsg ends with the interface's index.
				a = a.WithZone(strconv.Itoa(int(binary.NativeEndian.Uint32(msgs[i].Data[4:]))))
			}
			addrs[a] = struct{}{}
		}
	}
	return addrs, nil
}

// ownAddr picks this end's address: on a point-to-point link IFA_ADDRESS is the other's.
func ownAddr(attrs []syscall.NetlinkRouteAttr) (a netip.Addr, ok bool) {
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case syscall.IFA_LOCAL:
			if v, valid := netip.AddrFromSlice(attr.Value); valid {
				return v, true
			}
		case syscall.IFA_ADDRESS:
			if v, valid := netip.AddrFromSlice(attr.Value); valid {
				a, ok = v, true
			}
		}
	}
	return a, ok
}

// canonical gives an address its only spelling: IPv4 is not v4-mapped, the zone
// of a link-local address is the interface's index, others have no zone.
func canonical(a netip.Addr) netip.Addr {
	a = a.Unmap()
	zone := a.Zone()
	if zone == "" {
		return a
	}
	if !a.IsLinkLocalUnicast() {
		return a.WithZone("")
	}
	if ifi, err := net.InterfaceByName(zone); err == nil {
		return a.WithZone(strconv.Itoa(ifi.Index))
	}
	return a
}

// displayed turns a canonical address into what an application expects to see: a
// zone is the interface's name.
func displayed(a netip.Addr) netip.Addr {
	zone := a.Zone()
	if zone == "" {
		return a
	}
	if index, err := strconv.Atoi(zone); err == nil {
		if ifi, err := net.InterfaceByIndex(index); err == nil {
			return a.WithZone(ifi.Name)
		}
	}
	return a
}

// loopbackFor is where a connection to the unspecified address a goes, as the kernel has it.
func loopbackFor(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// ephemeralRange is the namespace's range of ports for port 0.
func ephemeralRange() (lo, hi uint16) {
	b, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if _, err := fmt.Sscan(string(b), &lo, &hi); err == nil && 0 < lo && lo <= hi {
		return lo, hi
	}
	return 32768, 60999
}

// privilegedBelow is the first port that anybody may bind.
func privilegedBelow() (port int) {
	b, _ := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if _, err := fmt.Sscan(string(b), &port); err == nil {
		return port
	}
	return 1024
}
