//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// How many requests one call of ibv_post_send and ibv_post_recv takes at most, and
// how much inline data they may have together if each has little.
const (
	sendBatch   = 16
	recvBatch   = 32
	inlineBatch = 2048
)

// wrOpcodes translates verbs.WROpcode. ATOMIC_WRITE is posted otherwise.
var wrOpcodes = [...]uint32{
	verbs.WRRDMAWrite:         uint32(verbs.WRRDMAWrite),
	verbs.WRRDMAWriteWithImm:  uint32(verbs.WRRDMAWriteWithImm),
	verbs.WRSend:              uint32(verbs.WRSend),
	verbs.WRSendWithImm:       uint32(verbs.WRSendWithImm),
	verbs.WRRDMARead:          uint32(verbs.WRRDMARead),
	verbs.WRAtomicCmpAndSwp:   uint32(verbs.WRAtomicCmpAndSwp),
	verbs.WRAtomicFetchAndAdd: uint32(verbs.WRAtomicFetchAndAdd),
	verbs.WRLocalInv:          uint32(verbs.WRLocalInv),
	verbs.WRSendWithInv:       wrSendWithInv,
	verbs.WRBindMW:            wrBindMW,
}

// needs are the capabilities that operations depend on.
var needs = [...]verbs.DeviceCaps{
	verbs.WRRDMAWriteWithImm:  verbs.CapWriteImm,
	verbs.WRSendWithImm:       verbs.CapWriteImm,
	verbs.WRAtomicCmpAndSwp:   verbs.CapAtomics,
	verbs.WRAtomicFetchAndAdd: verbs.CapAtomics,
	verbs.WRLocalInv:          verbs.CapSendInv,
	verbs.WRSendWithInv:       verbs.CapSendInv,
	verbs.WRAtomicWrite:       verbs.CapAtomicWrite,
	verbs.WRBindMW:            verbs.CapMemWindow,
}

// A sendList builds chains of struct ibv_send_wr in C memory.
type sendList struct {
	wrs    []cSendWR
	sges   []cSGE
	inline []byte
	caps   verbs.DeviceCaps
	ops    verbs.SendOps
	typ    verbs.QPType
	pd     *pd // of a UD QP
	maxSGE int
	maxRd  int // SGEs of a READ
	maxInl int
	siw    bool // see softiwarp.go

	n       int // requests in the chain
	sgeUsed int
	inlUsed int
}

// sendListSize is what a sendList takes from an arena.
func sendListSize(c *verbs.QPCap) uintptr {
	return arraySize[cSendWR](sendBatch) + arraySize[cSGE](sendSGEs(c)) + arraySize[byte](sendInline(c))
}

func sendSGEs(c *verbs.QPCap) int { return max(c.MaxSendSGE, 2*sendBatch) }

func sendInline(c *verbs.QPCap) int {
	if c.MaxInlineData == 0 {
		return 0
	}
	return max(c.MaxInlineData, min(sendBatch*c.MaxInlineData, inlineBatch))
}

func (l *sendList) init(a *arena, c *verbs.QPCap, typ verbs.QPType, caps verbs.DeviceCaps) {
	l.wrs = array[cSendWR](a, sendBatch)
	l.sges = array[cSGE](a, sendSGEs(c))
	if n := sendInline(c); n > 0 {
		l.inline = array[byte](a, n)
	}
	l.caps, l.typ, l.maxSGE, l.maxRd, l.maxInl = caps, typ, c.MaxSendSGE, c.MaxSendSGE, c.MaxInlineData
}

func (l *sendList) reset() { l.n, l.sgeUsed, l.inlUsed = 0, 0, 0 }

