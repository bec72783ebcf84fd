//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// ah is verbs.AH.
type ah struct {
	pd     *pd
	attr   verbs.AHAttr
	sgid   verbs.GID
	local  bool // somebody may be there: the device reaches no other host
	closed atomic.Bool
}

func (p *pd) CreateAH(attr *verbs.AHAttr) (verbs.AH, error) {
	if attr == nil || attr.PortNum != 1 || !attr.IsGlobal || attr.SL > 15 || attr.FlowLabel >= 1<<20 {
		return nil, fmt.Errorf("%w: address vector %+v for port 1 and a GID", verbs.ErrInvalid, attr)
	}
	from, err := p.ctx.QueryGID(1, attr.SGIDIndex)
	if err != nil {
		return nil, err
	}
	to := attr.DGID.Addr()
	if to.Is4() != from.GID.Addr().Is4() {
		return nil, fmt.Errorf("%w: from %v to %v", verbs.ErrInvalid, from.GID.Addr(), to)
	}
	local, err := isLocal(to)
	if err != nil {
		return nil, err
	}
	if err := p.users.Hold(); err != nil {
		return nil, err
	}
	return &ah{pd: p, attr: *attr, sgid: from.GID, local: local}, nil
}

func (a *ah) PD() verbs.PD { return a.pd }

func (a *ah) Close() error {
	if a.closed.Swap(true) {
		return verbs.ErrClosed
	}
	a.pd.users.Release()
	return nil
}
