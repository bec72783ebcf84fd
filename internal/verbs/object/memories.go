package object

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Memories finds the verbs.Memory that an address belongs to, so that it counts the MRs that
// cover it. The zero value has none. Any goroutine may call its methods at any time.
type Memories[M interface{ Bytes() []byte }] struct {
	mu   sync.Mutex
	list []M // by address
}

func base(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func compareBase[M interface{ Bytes() []byte }](m M, addr uintptr) int {
	return cmp.Compare(base(m.Bytes()), addr)
}

// Add adds a memory that was mapped.
func (s *Memories[M]) Add(m M) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.list, base(m.Bytes()), compareBase[M])
	s.list = slices.Insert(s.list, i, m)
}

// Close removes a memory that is about to be unmapped, unless it has users: MRs that cover it.
func (s *Memories[M]) Close(m M, users *Users) error {
	err := users.Close(func(mrs int) error {
		if mrs > 0 {
			return fmt.Errorf("%w: %d MRs cover the memory", verbs.ErrBusy, mrs)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := slices.BinarySearchFunc(s.list, base(m.Bytes()), compareBase[M]); ok {
		s.list = slices.Delete(s.list, i, i+1)
	}
	return nil
}

// Find returns the memory that holds all of buf and buf's place in it, or the zero value.
func (s *Memories[M]) Find(buf []byte) (m M, off int) {
	addr := base(buf)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := slices.BinarySearchFunc(s.list, addr, compareBase[M])
	if !ok {
		if i == 0 {
			return m, 0
		}
		i--
	}
	all := s.list[i].Bytes()
	past := addr - base(all)
	if past >= uintptr(len(all)) || uintptr(len(buf)) > uintptr(len(all))-past {
		return m, 0
	}
	return s.list[i], int(past)
}
