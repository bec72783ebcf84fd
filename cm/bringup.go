package cm

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A BringUpParam holds the parameters of a connection that is brought up by hand. Start
// from DefaultBringUpParam: here 0 is not a default.
type BringUpParam struct {
	// Access is what the peer may do in memory that allows it too.
	Access verbs.AccessFlags
	// AckTimeout and RetryCount say when a peer that does not answer is given up:
	// after 4.096 us x 2^AckTimeout x (RetryCount + 1), while a device may take up to
	// four times as long (IBA 9.7.6.1.3). AckTimeout 0 is for ever, RetryCount is at
	// most 7.
	AckTimeout uint8
	RetryCount uint8
	// MinRNRTimer is how long the peer has to wait before it tries again when this end
	// has no receive posted, as IBA table 46 numbers the times. RNRRetryCount is how
	// often this end tries again then; 7 is for ever.
	MinRNRTimer   uint8
	RNRRetryCount uint8
	// TOS is the type of service of RoCE v2's IP packets, and the traffic class of a GRH.
	TOS uint8
	// SL is the service level, 0 to 15.
	SL uint8
	// QKey is what a datagram must have for a UD QP to receive it.
	QKey uint32
}

// DefaultBringUpParam lets the peer write, and gives up a dead one after 2.1 s
// (0.27 s x 8) and one that posts no receives after some 4 ms (0.64 ms x 6).
func DefaultBringUpParam() BringUpParam {
	return BringUpParam{
		Access:        verbs.AccessLocalWrite | verbs.AccessRemoteWrite,
		AckTimeout:    verbs.DefaultAckTimeout,
		RetryCount:    7,
		MinRNRTimer:   verbs.DefaultMinRNRTimer,
		RNRRetryCount: 6,
	}
}

// A BringUpError says why a QP could not be connected to another by hand.
type BringUpError struct {
	Local, Remote QPAddr // Remote is zero on the way to INIT
	Err           error
}

func (e *BringUpError) Error() string {
	if e.Remote == (QPAddr{}) {
		return fmt.Sprintf("cm: cannot initialize %s: %v", e.Local, e.Err)
	}
	return fmt.Sprintf("cm: cannot connect %s to %s: %v", e.Local, e.Remote, e.Err)
}

// Unwrap returns the cause: verbs.ErrInvalid for arguments that cannot be, verbs.ErrNoRoute for two
// ports that cannot reach each other, and otherwise what the device said.
func (e *BringUpError) Unwrap() error { return e.Err }

// InitQP takes a QP from RESET to INIT, where it takes receives. A program that
// cannot have its peer wait for receives posts them now, before it tells the peer the
// QP's address. A nil param stands for DefaultBringUpParam.
func InitQP(qp verbs.QP, at *Port, param *BringUpParam) error {
	local := QPAddr{GID: at.GID, GIDType: at.Type, LID: at.LID, QPN: qp.QPN()}
	attr := param.attr(at)
	attr.State = verbs.QPInit
	err := checkQP(qp, at)
	if err == nil {
		err = qp.Modify(&attr, verbs.UpMask(qp.Type(), verbs.QPInit))
	}
	if err != nil {
		return &BringUpError{Local: local, Err: err}
	}
	return nil
}

// BringUp takes a QP from RESET, or from INIT, to RTS without the connection
// manager: it connects the QP at a port to the peer's, which the peer does likewise.
// local is what the peer was told of it. The path MTU is the smaller of the two ends'.
// A nil param stands for DefaultBringUpParam.
//
// The two ends need not have the same GID index, but GIDs of one type, and on RoCE v2
// of one IP version, as packets are of one. When BringUp returns, the peer may not have
// come that far; what is sent meanwhile waits for it, as long as the retries last. On UC,
// where nothing is sent twice, it may be lost. A QP of type UD has no peer: it takes the
// datagrams of whoever knows its address and the QKey of param, and remote is not looked at.
//
// It fails with a *BringUpError. The QP may have got as far as RTR then; RESET takes it
// back to the beginning.
func BringUp(qp verbs.QP, at *Port, local, remote QPAddr, param *BringUpParam) error {
	if qp.Type() == verbs.QPTypeUD {
		remote = local
	}
	attr := param.attr(at)
	attr.DestQPN, attr.RQPSN, attr.SQPSN = remote.QPN, remote.PSN, local.PSN
	attr.PathMTU = min(local.MTU, remote.MTU)
	attr.AH.DGID, attr.AH.DLID = remote.GID, remote.LID
	attr.MaxDestRdAtomic = local.RdAtomic
	err := checkEnds(qp, at, local, remote)
	if err == nil {
		attr.MaxRdAtomic, err = initiates(qp, remote)
	}
	if err == nil {
		err = verbs.BringUp(qp, attr)
	}
	if err != nil {
		return &BringUpError{Local: local, Remote: remote, Err: err}
	}
	return nil
}

