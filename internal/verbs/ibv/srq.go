//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// srq is verbs.SRQ.
type srq struct {
	pd     *pd
	handle uintptr // struct ibv_srq
	size   int

	mu     sync.Mutex
	recvs  recvList
	postFn uintptr
	args   [3]uintptr
	bad    *uintptr
	mem    *arena
	users  int // QPs
	closed bool
}

func (p *pd) CreateSRQ(attr *verbs.SRQInitAttr) (verbs.SRQ, error) {
	limits := &p.ctx.limits.attr
	switch {
	case attr == nil:
		return nil, fmt.Errorf("%w: no attributes", verbs.ErrInvalid)
	case limits.Caps&verbs.CapSRQ == 0:
		return nil, fmt.Errorf("%w: SRQ", verbs.ErrNotSupported)
	case attr.MaxWR < 1 || attr.MaxWR > limits.MaxSRQWR:
		return nil, fmt.Errorf("%w: SRQ of %d requests, where 1 to %d are possible", verbs.ErrInvalid, attr.MaxWR, limits.MaxSRQWR)
	case attr.MaxSGE < 0 || attr.MaxSGE > limits.MaxSRQSGE:
		return nil, fmt.Errorf("%w: SRQ with %d SGEs, where 0 to %d are possible", verbs.ErrInvalid, attr.MaxSGE, limits.MaxSRQSGE)
	case attr.SRQLimit < 0 || attr.SRQLimit > attr.MaxWR:
		return nil, fmt.Errorf("%w: limit %d of an SRQ of %d requests", verbs.ErrInvalid, attr.SRQLimit, attr.MaxWR)
	}
	if err := p.users.Hold(); err != nil {
		return nil, err
	}
	s, err := newSRQ(p, attr)
	if err != nil {
		p.users.Release()
		return nil, err
	}
	return s, nil
}

func newSRQ(p *pd, attr *verbs.SRQInitAttr) (*srq, error) {
	lib := p.ctx.lib
	in := &cSRQInitAttr{attr: cSRQAttr{maxWR: uint32(attr.MaxWR), maxSGE: uint32(attr.MaxSGE), limit: uint32(attr.SRQLimit)}}
	r, errno := p.ctx.makes(lib.createSRQ, p.handle, uintptr(unsafe.Pointer(in)))
	if r == 0 {
		return nil, fmt.Errorf("SRQ of %d requests: %w", attr.MaxWR, failed("ibv_create_srq", errno))
	}
	s := &srq{pd: p, handle: r, postFn: p.ctx.ops().postSRQRecv, size: max(int(in.attr.maxWR), attr.MaxWR)}
	maxSGE := max(int(in.attr.maxSGE), attr.MaxSGE)
	mem, err := newArena(lib, recvListSize(maxSGE)+arraySize[uintptr](1))
	if err != nil {
		p.ctx.ends(lib.destroySRQ, r)
		return nil, err
	}
	s.mem = mem
	s.recvs.init(mem, maxSGE)
	s.recvs.siw = p.ctx.isSoftIWARP()
	s.bad = &array[uintptr](mem, 1)[0]
	s.args = [3]uintptr{r, uintptr(unsafe.Pointer(&s.recvs.wrs[0])), uintptr(unsafe.Pointer(s.bad))}
	p.ctx.addSRQ(s)
	// ibv_create_srq(3) ignores the limit.
	if attr.SRQLimit > 0 {
		if err := s.SetLimit(attr.SRQLimit); err != nil {
			_ = s.destroy() // the error that matters is the first
			return nil, err
		}
	}
	return s, nil
}

func (s *srq) PD() verbs.PD { return s.pd }

func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0, verbs.ErrClosed
	}
	n, err := s.recvs.post("ibv_post_srq_recv", s.postFn, &s.args, s.bad, wrs)
	s.mu.Unlock()
	return n, err
}

func (s *srq) SetLimit(limit int) error {
	if limit < 0 || limit > s.size {
		return fmt.Errorf("%w: limit %d of an SRQ of %d requests", verbs.ErrInvalid, limit, s.size)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return verbs.ErrClosed
	}
	attr := cSRQAttr{limit: uint32(limit)}
	return returned("ibv_modify_srq", s.pd.ctx.changes(s.pd.ctx.lib.modifySRQ, s.handle, uintptr(unsafe.Pointer(&attr)), srqMaskLimit))
}

func (s *srq) hold() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return verbs.ErrClosed
	}
	s.users++
	return nil
}

func (s *srq) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// destroy destroys the C object and frees the arrays.
func (s *srq) destroy() error {
	s.pd.ctx.forgetSRQ(s)
	err := returned("ibv_destroy_srq", s.pd.ctx.ends(s.pd.ctx.lib.destroySRQ, s.handle))
	s.mem.free()
	return err
}

func (s *srq) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return verbs.ErrClosed
	}
	if s.users > 0 {
		return fmt.Errorf("%w: %d QPs use the SRQ", verbs.ErrBusy, s.users)
	}
	s.closed = true
	err := s.destroy()
	s.pd.users.Release()
	return err
}
