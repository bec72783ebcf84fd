//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"golang.org/x/sys/unix"
)

// An offer is what a peer needs to write to a QP. It is sent with descriptors: the
// inbox, the eventfd and the SRQ page if the flags say so, then one for each MR.
//
//	0 version u8 | 1 flags u8 | 2 log2 entries u8 | 3 log2 bounce bytes u8 | 4 QPN u32
//	8 number of MRs u8 | 9 reserved, 0 | 16 MRs, 32 bytes each
//
// On a line (line.go) flags may say that the inbox, the eventfd or the memory of the
// first MR is that of the connection before; then there is no descriptor for it. Nor is
// there one for the first MR if flags say that it is joint: that it is in the file of the
// inbox, which is joint, too (queue.go).
const (
	offerVersion = 3
	offerHeader  = 16
	maxOffered   = 4 // MRs; others are asked for

	offerEvent     = 1 << 0
	offerSRQ       = 1 << 1
	offerOldInbox  = 1 << 2
	offerOldEvent  = 1 << 3
	offerOldMemory = 1 << 4
	offerJoint     = 1 << 5
	offerJointMR   = 1 << 6
	offerFlags     = 1<<7 - 1
)

// offered is what a QP has offered and not yet been attached for.
type offered struct {
	blob []byte
	fds  []int
	own  []int // those of fds that are duplicates, to be closed
	mrs  []*mr
}

func (o *offered) close() {
	if o != nil {
		closeFDs(o.own)
		o.own = nil
	}
}

// offer makes the QP's offer. The descriptors stay the QP's: they are valid until
// it is attached, reset or closed.
func (q *qp) offer() (blob []byte, fds []int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, nil, verbs.ErrClosed
	}
	if q.in == nil || q.link != nil || q.State() == verbs.QPErr {
		return nil, nil, fmt.Errorf("%w: QP in %v cannot be connected", verbs.ErrState, q.State())
	}
	if q.offered == nil {
		if q.offered, err = q.makeOffer(); err != nil {
			return nil, nil, err
		}
	}
	return q.offered.blob, q.offered.fds, nil
}

func (q *qp) makeOffer() (*offered, error) {
	o := &offered{}
	var flags byte
	exportable := q.exportable()
	joint := q.in.segment.toFront(exportable)
	oldInbox, oldMemory := q.in.sharing.show(q.line), len(exportable) > 0 && exportable[0].showFirst(q.line, joint)
	if q.in.joint {
		flags |= offerJoint
	}
	if joint {
		flags |= offerJointMR
		oldInbox = oldInbox && oldMemory
		oldMemory = oldInbox
	}
	if oldInbox {
		flags |= offerOldInbox
	} else {
		o.fds = append(o.fds, q.in.fd)
	}
	if ch := q.recvCQ.channel; ch != nil {
		flags |= offerEvent
		if ch.show(q.line) {
			flags |= offerOldEvent
		} else {
			o.fds = append(o.fds, ch.fd)
		}
	}
	if q.srq != nil {
		flags |= offerSRQ
		o.fds = append(o.fds, q.srq.fd)
	}
	var mrs []byte
	for i, m := range exportable {
		// Only the first is kept: the peer could not tell several apart.
		if i == 0 && (oldMemory || joint) {
			if oldMemory {
				flags |= offerOldMemory
			}
			o.mrs = append(o.mrs, m)
			mrs = m.offer().append(mrs)
			continue
		}
		if i > 0 {
			m.mem.show(nil)
		}
		m.mu.Lock()
		fd, err := m.dupFD()
		m.mu.Unlock()
		if errors.Is(err, verbs.ErrClosed) {
			continue
		}
		if err != nil {
			o.close()
			return nil, err
		}
		o.fds, o.own, o.mrs = append(o.fds, fd), append(o.own, fd), append(o.mrs, m)
		mrs = m.offer().append(mrs)
	}
	b := make([]byte, offerHeader, offerHeader+len(mrs))
	b[0], b[1], b[2], b[3] = offerVersion, flags, q.in.shift, q.in.bounceShift
	hostOrder.PutUint32(b[4:], q.num)
	b[8] = byte(len(o.mrs))
	o.blob = append(b, mrs...)
	return o, nil
}

// exportable is what the peer will probably ask for. Until the QP is up nobody
// writes by it, so that an MR closed before the QP is attached can still be called
// back; from RTR on the peer has to ask, on a link that exists.
func (q *qp) exportable() []*mr {
	if q.State() != verbs.QPInit {
		return nil
	}
	return q.pd.exportable(q, maxOffered)
}

// toFront brings the MR that lies behind an inbox in s to the front, and says whether there
// is one.
func (s *segment) toFront(mrs []*mr) bool {
	for i, m := range mrs {
		if s != nil && m.mem.segment == s && m.access&verbs.AccessRemoteWrite != 0 {
			copy(mrs[1:i+1], mrs[:i])
			mrs[0] = m
			return true
		}
	}
	return false
}

