//go:build linux && (amd64 || arm64)

package soft

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"golang.org/x/sys/unix"
)

// hostOrder is the byte order of both processors the device runs on.
var hostOrder = binary.LittleEndian

// A peer says how large its MRs are, and they need no memory to be large. Mapped they
// take address space, and a process that has no more of it ends.
const (
	maxMapped     = 64      // MRs of one peer
	maxPeerMapped = 1 << 36 // bytes of them
	maxAllMapped  = 1 << 46 // bytes of all peers, half of what a process has at the least
)

// allMapped counts the bytes of peers' inboxes and MRs that are mapped.
var allMapped atomic.Int64

// peer is what a connected QP has of the other end. qp.mu guards it.
type peer struct {
	qpn     uint32
	out     outbox
	srq     *srqView  // nil: the peer has a receive queue of its own
	door    *doorbell // nil: the peer only polls
	mrs     []*remoteMR
	last    *remoteMR // the one used last
	refused uint32    // the key the peer has just said it does not know; 0 is none
	bounced bool      // the bounce area may be used
	kicked  bool      // the peer was asked to look into its inbox and has not answered
	again   bool      // it must be asked once more then
	asked   bool      // likewise for an MR or for the bounce area
	missed  int       // how often in a row there was no descriptor for the MR that came
	pausing bool      // and it is to be asked for again after a pause: no answer is under way
	stalled uint64    // bytes taken from the bounce area, plus one, when it was asked because that was full
}

// find returns the mapping of an MR, or nil.
func (p *peer) find(rkey uint32) *remoteMR {
	for _, m := range p.mrs {
		if m.key == rkey {
			return m
		}
	}
	return nil
}

// add takes a mapping; the oldest make room for it.
func (p *peer) add(m *remoteMR) {
	p.drop(m.key)
	size := len(m.mapped)
	for _, o := range p.mrs {
		size += len(o.mapped)
	}
	for len(p.mrs) > 0 && (len(p.mrs) == maxMapped || size > maxPeerMapped) {
		size -= len(p.mrs[0].mapped)
		p.drop(p.mrs[0].key)
	}
	p.mrs = append(p.mrs, m)
}

// drop ends the mapping of an MR.
func (p *peer) drop(rkey uint32) {
	for i, m := range p.mrs {
		if m.key == rkey {
			p.last = nil
			p.mrs = append(p.mrs[:i], p.mrs[i+1:]...)
			m.unmap()
			return
		}
	}
}

// unmap lets go of everything.
func (p *peer) unmap() {
	for len(p.mrs) > 0 {
		p.drop(p.mrs[0].key)
	}
	p.out.unmap()
	p.srq.unmap()
	if p.door != nil {
		p.door.release()
	}
}

// remoteMR is a mapping of a peer's MR.
type remoteMR struct {
	key    uint32
	access verbs.AccessFlags
	addr   uint64
	data   []byte // the MR
	mapped []byte // the pages it lies in
	backed backedPages
}

// unmap ends the mapping.
func (m *remoteMR) unmap() {
	allMapped.Add(-int64(len(m.mapped)))
	_ = munmap(m.mapped)
}

// mrOffer says where an MR is in the memfd that comes with it.
type mrOffer struct {
	key    uint32
	access verbs.AccessFlags
	addr   uint64
	size   uint64
	off    uint64
}

const mrOfferSize = 32

func (m *mr) offer() mrOffer {
	return mrOffer{key: m.key, access: m.access, addr: m.addr, size: uint64(len(m.buf)), off: uint64(m.memOff)}
}

func (o mrOffer) append(b []byte) []byte {
	b = hostOrder.AppendUint32(b, o.key)
	b = hostOrder.AppendUint32(b, uint32(o.access))
	b = hostOrder.AppendUint64(b, o.addr)
	b = hostOrder.AppendUint64(b, o.size)
	return hostOrder.AppendUint64(b, o.off)
}

