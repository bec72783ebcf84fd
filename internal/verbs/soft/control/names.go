//go:build linux && (amd64 || arm64)

package control

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// An address of the software device is an abstract Unix socket name, whose scope
// is the network namespace, as that of a TCP port is:
//
//	rdmanet/<device>/<port>/<host>      a bound address, listening or not
//	rdmanet/<device>/c/<ip>/<port>      an ephemeral port of a dialer
//	rdmanet/<device>/<port>/lock        held while a port is being claimed
//	rdmanet/<device>/<port>/v4/<n>      says that some IPv4 address has the port; v6 likewise
//
// A host is an IP address, or one of the wildcards below.
const (
	AnyV4   = "*4"  // 0.0.0.0
	AnyV6   = "*6"  // [::] without IPv4
	AnyDual = "*46" // [::] with IPv4
)

// BoundName is the name of a bound address.
func BoundName(device string, host string, port uint16) string {
	return "@rdmanet/" + device + "/" + strconv.Itoa(int(port)) + "/" + host
}

// DialerName is the name of a dialer that has an ephemeral port.
func DialerName(device string, a netip.AddrPort) string {
	return "@rdmanet/" + device + "/c/" + a.Addr().String() + "/" + strconv.Itoa(int(a.Port()))
}

// LockName is the name held by whoever is claiming port.
func LockName(device string, port uint16) string { return BoundName(device, "lock", port) }

// HostSlots is how many addresses of one family may have the same port.
const HostSlots = 64

// SlotName is one of the names of which every bound address of family, "v4" or
// "v6", holds one: a wildcard finds its conflicts there, since the addresses
// themselves are too many to try.
func SlotName(device, family string, n int, port uint16) string {
	return BoundName(device, family+"/"+strconv.Itoa(n), port)
}

// FamilyOf names the family of a in slot names.
func FamilyOf(a netip.Addr) string {
	if a.Is4() {
		return "v4"
	}
	return "v6"
}

// BoundHost is the host part under which addr is bound.
func BoundHost(a netip.Addr, v6only bool) string {
	switch {
	case !a.IsUnspecified():
		return a.String()
	case a.Is4():
		return AnyV4
	case v6only:
		return AnyV6
	}
	return AnyDual
}

// HostsFor lists under which hosts a listener for a may be found, the closest first.
func HostsFor(a netip.Addr) [3]string {
	if a.Is4() {
		return [3]string{a.String(), AnyV4, AnyDual}
	}
	return [3]string{a.String(), AnyV6, AnyDual}
}

// IsNameOf reports whether name is what a dialer at src binds: a name that the
// kernel vouches for, and that nobody else has at the same time.
func IsNameOf(name, device string, src netip.AddrPort) bool {
	if name == DialerName(device, src) {
		return true
	}
	for _, host := range HostsFor(src.Addr()) {
		if name == BoundName(device, host, src.Port()) {
			return true
		}
	}
	return false
}

// BindName gives fd a name. It fails with EADDRINUSE if the name is taken.
func BindName(fd int, name string) error {
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
}

// HoldName takes a name with a socket made for it.
func HoldName(name string) (fd int, err error) {
	fd, err = OpenSocket()
	if err != nil {
		return -1, err
	}
	if err := BindName(fd, name); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// NameTaken reports whether somebody has name.
func NameTaken(name string) (bool, error) {
	fd, err := HoldName(name)
	if errors.Is(err, unix.EADDRINUSE) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot tell whether a port is in use: %w", err)
	}
	unix.Close(fd)
	return false, nil
}
