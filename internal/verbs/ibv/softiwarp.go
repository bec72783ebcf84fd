//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	// softIWARPVendor is the vendor id that the kernel's siw gives its devices.
	softIWARPVendor = 0x626d74

	// softIWARPBadKey is an offset in the file of a context that siw hands out like any
	// other for what is to be mapped there, and that its library, whose sign of failure it
	// is (SIW_INVAL_UOBJ_KEY of rdma/siw-abi.h), does not map. As the kernel takes the
	// lowest offset that is free, one that was refused is offered again for ever: such a
	// context has room for some eight connections.
	softIWARPBadKey = 0x90000

	// softIWARPPlug is how many entries, of 32 bytes, a CQ has that reaches beyond that
	// offset from the begin of the file. The kernel makes it 1 MiB.
	softIWARPPlug = softIWARPBadKey/32 + 1

	// softIWARPSmall is how many bytes of a request with one SGE siw puts behind the header
	// (MAX_HDR_INLINE of its siw_qp_tx.c).
	softIWARPSmall = 32
)

func (c *devContext) isSoftIWARP() bool { return c.limits.attr.VendorID == softIWARPVendor }

// dropEmpty takes the SGEs of no bytes out of the request that was added last, which has the
// last n SGEs of the list: siw loses its place behind one, and then reads through a null
// pointer in the kernel. But a READ has one in any case, since siw takes that of the request
// whose slot it has if there is none.
func (l *sendList) dropEmpty(c *cSendWR, n int) {
	if c.flags&uint32(verbs.SendInline) != 0 {
		return
	}
	first := l.sgeUsed - n
	l.sgeUsed = first
	for _, g := range l.sges[first : first+n] {
		if g.length > 0 {
			l.sges[l.sgeUsed] = g
			l.sgeUsed++
		}
	}
	if l.sgeUsed == first && c.opcode == uint32(verbs.WRRDMARead) {
		l.sges[l.sgeUsed] = cSGE{}
		l.sgeUsed++
	}
	c.numSGE, c.sgList = int32(l.sgeUsed-first), 0
	if l.sgeUsed > first {
		c.sgList = uintptr(unsafe.Pointer(&l.sges[first]))
	}
}

// splitSmall makes two SGEs of the one of the request that was added last, if it is small: siw
// copies such a one itself, and does it wrong in two cases. Behind the post, for a queue that was
// not empty, it takes the wrong part of the first of two pages and sends bytes that belong to
// something else. And when its own thread does it while the process is still on its way out of
// another post, it takes the thread for the process, finds no memory there and ends the connection.
// Of several SGEs it copies nothing. One byte cannot be split; it meets the second case alone. The
// answer to a READ of so few bytes has both faults, and only who reads can help against that, by
// reading more.
func (l *sendList) splitSmall(c *cSendWR) {
	if c.flags&uint32(verbs.SendInline) != 0 || c.numSGE != 1 || c.opcode == uint32(verbs.WRRDMARead) {
		return
	}
	g := &l.sges[l.sgeUsed-1]
	if g.length > softIWARPSmall || g.length < 2 {
		return
	}
	first := uint32(pageSize) - uint32(g.addr)%uint32(pageSize)
	if first >= g.length {
		first = g.length / 2
	}
	l.sges[l.sgeUsed] = cSGE{addr: g.addr + uint64(first), length: g.length - first, lkey: g.lkey}
	g.length = first
	l.sgeUsed++
	c.numSGE = 2
}

// addEmpty gives the receive an SGE of no bytes: without any siw's library refuses it.
func (l *recvList) addEmpty(c *cRecvWR) {
	c.numSGE, c.sgList = 1, uintptr(unsafe.Pointer(&l.sges[l.sgeUsed]))
	l.sges[l.sgeUsed] = cSGE{}
	l.sgeUsed++
}

// plug makes the offset that siw and its library disagree about the middle of a CQ which
// nobody uses. It must be the first object of the context.
func (c *devContext) plug() error {
	r, errno := c.lib.callErrno(c.lib.createCQ, c.handle, softIWARPPlug, 0, 0, 0)
	if r == 0 {
		if errno == 0 {
			errno = syscall.ENOMEM // the library does not say
		}
		return fmt.Errorf("a CQ for soft-iWARP's own sake: %w", failed("ibv_create_cq", errno))
	}
	c.plugCQ = r
	return nil
}

// unplug destroys what plug has made, as the last object of the context.
func (c *devContext) unplug() {
	if c.plugCQ != 0 {
		call(c.lib.destroyCQ, c.plugCQ)
		c.plugCQ = 0
	}
}
