//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// ah is verbs.AH.
type ah struct {
	pd     *pd
	handle atomic.Uintptr // struct ibv_ah, 0 once closed
	mu     sync.Mutex     // of Close
}

func (p *pd) CreateAH(attr *verbs.AHAttr) (verbs.AH, error) {
	if attr == nil {
		return nil, fmt.Errorf("%w: no attributes", verbs.ErrInvalid)
	}
	if err := p.ctx.checkAV(attr); err != nil {
		return nil, err
	}
	if err := p.users.Hold(); err != nil {
		return nil, err
	}
	var c cAHAttr
	fillAH(&c, attr)
	r, errno := p.ctx.makes(p.ctx.lib.createAH, p.handle, uintptr(unsafe.Pointer(&c)))
	if r == 0 {
		p.users.Release()
		return nil, failed("ibv_create_ah", errno)
	}
	a := &ah{pd: p}
	a.handle.Store(r)
	return a, nil
}

func (a *ah) PD() verbs.PD { return a.pd }

// Close destroys the handle. Sends that name it must have completed.
func (a *ah) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	handle := a.handle.Swap(0)
	if handle == 0 {
		return verbs.ErrClosed
	}
	if err := returned("ibv_destroy_ah", a.pd.ctx.ends(a.pd.ctx.lib.destroyAH, handle)); err != nil {
		a.handle.Store(handle)
		return err
	}
	a.pd.users.Release()
	return nil
}