// dupFD duplicates the descriptor of the memory, for reading only where the MR
// gives no more than that. m.mu is held.
func (m *mr) dupFD() (int, error) {
	if m.closed {
		return -1, verbs.ErrClosed
	}
	if m.access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) == 0 {
		fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(m.mem.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
	}
	fd, err := unix.FcntlInt(uintptr(m.mem.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, noMemory("fcntl", 0, err)
	}
	return fd, nil
}

// lendFD returns a descriptor of the MR's memory as dupFD does, until release. It takes none of
// the process where the peer may write: who asks when there is none would be told that there is
// no such MR. m.mu is held until release.
func (m *mr) lendFD() (fd int, release func(), err error) {
	if !m.closed && m.access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 {
		return m.mem.fd, func() {}, nil
	}
	if fd, err = m.dupFD(); err != nil {
		return -1, nil, err
	}
	return fd, func() { unix.Close(fd) }, nil
}

// fdName is what the kernel calls a descriptor.
func fdName(fd int) (string, error) { return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) }

// openOffer maps what a peer offers and takes fds, all of them also on error. What is
// kept on ln and not offered again is let go of.
func openOffer(b []byte, fds []int, ln *line) (_ *peer, err error) {
	p := &peer{}
	left := fds
	old := ln.takePeer()
	defer func() {
		old.unmap()
		closeFDs(left)
		if err != nil {
			p.unmap()
		}
	}()
	if len(b) < offerHeader || b[0] != offerVersion {
		return nil, fmt.Errorf("%w: offer of %d bytes that is not of version %d", verbs.ErrProtocol, len(b), offerVersion)
	}
	flags, n := b[1], int(b[8])
	want := 1 + n - bits.OnesCount8(flags&(offerOldInbox|offerOldEvent|offerOldMemory)) + bits.OnesCount8(flags&(offerEvent|offerSRQ))
	if flags&(offerJointMR|offerOldMemory) == offerJointMR {
		want--
	}
	if n > maxOffered || len(b) != offerHeader+n*mrOfferSize || len(fds) != want || flags&^offerFlags != 0 || !jointly(flags, n) {
		return nil, fmt.Errorf("%w: offer of %d bytes, %d MRs and %d descriptors", verbs.ErrProtocol, len(b), n, len(fds))
	}
	if err := old.check(b); err != nil {
		return nil, err
	}
	p.qpn = hostOrder.Uint32(b[4:])
	p.line = ln
	next := 0
	if flags&offerOldInbox != 0 {
		p.out, old.out = old.out, outbox{}
		p.out.renew()
	} else {
		g, end := offeredGeometry(b), 0
		if flags&offerJointMR != 0 {
			if end, err = parseMROffer(b[offerHeader:]).checkJoint(g); err != nil {
				return nil, err
			}
		}
		out, err := openOutbox(left[0], g, end)
		if err != nil {
			return nil, err
		}
		p.out = *out
		next++
	}
	if flags&offerOldEvent != 0 {
		p.door, old.door = old.door, nil
	} else if flags&offerEvent != 0 {
		if p.door, err = newDoorbell(left[next]); err != nil {
			return nil, err
		}
		// It is the doorbell's from here on.
		left = append(append([]int{}, left[:next]...), left[next+1:]...)
	}
	if flags&offerSRQ != 0 {
		if p.srq, err = openSRQ(left[next]); err != nil {
			return nil, err
		}
		next++
	}
	for i := range n {
		o := parseMROffer(b[offerHeader+i*mrOfferSize:])
		var m *remoteMR
		switch {
		case i == 0 && flags&offerOldMemory != 0:
			m, old.mr = old.mr, nil
			m.key, m.access, m.addr = o.key, o.access, o.addr
		case i == 0 && flags&offerJointMR != 0:
			m = o.openJoint(p.out.data)
		default:
			if m, err = o.open(left[next]); err != nil {
				return nil, err
			}
			next++
		}
		m.first = i == 0
		p.add(m)
	}
	return p, nil
}

// offeredGeometry is that of the inbox.
func offeredGeometry(b []byte) geometry {
	return geometry{shift: b[2], bounceShift: b[3], joint: b[1]&offerJoint != 0}
}

// jointly says whether the flags of an offer of n MRs go together: a joint MR has no
// mapping but that of the inbox.
func jointly(flags byte, n int) bool {
	if flags&offerJointMR == 0 {
		return true
	}
	return flags&offerJoint != 0 && n > 0 && (flags&offerOldInbox != 0) == (flags&offerOldMemory != 0)
}

// check checks an offer against what is kept of the peer: it must be what the flags
// say, and of the same shape.
func (k *keptPeer) check(b []byte) error {
	flags := b[1]
	bad := ""
	switch {
	case flags&offerOldInbox != 0 && (k.out.data == nil || k.out.geometry != offeredGeometry(b)):
		bad = "inbox"
	case flags&offerOldEvent != 0 && (k.door == nil || flags&offerEvent == 0):
		bad = "eventfd"
	case flags&offerOldMemory != 0 && (k.mr == nil || b[8] == 0 || parseMROffer(b[offerHeader:]).check() != nil || parseMROffer(b[offerHeader:]).shape(flags&offerJointMR != 0) != k.mr.shape):
		bad = "memory"
	}
	if bad != "" {
		return fmt.Errorf("%w: offer of an %s of an earlier connection, where none like it is kept", verbs.ErrProtocol, bad)
	}
	return nil
}
