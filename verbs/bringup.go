package verbs

import (
	"errors"
	"fmt"
)

// Timing of a reliable connection, where the application names none.
const (
	// DefaultAckTimeout is the exponent of the ACK timeout: 4.096 us x 2^16, which
	// is 0.27 s.
	DefaultAckTimeout = 16
	// DefaultMinRNRTimer is 0.64 ms (IBA table 46). What a QP has that nobody sets,
	// 0, would be 655 ms.
	DefaultMinRNRTimer = 12
)

// bringUpHopLimit is how many routers a packet of a QP brought up by hand may pass:
// what Linux gives to IP packets.
const bringUpHopLimit = 64

// A PortGID is a port with one entry of its GID table: the local end of an address
// vector. The two belong together, for an index means nothing on another port.
type PortGID struct {
	GIDEntry
	PortAttr
}

// AH is the address vector that leads from here to the port with the given GID and,
// on InfiniBand, LID, over at most 64 hops.
func (p *PortGID) AH(dgid GID, dlid uint16) AHAttr {
	return AHAttr{
		DGID: dgid, DLID: dlid, SGIDIndex: p.Index, PortNum: p.Port, HopLimit: bringUpHopLimit,
		IsGlobal: p.LinkLayer != LinkLayerInfiniBand,
	}
}

// PortGIDs returns a port's attributes and the entries of its GID table that are in use.
func PortGIDs(ctx Context, port uint8) (PortAttr, []PortGID, error) {
	attr, err := ctx.QueryPort(port)
	if err != nil {
		return attr, nil, err
	}
	var gids []PortGID
	for i := range attr.GIDTblLen {
		g, err := ctx.QueryGID(port, i)
		if errors.Is(err, ErrInvalid) {
			break // the table has become shorter meanwhile
		}
		if err != nil {
			return attr, gids, fmt.Errorf("GID %d of port %d: %w", i, port, err)
		}
		if !g.GID.IsZero() {
			gids = append(gids, PortGID{g, attr})
		}
	}
	return attr, gids, nil
}

// UpMask is the mask that a QP of a type needs to enter INIT, RTR or RTS on its way up;
// 0 if there is none.
func UpMask(typ QPType, to QPState) QPAttrMask {
	i := int(to) - int(QPInit)
	if masks := upMasks[typ]; i >= 0 && i < len(masks) {
		return masks[i]
	}
	return 0
}

var upMasks = map[QPType][3]QPAttrMask{
	QPTypeRC: {RCMaskInit, RCMaskRTR, RCMaskRTS},
	QPTypeUC: {UCMaskInit, UCMaskRTR, UCMaskRTS},
	QPTypeUD: {UDMaskInit, UDMaskRTR, UDMaskRTS},
}

// BringUp takes a QP from RESET, or from INIT, to RTS without a connection
// manager; cm.BringUp makes attr of two addresses that were exchanged. attr holds what the three transitions need; its State does not matter. If
// one fails the QP stays where the one before has left it.
func BringUp(qp QP, attr QPAttr) error {
	from := qp.State()
	for _, to := range []QPState{QPInit, QPRTR, QPRTS} {
		if from == QPInit && to == QPInit {
			continue
		}
		attr.State = to
		if err := qp.Modify(&attr, UpMask(qp.Type(), to)); err != nil {
			return fmt.Errorf("%v to %v: %w", from, to, err)
		}
		from = to
	}
	return nil
}
