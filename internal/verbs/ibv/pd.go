//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs/object"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// pd is verbs.PD.
type pd struct {
	ctx    *devContext
	handle uintptr      // struct ibv_pd
	users  object.Users // what was made from the PD
}

func (p *pd) Context() verbs.Context { return p.ctx }

func (p *pd) Close() error {
	err := p.users.Close(func(users int) error {
		if users > 0 {
			return fmt.Errorf("%w: %d objects of the PD exist", verbs.ErrBusy, users)
		}
		return returned("ibv_dealloc_pd", p.ctx.ends(p.ctx.lib.deallocPD, p.handle))
	})
	if err == nil {
		p.ctx.users.Release()
	}
	return err
}

// mr is verbs.MR.
type mr struct {
	pd         *pd
	mem        *memory // that buf is of, or nil
	buf        []byte
	access     verbs.AccessFlags
	lkey, rkey uint32

	mu     sync.Mutex
	handle uintptr // struct ibv_mr, 0 once closed
}

func (p *pd) RegMR(buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	const all = verbs.AccessLocalWrite | verbs.AccessRemote | verbs.AccessMWBind
	switch {
	case len(buf) == 0:
		return nil, fmt.Errorf("%w: registration of no memory", verbs.ErrInvalid)
	case access&^all != 0:
		return nil, fmt.Errorf("%w: access rights %#x", verbs.ErrInvalid, uint32(access))
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, fmt.Errorf("%w: remote write or atomic without local write", verbs.ErrInvalid)
	}
	return object.Create(&p.users, func() (verbs.MR, error) {
		mem, _ := p.ctx.mems.Find(buf)
		if mem == nil {
			return p.register(nil, buf, access)
		}
		return object.Create(&mem.users, func() (verbs.MR, error) { return p.register(mem, buf, access) })
	})
}

// register makes an MR of what is of mem, or of none. Both are held.
func (p *pd) register(mem *memory, buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	r, errno := p.ctx.makes(p.ctx.lib.regMR, p.handle, uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)), uintptr(access))
	if r == 0 {
		return nil, fmt.Errorf("registering %d bytes: %w", len(buf), failed("ibv_reg_mr", errno))
	}
	m := at[cMR](r)
	return &mr{pd: p, mem: mem, buf: buf, access: access, lkey: m.lkey, rkey: m.rkey, handle: r}, nil
}

func (m *mr) PD() verbs.PD              { return m.pd }
func (m *mr) LKey() uint32              { return m.lkey }
func (m *mr) RKey() uint32              { return m.rkey }
func (m *mr) Addr() uint64              { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.buf)))) }
func (m *mr) Len() int                  { return len(m.buf) }
func (m *mr) Access() verbs.AccessFlags { return m.access }

func (m *mr) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handle == 0 {
		return verbs.ErrClosed
	}
	if err := returned("ibv_dereg_mr", m.pd.ctx.ends(m.pd.ctx.lib.deregMR, m.handle)); err != nil {
		if errors.Is(err, verbs.ErrInvalid) {
			err = fmt.Errorf("%w: memory windows are bound to the MR: %w", verbs.ErrBusy, err) // what the kernel means
		}
		return err
	}
	m.handle = 0
	if m.mem != nil {
		m.mem.users.Release()
	}
	m.pd.users.Release()
	return nil
}
