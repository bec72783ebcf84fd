//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	// keyTagBits are the lowest of a key, of which the lowest eight are the application's
	// in the key of a window.
	keyTagBits = 12
	maxMRs     = 1 << (32 - keyTagBits) // and windows
	// maxMRSize is what a peer can map of one; see peer.add.
	maxMRSize = shm.MaxPeerMapped
)

// mr is verbs.MR, or what a window is bound to. Its lkey and rkey are one number: the place in the context's
// key table and a random tag, so that a key of yesterday does not open what is
// registered today.
type mr struct {
	pd     *pd
	key    uint32
	addr   uint64
	buf    []byte
	access verbs.AccessFlags
	mem    *memory // nil: not memory that a peer can map
	memOff int     // in the file of mem
	window *window // nil for an MR
	of     *mr     // that a window is bound to; nil for an MR

	// leaving are revocations under way, of an MR and its windows. Who waits for them has seen to it that no other
	// begins.
	leaving sync.WaitGroup

	mu      sync.Mutex
	exports []*link // who was given the memory
	windows int     // bound to the MR
	closed  bool
}

func newMR(p *pd, buf []byte, access verbs.AccessFlags) (*mr, error) {
	const all = verbs.AccessLocalWrite | verbs.AccessRemote | verbs.AccessMWBind
	switch {
	case len(buf) == 0:
		return nil, fmt.Errorf("%w: registration of no memory", verbs.ErrInvalid)
	case len(buf) > maxMRSize:
		return nil, fmt.Errorf("%w: registration of %d bytes, where %d are possible", verbs.ErrInvalid, len(buf), maxMRSize)
	case access&^all != 0:
		return nil, fmt.Errorf("%w: access flags %#x", verbs.ErrInvalid, uint32(access))
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, fmt.Errorf("%w: remote write and remote atomic access need local write (IBA 10.6.3.1)", verbs.ErrInvalid)
	}
	m := &mr{pd: p, addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))), buf: buf, access: access}
	m.mem, m.memOff = p.ctx.mems.Find(buf)
	if m.mem == nil && access&(verbs.AccessRemote|verbs.AccessMWBind) != 0 {
		return nil, fmt.Errorf("%w: remote access needs memory from Context.AllocMemory", verbs.ErrInvalid)
	}
	if m.mem != nil {
		if err := m.mem.users.Hold(); err != nil {
			return nil, err
		}
	}
	if err := p.ctx.keys.add(m); err != nil {
		if m.mem != nil {
			m.mem.users.Release()
		}
		return nil, err
	}
	return m, nil
}

func (m *mr) PD() verbs.PD              { return m.pd }
func (m *mr) LKey() uint32              { return m.key }
func (m *mr) RKey() uint32              { return m.key }
func (m *mr) Addr() uint64              { return m.addr }
func (m *mr) Len() int                  { return len(m.buf) }
func (m *mr) Access() verbs.AccessFlags { return m.access }

// Close takes the key out of the table, waits until no verb of this process is
// copying by it, and has every peer that maps the memory drop its mapping.
func (m *mr) Close() error { return m.close(false) }

// ClosePatiently is driver.PatientMR's.
func (m *mr) ClosePatiently() error { return m.close(true) }

func (m *mr) close(patiently bool) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return verbs.ErrClosed
	}
	if n := m.windows; n > 0 {
		m.mu.Unlock()
		return fmt.Errorf("%w: %d memory windows are bound to the MR", verbs.ErrBusy, n)
	}
	m.closed = true
	exports := m.exports
	m.exports = nil
	m.mu.Unlock()

	m.pd.ctx.keys.remove(m)
	m.pd.quiesce()
	revoke(exports, m.key, patiently)
	m.leaving.Wait()
	m.pd.ctx.keys.give(m.key) // not before: its peers are asked about it by its key
	if m.mem != nil {
		m.mem.users.Release()
	}
	m.pd.mu.Lock()
	m.pd.mrs = without(m.pd.mrs, m)
	m.pd.mu.Unlock()
	m.pd.users.Release()
	return nil
}

