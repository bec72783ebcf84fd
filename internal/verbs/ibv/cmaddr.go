//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// sockaddr is room for struct sockaddr_storage.
type sockaddr [16]uint64

// putAddr writes an address as C has it.
func (s *sockaddr) put(a netip.AddrPort) error {
	*s = sockaddr{}
	addr := a.Addr().Unmap()
	port := bits.ReverseBytes16(a.Port())
	switch {
	case addr.Is4():
		*(*cSockaddrIn)(unsafe.Pointer(s)) = cSockaddrIn{family: addrFamilyINET, port: port, addr: addr.As4()}
	case addr.Is6():
		scope, err := scopeID(addr.Zone())
		if err != nil {
			return err
		}
		*(*cSockaddrIn6)(unsafe.Pointer(s)) = cSockaddrIn6{family: addrFamilyINET6, port: port, addr: addr.As16(), scopeID: scope}
	default:
		return fmt.Errorf("%w: no address", verbs.ErrInvalid)
	}
	return nil
}

// scopeID is the number of an IPv6 zone: an interface's name or index.
func scopeID(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if nic, err := net.InterfaceByName(zone); err == nil {
		return uint32(nic.Index), nil
	}
	n, err := strconv.ParseUint(zone, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: no network interface %q", verbs.ErrInvalid, zone)
	}
	return uint32(n), nil
}

// get reads an address that C has written: the zero value if there is none. It asks the kernel for the name
// of a zone, which may wait for others that change its interfaces: not for who reads the events.
func (s *sockaddr) get() netip.AddrPort {
	v4 := (*cSockaddrIn)(unsafe.Pointer(s))
	switch v4.family {
	case addrFamilyINET:
		return netip.AddrPortFrom(netip.AddrFrom4(v4.addr), bits.ReverseBytes16(v4.port))
	case addrFamilyINET6:
		v6 := (*cSockaddrIn6)(unsafe.Pointer(s))
		addr := netip.AddrFrom16(v6.addr)
		if v6.scopeID != 0 && !addr.Is4In6() {
			addr = addr.WithZone(zoneName(v6.scopeID))
		}
		return netip.AddrPortFrom(addr.Unmap(), bits.ReverseBytes16(v6.port))
	}
	return netip.AddrPort{}
}

func zoneName(scope uint32) string {
	if nic, err := net.InterfaceByIndex(int(scope)); err == nil {
		return nic.Name
	}
	return strconv.FormatUint(uint64(scope), 10)
}

// zoned gives the link-local addresses of a request their zone, which the kernel leaves
// out: the device's network interface that has the local one. To ask the kernel may wait for
// others that change its interfaces, so that is done in a slot.
func (ch *cmChannel) zoned(device string, local, remote netip.AddrPort) (netip.AddrPort, netip.AddrPort) {
	if a := local.Addr(); !a.Is6() || !a.IsLinkLocalUnicast() || a.Zone() != "" {
		return local, remote
	}
	ch.ready.take()
	defer ch.ready.give()
	nics, _ := netdevsOf(device) // without descriptors the zone stays unknown
	zone := func(a netip.AddrPort, nic string) netip.AddrPort {
		if !a.Addr().IsLinkLocalUnicast() {
			return a
		}
		return netip.AddrPortFrom(a.Addr().WithZone(nic), a.Port())
	}
	own := local.Addr()
	_, _ = interfaceAddrs(func(nic string, p netip.Prefix) bool {
		if !nics[nic] || p.Addr() != own {
			return false
		}
		local, remote = zone(local, nic), zone(remote, nic)
		return true
	})
	return local, remote
}

func (c *cCMID) src() *sockaddr { return (*sockaddr)(unsafe.Pointer(&c.srcAddr)) }

func (c *cCMID) dst() *sockaddr { return (*sockaddr)(unsafe.Pointer(&c.dstAddr)) }