// add appends a request, and reports whether it fits: else the chain has to be posted first.
func (l *sendList) add(wr *verbs.SendWR) (bool, error) {
	if err := l.check(wr); err != nil {
		return false, err
	}
	sges := len(wr.SGList)
	if wr.Flags&verbs.SendInline != 0 {
		sges = 1
	}
	room := max(sges, 1)
	if l.siw {
		room = max(room, 2) // for dropEmpty and splitSmall
	}
	if l.n == len(l.wrs) || room > len(l.sges)-l.sgeUsed || len(wr.Inline) > len(l.inline)-l.inlUsed {
		return false, nil
	}
	c := &l.wrs[l.n]
	c.wrID = wr.WRID
	c.next = 0
	c.sgList = 0
	c.opcode = wrOpcodes[wr.Opcode]
	c.flags = uint32(wr.Flags)
	c.numSGE = 0
	if l.n > 0 {
		l.wrs[l.n-1].next = uintptr(unsafe.Pointer(c))
	}
	l.n++
	if wr.Flags&verbs.SendInline != 0 {
		l.addInline(c, wr.Inline)
	} else if len(wr.SGList) > 0 {
		c.numSGE = int32(len(wr.SGList))
		c.sgList = uintptr(unsafe.Pointer(&l.sges[l.sgeUsed]))
		for i := range wr.SGList {
			g := &wr.SGList[i]
			l.sges[l.sgeUsed] = cSGE{addr: g.Addr, length: g.Length, lkey: g.LKey}
			l.sgeUsed++
		}
	}
	if l.siw {
		l.dropEmpty(c, sges)
		l.splitSmall(c)
	}
	l.addRemote(c, wr)
	return true, nil
}

// addInline copies the data, which may be anywhere, to where C may look at it.
func (l *sendList) addInline(c *cSendWR, data []byte) {
	if len(data) == 0 {
		return
	}
	at := l.inline[l.inlUsed:]
	copy(at, data)
	c.numSGE = 1
	c.sgList = uintptr(unsafe.Pointer(&l.sges[l.sgeUsed]))
	l.sges[l.sgeUsed] = cSGE{addr: uint64(uintptr(unsafe.Pointer(&at[0]))), length: uint32(len(data))}
	l.sgeUsed++
	l.inlUsed += len(data)
}

func (l *sendList) addRemote(c *cSendWR, wr *verbs.SendWR) {
	c.immData = 0
	switch wr.Opcode {
	case verbs.WRRDMAWriteWithImm, verbs.WRSendWithImm:
		c.immData = bits.ReverseBytes32(wr.ImmData)
	case verbs.WRSendWithInv, verbs.WRLocalInv:
		c.immData = wr.ImmData
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		*(*cAtomic)(unsafe.Pointer(&c.wr)) = cAtomic{wr.RemoteAddr, wr.CompareAdd, wr.Swap, wr.RKey}
		return
	}
	if l.typ == verbs.QPTypeUD {
		*(*cUD)(unsafe.Pointer(&c.wr)) = cUD{wr.AH.(*ah).handle.Load(), wr.RemoteQPN, wr.RemoteQKey}
		return
	}
	*(*cRDMA)(unsafe.Pointer(&c.wr)) = cRDMA{wr.RemoteAddr, wr.RKey}
}

// check finds what the library would not, or would only when it is too late.
func (l *sendList) check(wr *verbs.SendWR) error {
	if int(wr.Opcode) >= len(needs) {
		return fmt.Errorf("%w: operation %d", verbs.ErrInvalid, uint8(wr.Opcode))
	}
	if !l.typ.Has(wr.Opcode) {
		return fmt.Errorf("%w: %v on a %v QP", verbs.ErrInvalid, wr.Opcode, l.typ)
	}
	if need := needs[wr.Opcode]; l.caps&need != need {
		return fmt.Errorf("%w: %v", verbs.ErrNotSupported, wr.Opcode)
	}
	if !l.ops.Has(wr.Opcode) {
		return l.ops.Refuse(wr.Opcode) // the queue's entries may be too small for it
	}
	if wr.Flags&verbs.SendInline != 0 {
		if len(wr.SGList) > 0 || len(wr.Inline) > l.maxInl || !mayInline(wr.Opcode) {
			return l.badInline(wr)
		}
	} else if len(wr.SGList) > l.maxSGE {
		return fmt.Errorf("%w: %d SGEs where the QP takes %d", verbs.ErrInvalid, len(wr.SGList), l.maxSGE)
	} else if wr.Opcode == verbs.WRRDMARead && len(wr.SGList) > l.maxRd {
		return fmt.Errorf("%w: a READ into %d SGEs where the device takes %d", verbs.ErrInvalid, len(wr.SGList), l.maxRd)
	}
	switch wr.Opcode {
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicWrite:
		if wr.RemoteAddr%8 != 0 {
			return fmt.Errorf("%w: atomic at %#x, which is not a multiple of 8", verbs.ErrInvalid, wr.RemoteAddr)
		}
	}
	if l.typ == verbs.QPTypeUD {
		a, ok := wr.AH.(*ah)
		if !ok || a == nil || a.pd != l.pd || wr.RemoteQPN >= 1<<24 {
			return fmt.Errorf("%w: datagram to QP %#x without an address handle of the QP's PD", verbs.ErrInvalid, wr.RemoteQPN)
		}
		if a.handle.Load() == 0 {
			return fmt.Errorf("address handle: %w", verbs.ErrClosed)
		}
	}
	return nil
}

