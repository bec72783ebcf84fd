package faulty

import (
	"sync"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// keys find MRs by their lkeys.
type keys struct {
	mu  sync.RWMutex
	mrs map[uint32]*mr
}

func (k *keys) add(m *mr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mrs == nil {
		k.mrs = map[uint32]*mr{}
	}
	k.mrs[m.LKey()] = m
}

// remove forgets a closed MR, unless its key is that of another already.
func (k *keys) remove(m *mr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := m.LKey(); k.mrs[key] == m {
		delete(k.mrs, key)
	}
}

// find returns the memory of an SGE; none if it is not all in an MR that has the key.
func (k *keys) find(sge verbs.SGE) (*mr, []byte) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	m := k.mrs[sge.LKey]
	if m == nil {
		return nil, nil
	}
	off := sge.Addr - m.Addr() // wraps far past the length if it is below
	if off > uint64(len(m.buf)) || uint64(sge.Length) > uint64(len(m.buf))-off {
		return nil, nil
	}
	return m, m.buf[off:][:sge.Length]
}
