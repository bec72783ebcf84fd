//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Route asks the kernel twice: its routing table for the local address from which
// dst is reached, and librdmacm for the device that owns that address, whatever
// kind it is.
func (ibvDriver) Route(name string, dst netip.Addr) (driver.Route, error) {
	if !dst.IsValid() {
		return driver.Route{}, fmt.Errorf("no destination address: %w", verbs.ErrInvalid)
	}
	if name != "" {
		if _, err := findDevice(name); err != nil {
			return driver.Route{}, err
		}
	}
	if dst.IsLoopback() { // which needs no library to be known
		return driver.Route{}, driver.Explain("no RDMA device has a loopback address", verbs.ErrNoRoute)
	}
	ch, err := openCM()
	if err != nil {
		return driver.Route{}, err
	}
	return routes.get(routeKey{name, dst}, func() (driver.Route, error) { return ch.route(name, dst) })
}

// routes are the answers of Route.
var routes cache[routeKey, driver.Route]

type routeKey struct {
	device string
	dst    netip.Addr
}

func (ch *cmChannel) route(name string, dst netip.Addr) (driver.Route, error) {
	src, err := sourceFor(dst)
	if err != nil {
		return driver.Route{}, fmt.Errorf("%w: %v: %w", verbs.ErrNoRoute, dst, err)
	}
	owner, err := ch.ownerOf(src)
	if err != nil {
		return driver.Route{}, driver.Explain(fmt.Sprintf("reached from %v, which belongs to no RDMA device", src), verbs.ErrNoRoute, err)
	}
	own, err := isLocal(dst)
	if err != nil {
		return driver.Route{}, fmt.Errorf("%w: %v: %w", verbs.ErrNoRoute, dst, err)
	}
	r := driver.Route{Device: owner.dev.name, Src: src, SameHost: own}
	if name == "" || r.Device == name {
		return r, nil
	}
	if !r.SameHost { // another device of the same network will do as well
		on, ok, err := neighbour(name, dst)
		if err != nil {
			return driver.Route{}, fmt.Errorf("%w: %v: %w", verbs.ErrNoRoute, dst, err)
		}
		if ok {
			if owner, err = ch.ownerOf(on); err == nil && owner.dev.name == name {
				return driver.Route{Device: name, Src: on}, nil
			}
		}
	}
	return driver.Route{}, driver.Explain(fmt.Sprintf("reached from %v on device %s, not on %s", src, r.Device, name), verbs.ErrNoRoute)
}

// sourceFor is the local address that the kernel would use towards dst. Connecting
// a UDP socket looks up the route and sends nothing.
func sourceFor(dst netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 4791)))
	if errors.Is(err, syscall.EMFILE) {
		return netip.Addr{}, fmt.Errorf("%w (raise RLIMIT_NOFILE)", err)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	src, ok := netip.AddrFromSlice(c.LocalAddr().(*net.UDPAddr).IP)
	if !ok {
		return netip.Addr{}, syscall.EADDRNOTAVAIL
	}
	return src.Unmap().WithZone(dst.Zone()), nil
}

// ownerOf is the device that a local address belongs to: binding an id finds it.
func (ch *cmChannel) ownerOf(local netip.Addr) (*devContext, error) {
	var c sockaddr
	if err := c.put(netip.AddrPortFrom(local, 0)); err != nil {
		return nil, err
	}
	var handle uintptr
	if err := ch.call("rdma_create_id", ch.lib.createID, ch.handle, uintptr(unsafe.Pointer(&handle)), 0, rdmaPSTCP); err != nil {
		return nil, err
	}
	defer func() { _ = ch.destroyID(handle) }()
	if err := ch.call("rdma_bind_addr", ch.lib.bindAddr, handle, uintptr(unsafe.Pointer(&c))); err != nil {
		return nil, err
	}
	v := at[cCMID](handle).verbs
	if v == 0 {
		return nil, verbs.ErrNoDevice
	}
	return ch.contextOf(v)
}

// interfaceAddrs calls f for every address of this host until it returns true.
func interfaceAddrs(f func(nic string, p netip.Prefix) bool) (bool, error) {
	nics, err := net.Interfaces()
	if err != nil {
		return false, err
	}
	for _, nic := range nics {
		addrs, err := nic.Addrs()
		if noDescriptors(err) {
			return false, err
		}
		if err != nil {
			continue // the interface went away meanwhile
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && f(nic.Name, p) {
				return true, nil
			}
		}
	}
	return false, nil
}

// isLocal reports whether dst is an address of this host.
func isLocal(dst netip.Addr) (bool, error) {
	dst = dst.Unmap()
	if dst.IsLoopback() || dst.IsUnspecified() {
		return true, nil
	}
	return interfaceAddrs(func(_ string, p netip.Prefix) bool { return p.Addr() == dst.WithZone("") })
}

// neighbour is an address of the device whose network dst is in.
func neighbour(device string, dst netip.Addr) (found netip.Addr, ok bool, err error) {
	nics, err := netdevsOf(device)
	if err != nil {
		return found, false, err
	}
	dst = dst.Unmap().WithZone("")
	ok, err = interfaceAddrs(func(nic string, p netip.Prefix) bool {
		found = p.Addr()
		return nics[nic] && p.Contains(dst)
	})
	return found, ok, err
}

// netdevsOf are the network devices of a device: those that its GIDs belong to or, on InfiniBand,
// whose GIDs belong to none, the IPoIB interfaces of its ports.
func netdevsOf(device string) (map[string]bool, error) {
	return netdevsIn(sysfs, device, net.Interfaces)
}

func netdevsIn(sysfs, device string, interfaces func() ([]net.Interface, error)) (map[string]bool, error) {
	nics := map[string]bool{}
	err := eachPortFile(sysfs, device, "gid_attrs/ndevs/*", func(name string) { nics[name] = true })
	if err != nil || len(nics) > 0 {
		return nics, err
	}
	gids := map[netip.Addr]bool{}
	err = eachPortFile(sysfs, device, "gids/*", func(gid string) {
		if a, err := netip.ParseAddr(gid); err == nil && !a.IsUnspecified() {
			gids[a] = true
		}
	})
	if err != nil || len(gids) == 0 {
		return nics, err
	}
	all, err := interfaces()
	if err != nil {
		return nil, err
	}
	for _, nic := range all {
		if hw := nic.HardwareAddr; len(hw) == ipoibHardwareLen && gids[netip.AddrFrom16([16]byte(hw[4:]))] {
			nics[nic.Name] = true
		}
	}
	return nics, nil
}

// ipoibHardwareLen is the length of an IPoIB interface's hardware address: four bytes of flags
// and QPN, and the port's GID (RFC 4391, section 9.1.1).
const ipoibHardwareLen = 20

// eachPortFile calls f with what the files of a pattern say that can be read, below the directories of a
// device's ports.
func eachPortFile(sysfs, device, pattern string, f func(string)) error {
	files, _ := filepath.Glob(filepath.Join(sysfs, device, "ports/*", pattern)) // the pattern is well formed
	for _, file := range files {
		b, err := os.ReadFile(file)
		if noDescriptors(err) {
			return err
		}
		if err == nil {
			f(strings.TrimSpace(string(b)))
		}
	}
	return nil
}
