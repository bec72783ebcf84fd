//go:build linux && (amd64 || arm64)

package soft

import (
	"cmp"
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func (id *cmID) CreateQP(pd verbs.PD, attr *verbs.QPInitAttr) (verbs.QP, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("CreateQP", cmAddrResolved, cmRouteResolved, cmRequested); err != nil {
		return nil, err
	}
	if id.qp != nil {
		return nil, fmt.Errorf("CreateQP on an id that has a QP: %w", verbs.ErrState)
	}
	if pd == nil || pd.Context() != id.ctx {
		return nil, fmt.Errorf("the PD is not one of the id's Verbs(): %w", verbs.ErrInvalid)
	}
	if attr != nil && attr.Type != verbs.QPTypeRC {
		return nil, fmt.Errorf("QP of type %v on an id that connects: %w", attr.Type, verbs.ErrInvalid)
	}
	q, err := pd.CreateQP(attr)
	if err != nil {
		return nil, err
	}
	init := verbs.QPAttr{State: verbs.QPInit, PortNum: 1, AccessFlags: verbs.AccessRemoteWrite}
	if err := q.Modify(&init, verbs.RCMaskInit); err != nil {
		q.Close()
		return nil, err
	}
	id.qp = q.(*qp)
	return q, nil
}

// checkParam checks what an application asks for.
func checkParam(p *driver.ConnParam, maxPrivate int) error {
	switch {
	case len(p.PrivateData) > maxPrivate:
		return fmt.Errorf("%d bytes of private data are more than %d: %w", len(p.PrivateData), maxPrivate, verbs.ErrInvalid)
	case p.RetryCount > 7 || p.RNRRetryCount > 7:
		return fmt.Errorf("retry counts %d and %d are not both 0 to 7: %w", p.RetryCount, p.RNRRetryCount, verbs.ErrInvalid)
	}
	return nil
}

// swapped is what the peer sent, as an event shows it: what it takes as a
// responder is what this end may initiate (rdma_get_cm_event(3)).
func swapped(p driver.ConnParam) driver.ConnParam {
	p.ResponderResources, p.InitiatorDepth = p.InitiatorDepth, p.ResponderResources
	return p
}

// rtsAttr is how a QP is brought up by what the two ends agreed on. RNR retries are what
// the peer asked for.
func (id *cmID) rtsAttr(own, peer driver.ConnParam) verbs.QPAttr {
	access := verbs.AccessRemoteWrite
	if own.ResponderResources > 0 {
		access |= verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	}
	return verbs.QPAttr{
		PathMTU:     verbs.MTU4096,
		DestQPN:     peer.QPNum,
		AccessFlags: access,
		AH: verbs.AHAttr{
			DGID:         verbs.GIDFromAddr(id.remote.Addr()),
			PortNum:      1,
			IsGlobal:     true,
			HopLimit:     1,
			TrafficClass: id.opts.TOS,
		},
		PortNum:         1,
		MaxRdAtomic:     min(own.InitiatorDepth, peer.ResponderResources),
		MaxDestRdAtomic: own.ResponderResources,
		MinRNRTimer:     verbs.DefaultMinRNRTimer,
		Timeout:         cmp.Or(id.opts.AckTimeout, verbs.DefaultAckTimeout),
		RetryCnt:        own.RetryCount,
		RNRRetry:        peer.RNRRetryCount,
	}
}
