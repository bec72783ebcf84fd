//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
)

// lockPatience bounds how long a claim waits for another claim of the same port.
const lockPatience = time.Second

// firstClaimPause is how long a claim waits at first before it tries again what others may be about to let go
// of, and lastClaimPause in the end.
const (
	firstClaimPause = 50 * time.Microsecond
	lastClaimPause  = 5 * time.Millisecond
)

// A portClaim is a local address that belongs to this id until release.
type portClaim struct {
	fd   int // bound to the address's name; -1 when somebody else owns it now
	slot int // holds the slot of a specific address, or -1
	addr netip.AddrPort

	ephemeral bool // of a dialer that has not asked for a port: no other claims that
	shared    bool // other listeners have the descriptors, too; the id's lock guards it
}

// take hands over the claimed descriptor.
func (c *portClaim) take() int {
	fd := c.fd
	c.fd = -1
	return fd
}

// release gives the address back, apart from a descriptor that was taken.
func (c *portClaim) release() {
	for _, fd := range []int{c.fd, c.slot} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	c.fd, c.slot = -1, -1
}

// claimPort takes addr, which is canonical, as bind(2) does for TCP: port 0
// chooses a free one, and a wildcard conflicts with the addresses it covers. It waits for what of this
// process is about to let go of the port.
func claimPort(device string, addr netip.AddrPort, v6only bool) (*portClaim, error) {
	return untilFree(func() bool { return leftLately(device, addr.Port()) }, func() (*portClaim, error) {
		return claimPortNow(device, addr, v6only)
	})
}

// claimPortNow is claimPort without that.
func claimPortNow(device string, addr netip.AddrPort, v6only bool) (*portClaim, error) {
	if !addr.Addr().IsUnspecified() {
		if err := checkOwn(addr.Addr()); err != nil {
			return nil, err
		}
	}
	host, err := currentHostNet(hostNetTTL)
	if err != nil {
		return nil, err
	}
	if port := int(addr.Port()); port != 0 {
		if port < host.privBelow && !mayBindPrivileged() {
			return nil, bindError(unix.EACCES, fmt.Sprintf("ports below %d need CAP_NET_BIND_SERVICE", host.privBelow))
		}
		return claim(device, addr, v6only, lockPatience)
	}
	for port := range ephemeralPorts(host) {
		// No patience: a port that others are claiming is as bad as a taken one.
		c, err := claim(device, netip.AddrPortFrom(addr.Addr(), port), v6only, 0)
		if err == nil || !errors.Is(err, unix.EADDRINUSE) {
			return c, err
		}
	}
	return nil, bindError(unix.EADDRINUSE, "no ephemeral port is free")
}

// A heldError is that of a claim for an address that another listener has as it is, and may share.
type heldError struct{ error }

func (e heldError) Unwrap() error { return e.error }

// claim takes one address and port under the port's lock.
func claim(device string, addr netip.AddrPort, v6only bool, patience time.Duration) (*portClaim, error) {
	lock, err := lockPort(device, addr, patience)
	if err != nil {
		return nil, err
	}
	defer unix.Close(lock)

	host := control.BoundHost(addr.Addr(), v6only)
	fd, err := control.HoldName(control.BoundName(device, host, addr.Port()))
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, heldError{bindError(unix.EADDRINUSE, "another RDMA listener or dialer has the port on "+device)}
	}
	if err != nil {
		return nil, err
	}
	c := &portClaim{fd: fd, slot: -1, addr: addr}
	if err := c.settle(device, host); err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

