package verbs

import (
	"encoding/binary"
	"fmt"
)

// GRHSize is how many bytes of a receive precede the data of a datagram. They hold the
// global routing header (IBA 8.3), which on RoCE v2 is the IPv6 header, or in the last 20
// bytes the IPv4 header.
const GRHSize = 40

// What follows a GRH, as its NxtHdr says.
const (
	grhNextUDP = 17   // RoCE v2
	grhNextBTH = 0x1b // InfiniBand and RoCE v1
)

// AHFromWC is the address vector that leads back to the sender of a datagram
// (ibv_init_ah_from_wc(3)): wc is the completion of its receive, on a QP at that port, and
// grh the first GRHSize bytes of the receive. It fails with ErrInvalid if these are not a
// header to an address of the port.
func AHFromWC(ctx Context, port uint8, wc *WC, grh []byte) (AHAttr, error) {
	attr, gids, err := PortGIDs(ctx, port)
	if err != nil {
		return AHAttr{}, err
	}
	a := AHAttr{PortNum: port, DLID: wc.SLID, SL: wc.SL}
	if wc.Flags&WCGRH == 0 && attr.LinkLayer == LinkLayerInfiniBand {
		return a, nil
	}
	if wc.Flags&WCGRH == 0 || len(grh) < GRHSize {
		return AHAttr{}, fmt.Errorf("%w: datagram without routing header", ErrInvalid)
	}
	var local GID
	var routable bool // RoCE v2
	a.IsGlobal = true
	switch head := binary.BigEndian.Uint32(grh); {
	case isIPv4Header(grh[20:], head>>28 == 6):
		a.TrafficClass, a.HopLimit, routable = grh[21], grh[28], true
		a.DGID, local = mapped(grh[32:36]), mapped(grh[36:40])
	case head>>28 == 6:
		a.TrafficClass, a.FlowLabel, a.HopLimit, routable = uint8(head>>20), head&(1<<20-1), grh[7], grh[6] == grhNextUDP
		a.DGID, local = GID(grh[8:24]), GID(grh[24:40])
	default:
		return AHAttr{}, fmt.Errorf("%w: routing header of version %d", ErrInvalid, head>>28)
	}
	a.HopLimit = max(a.HopLimit, bringUpHopLimit) // what it had left may not do for the way back
	for _, g := range gids {
		if g.GID == local && (g.Type == GIDTypeRoCEv2) == routable {
			a.SGIDIndex = g.Index
			return a, nil
		}
	}
	return AHAttr{}, fmt.Errorf("%w: datagram to %s, which is not a GID of port %d", ErrInvalid, local, port)
}

// isIPv4Header reports whether b is an IPv4 header. If it may be the end of an IPv6 header as
// well, its checksum has to be right. Only then, since soft-RoCE makes none for itself.
func isIPv4Header(b []byte, unsure bool) bool {
	if b[0]>>4 != 4 {
		return false
	}
	return !unsure || b[0] == 0x45 && ipv4Checksum(b) == 0
}

// ipv4Checksum is the checksum of an IPv4 header of 20 bytes, 0 if it contains that.
func ipv4Checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// mapped is an IPv4 address as a GID.
func mapped(b []byte) GID {
	g := GID{10: 0xff, 11: 0xff}
	copy(g[12:], b)
	return g
}

// AppendGRH appends the header that a datagram of n bytes to a has for its receiver on
// RoCE v2, if it comes from sgid. Both are addresses of one IP version.
func AppendGRH(b []byte, a *AHAttr, sgid GID, n int) []byte {
	const (
		overhead = 8 + 12 + 8 + 4 // UDP, BTH, DETH and ICRC
		tos4     = 0x45 << 8
	)
	n = (n+3)&^3 + overhead
	if !sgid.Addr().Is4() {
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(a.TrafficClass)<<20|a.FlowLabel&(1<<20-1))
		b = binary.BigEndian.AppendUint16(b, uint16(n))
		b = append(append(b, grhNextUDP, a.HopLimit), sgid[:]...)
		return append(b, a.DGID[:]...)
	}
	b = append(b, make([]byte, 20)...)
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, tos4|uint16(a.TrafficClass))
	b = binary.BigEndian.AppendUint16(b, uint16(n+20))
	b = append(b, 0, 0, 0x40, 0, a.HopLimit, grhNextUDP, 0, 0) // not to be fragmented
	b = append(append(b, sgid[12:]...), a.DGID[12:]...)
	binary.BigEndian.PutUint16(b[at+10:], ipv4Checksum(b[at:]))
	return b
}