func (l *sendList) badInline(wr *verbs.SendWR) error {
	switch {
	case !mayInline(wr.Opcode):
		return fmt.Errorf("%w: %v with inline data", verbs.ErrInvalid, wr.Opcode)
	case len(wr.SGList) > 0:
		return fmt.Errorf("%w: inline data and an SGList", verbs.ErrInvalid)
	}
	return fmt.Errorf("%w: %d bytes of inline data where the QP takes %d", verbs.ErrInvalid, len(wr.Inline), l.maxInl)
}

func mayInline(op verbs.WROpcode) bool {
	switch op {
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRSend, verbs.WRSendWithImm, verbs.WRSendWithInv:
		return true
	}
	return false
}

// index is the place in the chain of a request that C names by its address.
func (l *sendList) index(addr uintptr) int {
	return int((addr - uintptr(unsafe.Pointer(&l.wrs[0]))) / unsafe.Sizeof(cSendWR{}))
}

// A recvList builds chains of struct ibv_recv_wr in C memory.
type recvList struct {
	wrs     []cRecvWR
	sges    []cSGE
	maxSGE  int
	siw     bool // see softiwarp.go
	n       int
	sgeUsed int
}

func recvListSize(maxSGE int) uintptr {
	return arraySize[cRecvWR](recvBatch) + arraySize[cSGE](recvSGEs(maxSGE))
}

func recvSGEs(maxSGE int) int { return max(maxSGE, recvBatch) }

func (l *recvList) init(a *arena, maxSGE int) {
	l.wrs = array[cRecvWR](a, recvBatch)
	l.sges = array[cSGE](a, recvSGEs(maxSGE))
	l.maxSGE = maxSGE
}

func (l *recvList) reset() { l.n, l.sgeUsed = 0, 0 }

// add appends a request, and reports whether it fits: else the chain has to be posted first.
func (l *recvList) add(wr *verbs.RecvWR) (bool, error) {
	if len(wr.SGList) > l.maxSGE {
		return false, fmt.Errorf("%w: %d SGEs where the queue takes %d", verbs.ErrInvalid, len(wr.SGList), l.maxSGE)
	}
	if l.n == len(l.wrs) || max(len(wr.SGList), 1) > len(l.sges)-l.sgeUsed {
		return false, nil
	}
	c := &l.wrs[l.n]
	*c = cRecvWR{wrID: wr.WRID, numSGE: int32(len(wr.SGList))}
	if len(wr.SGList) > 0 {
		c.sgList = uintptr(unsafe.Pointer(&l.sges[l.sgeUsed]))
	}
	for i := range wr.SGList {
		g := &wr.SGList[i]
		l.sges[l.sgeUsed] = cSGE{addr: g.Addr, length: g.Length, lkey: g.LKey}
		l.sgeUsed++
	}
	if l.siw && len(wr.SGList) == 0 {
		l.addEmpty(c)
	}
	if l.n > 0 {
		l.wrs[l.n-1].next = uintptr(unsafe.Pointer(c))
	}
	l.n++
	return true, nil
}

func (l *recvList) index(addr uintptr) int {
	return int((addr - uintptr(unsafe.Pointer(&l.wrs[0]))) / unsafe.Sizeof(cRecvWR{}))
}