// settle looks for conflicts between specific addresses and wildcards.
func (c *portClaim) settle(device, host string) error {
	port := c.addr.Port()
	var wildcards, families []string
	switch host {
	case control.AnyV4:
		wildcards, families = []string{control.AnyDual}, []string{"v4"}
	case control.AnyV6:
		wildcards, families = []string{control.AnyDual}, []string{"v6"}
	case control.AnyDual:
		wildcards, families = []string{control.AnyV4, control.AnyV6}, []string{"v4", "v6"}
	default:
		hosts := control.HostsFor(c.addr.Addr())
		wildcards = hosts[1:]
	}
	var rivals []string
	for _, wildcard := range wildcards {
		rivals = append(rivals, control.BoundName(device, wildcard, port))
	}
	for _, family := range families {
		for n := range control.HostSlots {
			rivals = append(rivals, control.SlotName(device, family, n, port))
		}
	}
	for _, name := range rivals {
		taken, err := control.NameTaken(name)
		if err != nil {
			return err
		}
		if taken {
			return bindError(unix.EADDRINUSE, "an RDMA listener or dialer has the port on "+device+" by an address that covers it or that it covers")
		}
	}
	if c.addr.Addr().IsUnspecified() {
		return nil
	}
	for n := range control.HostSlots {
		fd, err := control.HoldName(control.SlotName(device, control.FamilyOf(c.addr.Addr()), n, port))
		if err == nil {
			c.slot = fd
			return nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	return bindError(unix.EADDRINUSE, fmt.Sprintf("%d addresses have this port, the most that may (listen on the wildcard)", control.HostSlots))
}

// lockPort takes the lock of addr's port; closing the descriptor releases it.
func lockPort(device string, addr netip.AddrPort, patience time.Duration) (int, error) {
	deadline := time.Now().Add(patience)
	fd, err := untilFree(func() bool { return time.Now().Before(deadline) }, func() (int, error) {
		return control.HoldName(control.LockName(device, addr.Port()))
	})
	if errors.Is(err, unix.EADDRINUSE) {
		return -1, bindError(unix.EADDRINUSE, "another process is claiming the port")
	}
	return fd, err
}

// untilFree tries to take something that others may be about to let go of: as long as it is in use
// and soon reports, before a try, that there may be another.
func untilFree[T any](soon func() bool, try func() (T, error)) (T, error) {
	for pause := firstClaimPause; ; pause = min(2*pause, lastClaimPause) {
		again := soon()
		got, err := try()
		if !again || !errors.Is(err, unix.EADDRINUSE) {
			return got, err
		}
		time.Sleep(pause)
	}
}

// bindEphemeral claims an ephemeral port at ip for a dialer.
func bindEphemeral(device string, ip netip.Addr, dst netip.AddrPort) (*portClaim, error) {
	host, err := currentHostNet(hostNetTTL)
	if err != nil {
		return nil, err
	}
	fd, err := control.OpenSocket()
	if err != nil {
		return nil, err
	}
	addr, err := bindFree(fd, device, ip, ephemeralPorts(host), dst)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &portClaim{fd: fd, slot: -1, addr: addr, ephemeral: true}, nil
}

// bindFree gives fd the first free one of ports at ip, and not that of dst: a connection
// whose two ends have one address looks like one with itself.
func bindFree(fd int, device string, ip netip.Addr, ports iter.Seq[uint16], dst netip.AddrPort) (netip.AddrPort, error) {
	for port := range ports {
		addr := netip.AddrPortFrom(ip, port)
		if addr == dst {
			continue
		}
		if err := control.BindName(fd, control.DialerName(device, addr)); !errors.Is(err, unix.EADDRINUSE) {
			return addr, err
		}
	}
	return netip.AddrPort{}, bindError(unix.EADDRNOTAVAIL, "every ephemeral port is in use")
}

// ephemeralPorts yields each port of the ephemeral range once, from a random one on.
func ephemeralPorts(h hostNet) iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		n := int(h.portHi) - int(h.portLo) + 1
		start := rand.IntN(n)
		for i := range n {
			if !yield(h.portLo + uint16((start+i)%n)) {
				return
			}
		}
	}
}

// mayBindPrivileged reports whether this process has CAP_NET_BIND_SERVICE.
func mayBindPrivileged() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&hdr, &data[0])
	return err == nil && data[0].Effective&(1<<unix.CAP_NET_BIND_SERVICE) != 0
}

// checkOwn refuses to bind to an address of another host.
func checkOwn(a netip.Addr) error {
	local, err := isLocal(a)
	if err == nil && !local {
		err = bindError(unix.EADDRNOTAVAIL, "not an address of this host")
	}
	return err
}

// bindError is a refusal of bind(2) with its reason in words; the caller tells the address.
func bindError(errno syscall.Errno, why string) error {
	return driver.Explain(why, os.NewSyscallError("bind", errno))
}
