//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"sync"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// mw is verbs.MW.
type mw struct {
	pd *pd

	mu     sync.Mutex
	handle uintptr // struct ibv_mw, 0 once closed
	rkey   uint32
}

func (p *pd) AllocMW() (verbs.MW, error) {
	if p.ctx.limits.attr.Caps&verbs.CapMemWindow == 0 {
		return nil, fmt.Errorf("%w: memory windows of type 2B", verbs.ErrNotSupported)
	}
	if err := p.users.Hold(); err != nil {
		return nil, err
	}
	r, errno := p.ctx.makes(p.ctx.ops().allocMW, p.handle, mwType2)
	if r == 0 {
		p.users.Release()
		return nil, failed("ibv_alloc_mw", errno)
	}
	return &mw{pd: p, handle: r, rkey: at[cMW](r).rkey}, nil
}

func (w *mw) PD() verbs.PD { return w.pd }

func (w *mw) RKey() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rkey
}

func (w *mw) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handle == 0 {
		return verbs.ErrClosed
	}
	if err := returned("ibv_dealloc_mw", w.pd.ctx.ends(w.pd.ctx.ops().deallocMW, w.handle)); err != nil {
		return err
	}
	w.handle = 0
	w.pd.users.Release()
	return nil
}

// postBind posts a BIND_MW, in a call of its own: the library reads the window's former key
// during the call, and it is for the application to write the new one behind it.
func (q *qp) postBind(wr *verbs.SendWR) error {
	l, b := &q.sends, wr.Bind
	if b == nil {
		return fmt.Errorf("%w: BIND_MW that names no window", verbs.ErrInvalid)
	}
	w, ok := b.MW.(*mw)
	m, ok2 := b.MR.(*mr)
	if !ok || !ok2 || w.pd.ctx != q.ctx || m.pd.ctx != q.ctx || len(wr.SGList) > 0 {
		return fmt.Errorf("%w: BIND_MW without a window and an MR of the context", verbs.ErrInvalid)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.handle == 0 || m.handle == 0 {
		return fmt.Errorf("memory window or its MR: %w", verbs.ErrClosed)
	}
	l.reset()
	if ok, err := l.add(wr); !ok {
		return err
	}
	rkey := w.rkey&^0xff | uint32(b.Key)
	l.wrs[0].bindMW = cBindMW{mw: w.handle, rkey: rkey, mr: m.handle, addr: b.Addr, length: b.Length, access: uint32(b.Access)}
	_, err := q.flushSends()
	l.wrs[0].bindMW = cBindMW{}
	if err == nil {
		w.rkey = rkey
		at[cMW](w.handle).rkey = rkey
	}
	return err
}

// alone reports whether a request has to be posted by itself, not in a chain with others.
func (q *qp) alone(wr *verbs.SendWR) bool {
	return wr.Opcode == verbs.WRBindMW || q.writer != nil && wr.Opcode == verbs.WRAtomicWrite
}

// postAlone posts such a request.
func (q *qp) postAlone(wr *verbs.SendWR) error {
	if wr.Opcode == verbs.WRBindMW {
		return q.postBind(wr)
	}
	return q.writer.post(&q.sends, wr)
}
