//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// cMemory is n values of C memory, in which the test plays the library. They live as long as the
// test does.
func cMemory[T any](t *testing.T, n int) []T {
	t.Helper()
	mem, err := newArena(needVerbs(t), arraySize[T](n))
	require.NoError(t, err)
	t.Cleanup(mem.free)
	return array[T](mem, n)
}

// addressOf is where a value of C memory is.
func addressOf[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// fakeVerbs is a libibverbs of which a test replaces what it calls; it has no ECE, which a
// connection can do without.
func fakeVerbs(t *testing.T) *libibverbs {
	t.Helper()
	lib := *needVerbs(t)
	lib.queryECE, lib.setECE = 0, 0
	return &lib
}

// fakeContext is a context of a device on which QPs and CQs of one entry can be made.
func fakeContext(t *testing.T, lib *libibverbs, transport verbs.Transport) *devContext {
	t.Helper()
	return &devContext{
		lib: lib, dev: &device{name: "none0", transport: transport}, handle: addressOf(&cMemory[cContext](t, 1)[0]),
		limits: limits{attr: verbs.DeviceAttr{MaxQPWR: 1, MaxSGE: 1, MaxCQE: 1}},
		begin:  newSlots(deviceSlots), ready: newSlots(deviceReadySlots), end: newSlots(deviceEndSlots),
		async: new(asyncEvents), qps: map[uintptr]*qp{}, cqs: map[uintptr]*cq{}, srqs: map[uintptr]*srq{},
	}
}

// fakeInit is of QPs for such a context.
func fakeInit(ctx *devContext) *verbs.QPInitAttr {
	return &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: &cq{ctx: ctx}, RecvCQ: &cq{ctx: ctx},
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
}
