//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// An arena is zeroed C memory, from which the arrays of one queue are cut. C code
// keeps addresses into it between calls, which Go memory must not serve for.
type arena struct {
	lib  *libibverbs
	base uintptr
	next uintptr
	end  uintptr
}

func newArena(lib *libibverbs, size uintptr) (*arena, error) {
	base := call(lib.calloc, 1, size)
	if base == 0 {
		return nil, verbs.ErrNoMemory
	}
	return &arena{lib: lib, base: base, next: base, end: base + size}, nil
}

// free gives the memory back. Nothing may be in use that was cut from it.
func (a *arena) free() {
	call(a.lib.free, a.base)
	a.base, a.next, a.end = 0, 0, 0
}

// roundUp8 is n rounded up so that what follows is aligned.
func roundUp8(n uintptr) uintptr { return (n + 7) &^ 7 }

// arraySize is what array takes from an arena.
func arraySize[T any](n int) uintptr {
	var zero T
	return roundUp8(uintptr(n) * unsafe.Sizeof(zero))
}

// array cuts n values from the arena, which was made large enough.
func array[T any](a *arena, n int) []T {
	size := arraySize[T](n)
	if size > a.end-a.next {
		panic("ibv: arena too small")
	}
	p := a.next
	a.next += size
	return unsafe.Slice((*T)(pointer(p)), n)
}