func parseMROffer(b []byte) mrOffer {
	return mrOffer{
		key:    hostOrder.Uint32(b),
		access: verbs.AccessFlags(hostOrder.Uint32(b[4:])),
		addr:   hostOrder.Uint64(b[8:]),
		size:   hostOrder.Uint64(b[16:]),
		off:    hostOrder.Uint64(b[24:]),
	}
}

// writable reports whether we may write the MR.
func (o mrOffer) writable() bool {
	return o.access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0
}

func (o mrOffer) check() error {
	page := uint64(pageSize)
	const limit = 1 << 46
	if o.size == 0 || o.size > maxMRSize || o.off > limit || o.addr+o.size < o.addr || o.addr%page != o.off%page {
		return o.wrong()
	}
	return nil
}

func (o mrOffer) wrong() error {
	return fmt.Errorf("%w: MR of %d bytes at %#x, offset %d", verbs.ErrProtocol, o.size, o.addr, o.off)
}

// open maps the MR. A peer's pages are mapped writable only where we may write.
func (o mrOffer) open(fd int) (*remoteMR, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	prot := unix.PROT_READ
	if o.writable() {
		prot |= unix.PROT_WRITE
	}
	skip := o.off % uint64(pageSize)
	n := int64(o.size + skip)
	if err := countMapped(n); err != nil {
		return nil, err
	}
	mapped, err := mapPeer(fd, int64(o.off-skip), int(n), prot)
	if err != nil {
		allMapped.Add(-n)
		return nil, err
	}
	return &remoteMR{key: o.key, access: o.access, addr: o.addr, data: mapped[skip:], mapped: mapped}, nil
}

// countMapped counts n bytes that are to be mapped.
func countMapped(n int64) error {
	if allMapped.Add(n) > maxAllMapped {
		allMapped.Add(-n)
		return noMemory("mmap", int(n), unix.ENOMEM)
	}
	return nil
}

// dupFDs duplicates descriptors, all or none.
func dupFDs(fds []int) ([]int, error) {
	out := make([]int, 0, len(fds))
	for _, fd := range fds {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeFDs(out)
			return nil, os.NewSyscallError("fcntl", err)
		}
		out = append(out, d)
	}
	return out, nil
}

// A doorbell wakes the peer: it is the eventfd of its completion channel, or that
// channel itself. It is rung outside the QP's lock, since a hostile peer could make
// the write block.
type doorbell struct {
	fd    int
	users atomic.Int32
	local atomic.Pointer[compChannel] // the peer's if it is one of this process, or nil
}

func newDoorbell(fd int) (*doorbell, error) {
	// Anything else that takes writes could block us or mean something.
	name, err := fdName(fd)
	if err != nil {
		return nil, err
	}
	if name != "anon_inode:[eventfd]" {
		return nil, fmt.Errorf("%w: %s where an eventfd is expected", verbs.ErrProtocol, name)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		return nil, fmt.Errorf("%w: eventfd that blocks", verbs.ErrProtocol)
	}
	d := &doorbell{fd: fd}
	d.users.Store(1)
	return d, nil
}

func (d *doorbell) hold() { d.users.Add(1) }

func (d *doorbell) release() {
	if d.users.Add(-1) == 0 {
		unix.Close(d.fd)
	}
}

// ring wakes the peer; false if its eventfd is full.
func (d *doorbell) ring() bool {
	if ch := d.local.Load(); ch != nil {
		ch.signal()
		return true
	}
	return writeEvent(d.fd)
}

// ownPID is asked for once: that is a system call.
var ownPID = os.Getpid()

// findLocal looks whether the peer at the other end of s is a QP of this process, by
// the context of ctx. Another process may claim any QPN: the kernel says who it is.
func (p *peer) findLocal(ctx *devContext, s *socket) {
	if p.door == nil {
		return
	}
	if pid, _, err := s.peerCred(); err != nil || int(pid) != ownPID {
		return
	}
	if q := ctx.qpns.find(p.qpn); q != nil {
		p.door.local.Store(q.recvCQ.channel)
	}
}
