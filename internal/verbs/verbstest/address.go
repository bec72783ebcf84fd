package verbstest

import (
	"errors"
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// Location is where a Context is attached: the port and the GID to connect by.
type Location struct {
	Port    uint8
	GID     verbs.GIDEntry
	MTU     verbs.MTU
	LID     uint16
	RoCE    bool // the address vector is global
	RdAtom  uint8
	DestRdA uint8
}

// Locate finds the first active port and the best entry of its GID table: RoCE
// v2 before others, and of these an IPv4 address first.
func Locate(ctx verbs.Context) (Location, error) {
	dev, err := ctx.QueryDevice()
	if err != nil {
		return Location{}, err
	}
	for port := uint8(1); int(port) <= dev.PhysPortCnt; port++ {
		attr, err := ctx.QueryPort(port)
		if err != nil {
			return Location{}, err
		}
		if attr.State != verbs.PortActive {
			continue
		}
		gid, err := bestGID(ctx, port, attr.GIDTblLen)
		if err != nil {
			return Location{}, err
		}
		return Location{
			Port: port, GID: gid, MTU: attr.ActiveMTU, LID: attr.LID,
			RoCE:    attr.LinkLayer != verbs.LinkLayerInfiniBand,
			RdAtom:  uint8(min(dev.MaxQPInitRdAtom, 16)),
			DestRdA: uint8(min(dev.MaxQPRdAtom, 16)),
		}, nil
	}
	return Location{}, errors.New("no active port")
}

func bestGID(ctx verbs.Context, port uint8, n int) (verbs.GIDEntry, error) {
	var best verbs.GIDEntry
	bestRank := 0
	for i := range n {
		g, err := ctx.QueryGID(port, i)
		if err != nil {
			return best, fmt.Errorf("GID %d of port %d: %w", i, port, err)
		}
		rank := 0
		switch {
		case g.GID.IsZero():
		case g.Type == verbs.GIDTypeRoCEv2 && g.GID.Addr().Is4():
			rank = 3
		case g.Type == verbs.GIDTypeRoCEv2:
			rank = 2
		default:
			rank = 1
		}
		if rank > bestRank {
			best, bestRank = g, rank
		}
	}
	if bestRank == 0 {
		return best, fmt.Errorf("port %d has no GID", port)
	}
	return best, nil
}

// Address is what two QPs must know of each other before they can be connected;
// it is exchanged out of band.
type Address struct {
	QPN uint32
	PSN uint32
	GID verbs.GID
	LID uint16
}

// ConnAttr are the attributes of a connection that tests vary; see DefaultConnAttr.
type ConnAttr struct {
	Access      verbs.AccessFlags // what the peer may do through the QP
	MinRNRTimer uint8
	Timeout     uint8
	RetryCnt    uint8
	RNRRetry    uint8
}

// DefaultConnAttr allows everything, waits for receives for ever and for an
// acknowledgement half a second.
func DefaultConnAttr() ConnAttr {
	return ConnAttr{
		Access:      verbs.AccessLocalWrite | verbs.AccessRemote,
		MinRNRTimer: 1,
		Timeout:     14,
		RetryCnt:    7,
		RNRRetry:    7,
	}
}

// InitAttr is what takes a QP from RESET to INIT, with RCMaskInit.
func (at Location) InitAttr(c ConnAttr) verbs.QPAttr {
	return verbs.QPAttr{State: verbs.QPInit, PortNum: at.Port, AccessFlags: c.Access}
}

// RTRAttr is what takes a QP from INIT to RTR, with RCMaskRTR.
func (at Location) RTRAttr(remote Address, c ConnAttr) verbs.QPAttr {
	return verbs.QPAttr{
		State:   verbs.QPRTR,
		PathMTU: at.MTU,
		DestQPN: remote.QPN,
		RQPSN:   remote.PSN,
		AH: verbs.AHAttr{
			DGID: remote.GID, DLID: remote.LID, SGIDIndex: at.GID.Index,
			PortNum: at.Port, HopLimit: 64, IsGlobal: at.RoCE,
		},
		MaxDestRdAtomic: at.DestRdA,
		MinRNRTimer:     c.MinRNRTimer,
	}
}

// RTSAttr is what takes a QP from RTR to RTS, with RCMaskRTS.
func (at Location) RTSAttr(local Address, c ConnAttr) verbs.QPAttr {
	return verbs.QPAttr{
		State:       verbs.QPRTS,
		SQPSN:       local.PSN,
		Timeout:     c.Timeout,
		RetryCnt:    c.RetryCnt,
		RNRRetry:    c.RNRRetry,
		MaxRdAtomic: at.RdAtom,
	}
}

// BringUp takes a QP from RESET, or from INIT, to RTS by hand, as programs do that use no
// connection manager.
func BringUp(qp verbs.QP, at Location, local, remote Address, c ConnAttr) error {
	if qp.State() == verbs.QPReset {
		attr := at.InitAttr(c)
		if err := qp.Modify(&attr, verbs.RCMaskInit); err != nil {
			return fmt.Errorf("RESET to INIT: %w", err)
		}
	}
	attr := at.RTRAttr(remote, c)
	if err := qp.Modify(&attr, verbs.RCMaskRTR); err != nil {
		return fmt.Errorf("INIT to RTR: %w", err)
	}
	attr = at.RTSAttr(local, c)
	if err := qp.Modify(&attr, verbs.RCMaskRTS); err != nil {
		return fmt.Errorf("RTR to RTS: %w", err)
	}
	return nil
}
