//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

const everyCap = verbs.CapWriteImm | verbs.CapAtomics | verbs.CapSRQ | verbs.CapSendInv

// newSendList makes a list on Go memory, which does as long as no C code keeps it.
func newSendList(c verbs.QPCap, typ verbs.QPType, caps verbs.DeviceCaps) *sendList {
	l := new(sendList)
	l.init(goArena(sendListSize(&c)), &c, typ, caps)
	return l
}

func goArena(size uintptr) *arena {
	mem := make([]uint64, size/8)
	base := uintptr(unsafe.Pointer(&mem[0]))
	kept = append(kept, mem)
	return &arena{base: base, next: base, end: base + size}
}

// kept keeps the memory of goArena alive, to which only numbers point.
var kept [][]uint64

func (l *sendList) sgl(i int) []cSGE {
	w := &l.wrs[i]
	if w.numSGE == 0 {
		return nil
	}
	return unsafe.Slice(at[cSGE](w.sgList), w.numSGE)
}

func mustAdd(t *testing.T, l *sendList, wr verbs.SendWR) *cSendWR {
	t.Helper()
	ok, err := l.add(&wr)
	require.NoError(t, err)
	require.True(t, ok)
	return &l.wrs[l.n-1]
}

func TestSendRequests(t *testing.T) {
	l := newSendList(verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 2, MaxInlineData: 64}, verbs.QPTypeRC, everyCap)
	w := mustAdd(t, l, verbs.SendWR{
		WRID: 9, Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendSignaled | verbs.SendFence, ImmData: 0x01020304,
		SGList: []verbs.SGE{{Addr: 1 << 40, Length: 3, LKey: 4}, {Addr: 5, Length: 6, LKey: 7}}, RemoteAddr: 1 << 41, RKey: 11,
	})
	assert.EqualValues(t, 9, w.wrID)
	assert.EqualValues(t, 1, w.opcode)
	assert.EqualValues(t, 3, w.flags)
	assert.EqualValues(t, 0x04030201, w.immData)
	assert.Equal(t, cRDMA{1 << 41, 11}, *(*cRDMA)(unsafe.Pointer(&w.wr)))
	assert.Equal(t, []cSGE{{1 << 40, 3, 4}, {5, 6, 7}}, l.sgl(0))
	assert.Zero(t, w.next)

	data := []byte("inline")
	w = mustAdd(t, l, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: data})
	clear(data) // it was copied
	sge := l.sgl(1)
	require.Len(t, sge, 1)
	assert.Equal(t, "inline", string(unsafe.Slice(at[byte](uintptr(sge[0].addr)), sge[0].length)))
	assert.EqualValues(t, 8, w.flags)
	assert.Equal(t, uintptr(unsafe.Pointer(w)), l.wrs[0].next, "requests are chained")

	w = mustAdd(t, l, verbs.SendWR{Opcode: verbs.WRSendWithInv, ImmData: 0x01020304})
	assert.EqualValues(t, 9, w.opcode)
	assert.EqualValues(t, 0x01020304, w.immData, "a key goes in host order")
	assert.Zero(t, w.numSGE)
	assert.Zero(t, w.sgList)

	w = mustAdd(t, l, verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, RemoteAddr: 64, RKey: 2, CompareAdd: 3, Swap: 4})
	assert.EqualValues(t, 5, w.opcode)
	assert.Equal(t, cAtomic{64, 3, 4, 2}, *(*cAtomic)(unsafe.Pointer(&w.wr)))

	assert.Equal(t, 3, l.index(uintptr(unsafe.Pointer(w))))
	l.reset()
	w = mustAdd(t, l, verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: 1, RKey: 2})
	assert.Zero(t, w.immData, "nothing is left of what was there")
	assert.Zero(t, w.next)
	assert.Zero(t, w.numSGE)
}

func TestSendToAddressHandle(t *testing.T) {
	l := newSendList(verbs.QPCap{MaxSendSGE: 1}, verbs.QPTypeUD, everyCap)
	handle := new(ah)
	handle.handle.Store(77)
	w := mustAdd(t, l, verbs.SendWR{Opcode: verbs.WRSend, AH: handle, RemoteQPN: 5, RemoteQKey: 6})
	assert.Equal(t, cUD{77, 5, 6}, *(*cUD)(unsafe.Pointer(&w.wr)))
	_, err := l.add(&verbs.SendWR{Opcode: verbs.WRSend})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	handle.handle.Store(0)
	_, err = l.add(&verbs.SendWR{Opcode: verbs.WRSend, AH: handle})
	assert.ErrorIs(t, err, verbs.ErrClosed)
}

