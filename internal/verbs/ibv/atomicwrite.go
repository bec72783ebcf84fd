//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// atomicWriter posts ATOMIC_WRITE, which only the extended verbs have
// (ibv_wr_atomic_write). It may be mixed with ibv_post_send. The QP's send lock
// guards it.
type atomicWriter struct {
	ex       *cQPEx
	value    *uint64 // what is written, in C memory
	start    [1]uintptr
	write    [4]uintptr
	complete [1]uintptr
}

func newAtomicWriter(q *qp, value *uint64) *atomicWriter {
	ex := call(q.ctx.lib.qpToQPEx, q.handle)
	if ex == 0 {
		return nil
	}
	return &atomicWriter{
		ex: at[cQPEx](ex), value: value,
		start: [1]uintptr{ex}, complete: [1]uintptr{ex},
		write: [4]uintptr{ex, 0, 0, uintptr(unsafe.Pointer(value))},
	}
}

func (w *atomicWriter) post(l *sendList, wr *verbs.SendWR) error {
	if err := l.check(wr); err != nil {
		return err
	}
	*w.value = wr.Swap
	w.write[1], w.write[2] = uintptr(wr.RKey), uintptr(wr.RemoteAddr)
	// The library holds a spin lock from start to complete.
	runtime.LockOSThread()
	purego.SyscallN(w.ex.wrStart, w.start[:]...)
	w.ex.wrID = wr.WRID
	w.ex.wrFlags = uint32(wr.Flags)
	purego.SyscallN(w.ex.wrAtomicWrite, w.write[:]...)
	r, _, _ := purego.SyscallN(w.ex.wrComplete, w.complete[:]...)
	runtime.UnlockOSThread()
	if int32(r) != 0 {
		return postError("ibv_wr_complete", int32(r), 0)
	}
	return nil
}

// ring posts nothing, which makes the device look at its send queue.
func (w *atomicWriter) ring() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	purego.SyscallN(w.ex.wrStart, w.start[:]...)
	purego.SyscallN(w.ex.wrComplete, w.complete[:]...)
}