// attr is what the parameters and the port say.
func (p *BringUpParam) attr(at *Port) verbs.QPAttr {
	if p == nil {
		d := DefaultBringUpParam()
		p = &d
	}
	av := at.AH(verbs.GID{}, 0)
	av.TrafficClass, av.SL = p.TOS, p.SL
	return verbs.QPAttr{
		PortNum: at.Port, AccessFlags: p.Access, AH: av,
		Timeout: p.AckTimeout, RetryCnt: p.RetryCount,
		MinRNRTimer: p.MinRNRTimer, RNRRetry: p.RNRRetryCount, QKey: p.QKey,
	}
}

// initiates is how many READs and atomics may be outstanding towards the peer.
func initiates(qp verbs.QP, remote QPAddr) (uint8, error) {
	dev, err := qp.PD().Context().QueryDevice()
	return uint8(min(dev.MaxQPInitRdAtom, int(remote.RdAtomic))), err
}

// checkQP checks that a QP can be brought up at a port.
func checkQP(qp verbs.QP, at *Port) error {
	ctx := qp.PD().Context()
	if verbs.UpMask(qp.Type(), verbs.QPInit) == 0 {
		return fmt.Errorf("a QP of type %s: %w", qp.Type(), verbs.ErrNotSupported)
	}
	if on := ctx.Device().Name(); at.Device == nil || on != at.Device.Name() {
		return fmt.Errorf("the QP is on device %s, the port is not: %w", on, verbs.ErrInvalid)
	}
	// The table may have changed since the port was found.
	g, err := ctx.QueryGID(at.Port, at.Index)
	if err != nil {
		return err
	}
	if g.GID != at.GID || g.Type != at.Type {
		return fmt.Errorf("GID index %d of port %d is not %s but %s: %w", at.Index, at.Port, place(at.GID, at.Type), place(g.GID, g.Type), verbs.ErrInvalid)
	}
	return nil
}

// checkEnds checks that the addresses are right, and that they can reach each other.
func checkEnds(qp verbs.QP, at *Port, local, remote QPAddr) error {
	for _, a := range []*QPAddr{&local, &remote} {
		if err := a.check(); err != nil {
			return err
		}
	}
	if err := checkQP(qp, at); err != nil {
		return err
	}
	switch {
	case local.QPN != qp.QPN():
		return fmt.Errorf("the local address is not that of QP %#06x: %w", qp.QPN(), verbs.ErrInvalid)
	case local.GID != at.GID || local.GIDType != at.Type || local.LID != at.LID:
		return fmt.Errorf("the local address is not at %s: %w", place(at.GID, at.Type), verbs.ErrInvalid)
	case local.MTU > at.ActiveMTU:
		return fmt.Errorf("the port has an MTU of %d bytes, not %d: %w", at.ActiveMTU.Bytes(), local.MTU.Bytes(), verbs.ErrInvalid)
	case local.GIDType != remote.GIDType:
		return fmt.Errorf("%s and %s do not understand each other: %w", local.GIDType, remote.GIDType, verbs.ErrNoRoute)
	case local.GIDType == verbs.GIDTypeRoCEv2 && local.GID.Addr().Is4() != remote.GID.Addr().Is4():
		return fmt.Errorf("one is an IPv4 address, the other IPv6: %w", verbs.ErrNoRoute)
	case local.GIDType == verbs.GIDTypeIB && subnet(local.GID) != subnet(remote.GID):
		return fmt.Errorf("in another InfiniBand subnet, to which only a path record of the subnet manager leads; use Connect and Accept: %w", verbs.ErrNotSupported)
	}
	return nil
}

// subnet is the prefix of an InfiniBand GID.
func subnet(g verbs.GID) [8]byte { return [8]byte(g[:8]) }
