package cm

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// An owner is a network interface of this host that has an address.
type owner struct {
	name    string
	index   int
	portGID verbs.GID // of the InfiniBand port under an IPoIB interface, else zero
}

type ownersFunc func(local netip.Addr) ([]owner, error)

// ipoibHardwareLen is the length of an IPoIB interface's hardware address: four bytes
// of flags and QPN, and the port's GID (RFC 4391, section 9.1.1).
const ipoibHardwareLen = 20

// ownersOf returns the interfaces that have an address, of its zone if it has one.
func ownersOf(local netip.Addr) ([]owner, error) {
	nics, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("cm: cannot list the network interfaces: %w", err)
	}
	var owners []owner
	for _, nic := range nics {
		o := owner{name: nic.Name, index: nic.Index}
		if !o.inZone(local.Zone()) {
			continue
		}
		addrs, err := nic.Addrs()
		if err != nil {
			continue // the interface went away meanwhile
		}
		if !slices.ContainsFunc(addrs, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Addr().Unmap() == local.WithZone("")
		}) {
			continue
		}
		if len(nic.HardwareAddr) == ipoibHardwareLen {
			o.portGID = verbs.GID(nic.HardwareAddr[4:])
		}
		owners = append(owners, o)
	}
	return owners, nil
}

func (o *owner) inZone(zone string) bool {
	return zone == "" || zone == o.name || zone == strconv.Itoa(o.index)
}

// portMatch tells the entries of GID tables that stand for an address.
type portMatch struct {
	addr   netip.Addr // not v4-mapped, with its zone
	owners []owner
}

func newPortMatch(local netip.Addr, owners ownersFunc) (*portMatch, error) {
	if !local.IsValid() || local.IsUnspecified() || local.IsMulticast() {
		return nil, fmt.Errorf("cm: %v is no address of a port; name one of this host: %w", local, verbs.ErrInvalid)
	}
	m := &portMatch{addr: local.Unmap()}
	if !m.addr.IsLinkLocalUnicast() {
		m.addr = m.addr.WithZone("")
	}
	var err error
	m.owners, err = owners(m.addr)
	return m, err
}

// best returns the entry to use, nil if none stands for the address.
func (m *portMatch) best(gids []verbs.PortGID) (*verbs.PortGID, error) {
	var best []*verbs.PortGID
	rank := 1
	for i := range gids {
		switch r := m.rank(&gids[i]); {
		case r > rank:
			rank, best = r, []*verbs.PortGID{&gids[i]}
		case r == rank:
			best = append(best, &gids[i])
		}
	}
	if len(best) == 0 {
		return nil, nil
	}
	// A VLAN interface has the link-local address of the one below it.
	if m.addr.IsLinkLocalUnicast() && m.addr.Zone() == "" {
		var nics []string
		for _, g := range best {
			if !slices.Contains(nics, g.NetDev) {
				nics = append(nics, g.NetDev)
			}
		}
		if len(nics) > 1 {
			return nil, fmt.Errorf("cm: %v is an address of %s: name one, as in %v%%%s: %w",
				m.addr, strings.Join(nics, " and "), m.addr, nics[0], verbs.ErrInvalid)
		}
	}
	return best[0], nil
}

// rank is how well an entry stands for the address, 0 if it does not. RoCE v2 comes
// before v1, which cannot be routed; but first of all the entry is of an interface that
// has the address, for another network namespace may have it too.
func (m *portMatch) rank(g *verbs.PortGID) int {
	if g.LinkLayer == verbs.LinkLayerInfiniBand {
		if g.GID == verbs.GIDFromAddr(m.addr) || slices.ContainsFunc(m.owners, func(o owner) bool { return o.portGID == g.GID }) {
			return 1
		}
		return 0
	}
	nic := owner{name: g.NetDev, index: g.IfIndex}
	unknown := nic == owner{} // an old kernel does not tell
	if g.GID != verbs.GIDFromAddr(m.addr) || !unknown && !nic.inZone(m.addr.Zone()) {
		return 0
	}
	rank := 1
	if g.Type == verbs.GIDTypeRoCEv2 {
		rank = 2
	}
	if m.isOwner(g) {
		rank += 2
	}
	return rank
}

func (m *portMatch) isOwner(g *verbs.PortGID) bool {
	return slices.ContainsFunc(m.owners, func(o owner) bool { return o.name == g.NetDev || o.index == g.IfIndex })
}

// mayBelong reports whether the address may be one of an iWARP port, whose only GID is
// made of its hardware address: by the network interface, if the device tells it.
func (m *portMatch) mayBelong(gids []verbs.PortGID) bool {
	return len(gids) == 0 || slices.ContainsFunc(gids, func(g verbs.PortGID) bool { return g.NetDev == "" || m.isOwner(&g) })
}
