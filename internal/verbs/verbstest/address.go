package verbstest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Location is where a Context is attached: the port and the GID to connect by, and
// how many READs and atomics the device takes.
type Location struct {
	verbs.PortGID
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
		attr, gids, err := verbs.PortGIDs(ctx, port)
		if err != nil {
			return Location{}, err
		}
		if attr.State != verbs.PortActive {
			continue
		}
		if len(gids) == 0 {
			return Location{}, fmt.Errorf("port %d has no GID", port)
		}
		return Location{
			PortGID: slices.MaxFunc(gids, func(a, b verbs.PortGID) int { return gidRank(a) - gidRank(b) }),
			RdAtom:  uint8(min(dev.MaxQPInitRdAtom, 16)),
			DestRdA: uint8(min(dev.MaxQPRdAtom, 16)),
		}, nil
	}
	return Location{}, errors.New("no active port")
}

func gidRank(g verbs.PortGID) int {
	switch {
	case g.Type == verbs.GIDTypeRoCEv2 && g.GID.Addr().Is4():
		return 2
	case g.Type == verbs.GIDTypeRoCEv2:
		return 1
	}
	return 0
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
	QKey        uint32 // of a UD QP
}

const testQKey = 0x11223344

// DefaultConnAttr allows everything, waits for receives for ever and for an
// acknowledgement four seconds: so long may a busy machine take to bring up the peer.
func DefaultConnAttr() ConnAttr {
	return ConnAttr{
		Access:      verbs.AccessLocalWrite | verbs.AccessRemote,
		MinRNRTimer: 1,
		Timeout:     17, // 0.54 s, eight times
		RetryCnt:    7,
		RNRRetry:    7,
		QKey:        testQKey,
	}
}

// InitAttr is what takes a QP from RESET to INIT, with UpMask.
func (at Location) InitAttr(c ConnAttr) verbs.QPAttr {
	return at.attr(verbs.QPInit, Address{}, Address{}, c)
}

// RTRAttr is what takes a QP from INIT to RTR, with UpMask.
func (at Location) RTRAttr(remote Address, c ConnAttr) verbs.QPAttr {
	return at.attr(verbs.QPRTR, Address{}, remote, c)
}

// RTSAttr is what takes a QP from RTR to RTS, with UpMask.
func (at Location) RTSAttr(local Address, c ConnAttr) verbs.QPAttr {
	return at.attr(verbs.QPRTS, local, Address{}, c)
}

func (at Location) attr(to verbs.QPState, local, remote Address, c ConnAttr) verbs.QPAttr {
	return verbs.QPAttr{
		State:           to,
		PortNum:         at.Port,
		AccessFlags:     c.Access,
		PathMTU:         at.ActiveMTU,
		AH:              at.AH(remote.GID, remote.LID),
		DestQPN:         remote.QPN,
		RQPSN:           remote.PSN,
		SQPSN:           local.PSN,
		MaxDestRdAtomic: at.DestRdA,
		MaxRdAtomic:     at.RdAtom,
		MinRNRTimer:     c.MinRNRTimer,
		Timeout:         c.Timeout,
		RetryCnt:        c.RetryCnt,
		RNRRetry:        c.RNRRetry,
		QKey:            c.QKey,
	}
}

// BringUp takes a QP from RESET, or from INIT, to RTS by hand.
func BringUp(qp verbs.QP, at Location, local, remote Address, c ConnAttr) error {
	return verbs.BringUp(qp, at.attr(verbs.QPRTS, local, remote, c))
}