func TestSendRefused(t *testing.T) {
	l := newSendList(verbs.QPCap{MaxSendSGE: 2, MaxInlineData: 16}, verbs.QPTypeRC, 0)
	three := make([]verbs.SGE, 3)
	for name, c := range map[string]struct {
		wr   verbs.SendWR
		want error
	}{
		"unknown":          {verbs.SendWR{Opcode: 200}, verbs.ErrInvalid},
		"no immediates":    {verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm}, verbs.ErrNotSupported},
		"no atomics":       {verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd}, verbs.ErrNotSupported},
		"no atomic write":  {verbs.SendWR{Opcode: verbs.WRAtomicWrite}, verbs.ErrNotSupported},
		"no invalidation":  {verbs.SendWR{Opcode: verbs.WRLocalInv}, verbs.ErrNotSupported},
		"too many SGEs":    {verbs.SendWR{Opcode: verbs.WRSend, SGList: three}, verbs.ErrInvalid},
		"too much inline":  {verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: make([]byte, 17)}, verbs.ErrInvalid},
		"inline and SGEs":  {verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: three[:1]}, verbs.ErrInvalid},
		"READ with inline": {verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendInline}, verbs.ErrInvalid},
	} {
		ok, err := l.add(&c.wr)
		assert.ErrorIs(t, err, c.want, name)
		assert.False(t, ok, name)
	}
	l = newSendList(verbs.QPCap{MaxSendSGE: 2}, verbs.QPTypeRC, everyCap)
	_, err := l.add(&verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, RemoteAddr: 4})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	assert.Zero(t, l.n)
}

// A chain that is full takes nothing more, whatever fills it.
func TestSendListFull(t *testing.T) {
	fill := func(l *sendList, wr verbs.SendWR) (n int) {
		for {
			ok, err := l.add(&wr)
			require.NoError(t, err)
			if !ok {
				return n
			}
			n++
			require.LessOrEqual(t, n, sendBatch)
		}
	}
	c := verbs.QPCap{MaxSendSGE: 20, MaxInlineData: 1000}
	l := newSendList(c, verbs.QPTypeRC, everyCap)
	assert.Equal(t, sendBatch, fill(l, verbs.SendWR{Opcode: verbs.WRSend}))
	l.reset()
	assert.Equal(t, 1, fill(l, verbs.SendWR{Opcode: verbs.WRSend, SGList: make([]verbs.SGE, 20)}), "SGEs")
	l.reset()
	assert.Equal(t, 2, fill(l, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: make([]byte, 1000)}), "inline data")
}

func TestRecvRequests(t *testing.T) {
	var l recvList
	l.init(goArena(recvListSize(2)), 2)
	for i := range recvBatch {
		ok, err := l.add(&verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{{Addr: uint64(i), Length: 2, LKey: 3}}})
		require.NoError(t, err)
		require.True(t, ok)
	}
	ok, err := l.add(&verbs.RecvWR{})
	require.NoError(t, err)
	require.False(t, ok, "the chain is full")
	for i := range recvBatch {
		w := &l.wrs[i]
		require.EqualValues(t, i, w.wrID)
		require.EqualValues(t, 1, w.numSGE)
		require.Equal(t, cSGE{uint64(i), 2, 3}, *at[cSGE](w.sgList))
		if i > 0 {
			require.Equal(t, uintptr(unsafe.Pointer(w)), l.wrs[i-1].next)
		}
		require.Equal(t, i, l.index(uintptr(unsafe.Pointer(w))))
	}
	require.Zero(t, l.wrs[recvBatch-1].next)
	l.reset()
	ok, err = l.add(&verbs.RecvWR{WRID: 7})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, cRecvWR{wrID: 7}, l.wrs[0])
	_, err = l.add(&verbs.RecvWR{SGList: make([]verbs.SGE, 3)})
	require.ErrorIs(t, err, verbs.ErrInvalid)
}
