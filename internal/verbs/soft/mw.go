//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs/object"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// window is verbs.MW. While it is bound there is an mr of its own for it, which peers ask
// for, map and let go of as they do of any other; but only the peer of one QP gets it, and
// it is no lkey.
type window struct {
	pd   *pd
	base uint32        // its key without the application's byte
	key  atomic.Uint32 // with that of the last bind

	leaving sync.WaitGroup // as an MR's

	mu     sync.Mutex
	bound  *mr // nil: it is free
	qp     *qp // for whose peer it is bound
	closed bool
}

const windowKeyMask = 1<<8 - 1

func (p *pd) AllocMW() (verbs.MW, error) {
	return object.Create(&p.users, func() (verbs.MW, error) {
		key, err := p.ctx.keys.take()
		if err != nil {
			return nil, err
		}
		w := &window{pd: p, base: key &^ windowKeyMask}
		w.key.Store(key)
		return w, nil
	})
}

func (w *window) PD() verbs.PD { return w.pd }
func (w *window) RKey() uint32 { return w.key.Load() }

// Close waits until no peer has the memory mapped any more.
func (w *window) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return verbs.ErrClosed
	}
	w.closed = true
	m := w.bound
	w.mu.Unlock()
	if m != nil {
		if revoking := m.invalidate(); revoking != nil {
			revoking()
		}
	}
	w.leaving.Wait()
	w.pd.ctx.keys.give(w.base)
	w.pd.users.Release()
	return nil
}

// unbind frees the window of m, if it is bound to that.
func (w *window) unbind(m *mr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound != m {
		return
	}
	m.of.mu.Lock()
	m.of.windows--
	m.of.mu.Unlock()
	w.bound, w.qp = nil, nil
}

// usableBy reports whether the peer of q may use m by its key, if it is of the right PD.
func (m *mr) usableBy(q *qp) bool {
	if m.window == nil {
		return true
	}
	m.window.mu.Lock()
	defer m.window.mu.Unlock()
	return m.window.bound == m && m.window.qp == q
}

// checkBind checks what is not of this device.
func (q *qp) checkBind(b *verbs.MWBind) error {
	if b != nil {
		w, ok := b.MW.(*window)
		m, ok2 := b.MR.(*mr)
		if ok && ok2 && w != nil && m != nil && w.pd.ctx == q.ctx && m.pd.ctx == q.ctx {
			return nil
		}
	}
	return fmt.Errorf("%w: BIND_MW without a window and an MR of the context", verbs.ErrInvalid)
}

// bind is BIND_MW.
func (q *qp) bind(b *verbs.MWBind) outcome {
	w, of := b.MW.(*window), b.MR.(*mr)
	const writes = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	off := b.Addr - of.addr // wraps far past the length if it is below
	size := uint64(len(of.buf))
	w.mu.Lock()
	defer w.mu.Unlock()
	of.mu.Lock()
	defer of.mu.Unlock()
	switch {
	case w.closed || w.bound != nil || w.pd != q.pd || of.pd != q.pd,
		of.closed || of.access&verbs.AccessMWBind == 0 || q.ctx.keys.lookup(of.key) != of,
		b.Length == 0 || off > size || b.Length > size-off,
		b.Access&^verbs.AccessRemote != 0 || b.Access&writes != 0 && of.access&verbs.AccessLocalWrite == 0:
		return failed(verbs.WCMWBindErr)
	}
	w.bound = &mr{
		pd: q.pd, key: w.base | uint32(b.Key), addr: b.Addr, buf: of.buf[off : off+b.Length], access: b.Access,
		mem: of.mem, memOff: of.memOff + int(off), window: w, of: of,
	}
	w.qp = q
	of.windows++
	q.ctx.keys.put(w.bound)
	return succeeded
}
