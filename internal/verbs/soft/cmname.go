//go:build linux && (amd64 || arm64)

package soft

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
	anyV4   = "*4"  // 0.0.0.0
	anyV6   = "*6"  // [::] without IPv4
	anyDual = "*46" // [::] with IPv4
)

// boundName is the name of a bound address.
func boundName(device string, host string, port uint16) string {
	return "@rdmanet/" + device + "/" + strconv.Itoa(int(port)) + "/" + host
}

// dialerName is the name of a dialer that has an ephemeral port.
func dialerName(device string, a netip.AddrPort) string {
	return "@rdmanet/" + device + "/c/" + a.Addr().String() + "/" + strconv.Itoa(int(a.Port()))
}

// lockName is the name held by whoever is claiming port.
func lockName(device string, port uint16) string { return boundName(device, "lock", port) }

// hostSlots is how many addresses of one family may have the same port.
const hostSlots = 64

// slotName is one of the names of which every bound address of family, "v4" or
// "v6", holds one: a wildcard finds its conflicts there, since the addresses
// themselves are too many to try.
func slotName(device, family string, n int, port uint16) string {
	return boundName(device, family+"/"+strconv.Itoa(n), port)
}

// familyOf names the family of a in slot names.
func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "v4"
	}
	return "v6"
}

// boundHost is the host part under which addr is bound.
func boundHost(a netip.Addr, v6only bool) string {
	switch {
	case !a.IsUnspecified():
		return a.String()
	case a.Is4():
		return anyV4
	case v6only:
		return anyV6
	}
	return anyDual
}

// hostsFor lists under which hosts a listener for a may be found, the closest first.
func hostsFor(a netip.Addr) [3]string {
	if a.Is4() {
		return [3]string{a.String(), anyV4, anyDual}
	}
	return [3]string{a.String(), anyV6, anyDual}
}

// isNameOf reports whether name is what a dialer at src binds: a name that the
// kernel vouches for, and that nobody else has at the same time.
func isNameOf(name, device string, src netip.AddrPort) bool {
	if name == dialerName(device, src) {
		return true
	}
	for _, host := range hostsFor(src.Addr()) {
		if name == boundName(device, host, src.Port()) {
			return true
		}
	}
	return false
}

// bindName gives fd a name. It fails with EADDRINUSE if the name is taken.
func bindName(fd int, name string) error {
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
}

// holdName takes a name with a socket made for it.
func holdName(name string) (fd int, err error) {
	fd, err = openSocket()
	if err != nil {
		return -1, err
	}
	if err := bindName(fd, name); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// nameTaken reports whether somebody has name.
func nameTaken(name string) (bool, error) {
	fd, err := holdName(name)
	if errors.Is(err, unix.EADDRINUSE) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot tell whether a port is in use: %w", err)
	}
	unix.Close(fd)
	return false, nil
}