// invalidate takes the key out of use at the wish of a work request; the MR itself
// stays until Close, and a window can be bound again. What it returns has the links let go
// of the memory that still have it mapped, for which Close waits, of a window too; it is nil if there are none.
func (m *mr) invalidate() (revoking func()) {
	m.pd.ctx.keys.remove(m)
	leaving := &m.leaving
	if m.of != nil {
		leaving = &m.of.leaving
	}
	m.mu.Lock()
	if links := m.exports; len(links) > 0 {
		leaving.Add(1)
		if m.window != nil {
			m.window.leaving.Add(1)
		}
		revoking = func() {
			revoke(links, m.key, false)
			leaving.Done()
			if m.window != nil {
				m.window.leaving.Done()
			}
		}
	}
	m.exports = nil
	m.mu.Unlock()
	if m.window != nil {
		m.window.unbind(m) // the last, as the MR can be closed then
	}
	return revoking
}

// busy reports whether windows are bound to the MR.
func (m *mr) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.windows > 0
}

// export notes that l is given the memory; false if the MR is closed or
// invalidated. m.mu is held.
func (m *mr) export(l *link) bool {
	if m.closed || m.pd.ctx.keys.lookup(m.key) != m {
		return false
	}
	if !slices.Contains(m.exports, l) {
		m.exports = append(m.exports, l)
	}
	return true
}

// unexport forgets a link that hung up.
func (m *mr) unexport(l *link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.exports = without(m.exports, l)
}

// slice returns the n bytes at addr, nil if they are not all in the MR.
func (m *mr) slice(addr uint64, n uint32) []byte {
	off := addr - m.addr // wraps far past the length if addr is below
	if off > uint64(len(m.buf)) || uint64(n) > uint64(len(m.buf))-off {
		return nil
	}
	return m.buf[off : off+uint64(n) : off+uint64(n)]
}

// keyTable finds MRs by key without a lock.
type keyTable struct {
	slots atomic.Pointer[[]atomic.Pointer[mr]]

	mu   sync.Mutex
	free []uint32 // indices, oldest first, so that one is not reused at once
	used int
}

// lookup returns the MR that has the key, or nil. What it returns stays valid
// while the caller holds a lock that pd.quiesce takes.
func (t *keyTable) lookup(key uint32) *mr {
	s := t.slots.Load()
	if s == nil {
		return nil
	}
	i := key >> keyTagBits
	if int(i) >= len(*s) {
		return nil
	}
	m := (*s)[i].Load()
	if m == nil || m.key != key {
		return nil
	}
	return m
}

// add gives m a key, and takes it in.
func (t *keyTable) add(m *mr) (err error) {
	if m.key, err = t.take(); err == nil {
		t.put(m)
	}
	return err
}

// take gives a key to nobody yet.
func (t *keyTable) take() (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		if err := t.grow(); err != nil {
			return 0, err
		}
	}
	i := t.free[0]
	t.free = t.free[1:]
	t.used++
	// Key 0 means no key to some callers. A window's is not, whatever its lowest byte is.
	return i<<keyTagBits | (1+rand.Uint32N(1<<(keyTagBits-8)-1))<<8 | rand.Uint32N(1<<8), nil
}

// put takes in m, whose key is its own.
func (t *keyTable) put(m *mr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.slots.Load())[m.key>>keyTagBits].Store(m)
}

// give takes a key back of which nothing is in the table.
func (t *keyTable) give(key uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, key>>keyTagBits)
	t.used--
}

// grow doubles the table. Readers may go on with the old one: a key that is
// removed meanwhile is found there until pd.quiesce has waited for them.
func (t *keyTable) grow() error {
	var old []atomic.Pointer[mr]
	if s := t.slots.Load(); s != nil {
		old = *s
	}
	n := max(64, 2*len(old))
	if n > maxMRs {
		return fmt.Errorf("%w: more than %d MRs", verbs.ErrNoMemory, maxMRs)
	}
	s := make([]atomic.Pointer[mr], n)
	for i := range old {
		s[i].Store(old[i].Load())
	}
	for i := len(old); i < n; i++ {
		t.free = append(t.free, uint32(i))
	}
	t.slots.Store(&s)
	return nil
}

// remove takes m out; a second removal does nothing. Its key stays its own until give, and that of a window the
// window's.
func (t *keyTable) remove(m *mr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot := &(*t.slots.Load())[m.key>>keyTagBits]; slot.Load() == m {
		slot.Store(nil)
	}
}
