//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// An offer is what a peer needs to write to a QP. It is sent with descriptors: the
// inbox, the eventfd and the SRQ page if the flags say so, then one for each MR.
//
//	0 version u8 | 1 flags u8 | 2 log2 entries u8 | 3 log2 bounce bytes u8 | 4 QPN u32
//	8 number of MRs u8 | 9 reserved, 0 | 16 MRs, 32 bytes each
const (
	offerVersion = 4
	offerHeader  = 16
	maxOffered   = 4 // MRs; others are asked for

	offerEvent = 1 << 0
	offerSRQ   = 1 << 1
	offerFlags = 1<<2 - 1
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
		control.CloseFDs(o.own)
		o.own = nil
	}
}

// offer makes the QP's offer, for later.
func (q *qp) offer() error { return q.withOffer(func([]byte, []int) error { return nil }) }

// withOffer calls use with the QP's offer. The lock keeps the descriptors the QP's meanwhile:
// Close would leave their numbers to other files.
func (q *qp) withOffer(use func(blob []byte, fds []int) error) (err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return verbs.ErrClosed
	}
	if q.in == nil || q.link != nil || q.State() == verbs.QPErr {
		return fmt.Errorf("%w: QP in %v cannot be connected", verbs.ErrState, q.State())
	}
	if q.offered == nil {
		if q.offered, err = q.makeOffer(); err != nil {
			return err
		}
	}
	return use(q.offered.blob, q.offered.fds)
}

// sendOffer sends the message that makes of the QP's offer, with its descriptors.
func (q *qp) sendOffer(s *control.Socket, message func(offer []byte) []byte) error {
	return q.withOffer(func(blob []byte, fds []int) error { return s.Send(message(blob), fds) })
}

func (q *qp) makeOffer() (*offered, error) {
	o := &offered{}
	var flags byte
	o.fds = append(o.fds, q.in.FD)
	if ch := q.recvCQ.channel; ch != nil {
		flags |= offerEvent
		o.fds = append(o.fds, ch.fd)
	}
	if q.srq != nil {
		flags |= offerSRQ
		o.fds = append(o.fds, q.srq.fd)
	}
	var mrs []byte
	for _, m := range q.exportable() {
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
		mrs = m.offer().Append(mrs)
	}
	b := make([]byte, offerHeader, offerHeader+len(mrs))
	b[0], b[1], b[2], b[3] = offerVersion, flags, q.in.Shift, q.in.BounceShift
	shm.HostOrder.PutUint32(b[4:], q.num)
	b[8] = byte(len(o.mrs))
	o.blob = append(b, mrs...)
	return o, nil
}

// exportable is what the peer will probably ask for: MRs of the PD that it may use.
// Until the QP is up nobody writes by it, so that an MR closed before the QP is attached
// can still be called back; from RTR on the peer has to ask, on a link that exists.
func (q *qp) exportable() (out []*mr) {
	if q.State() != verbs.QPInit {
		return nil
	}
	q.pd.mu.Lock()
	defer q.pd.mu.Unlock()
	for _, m := range q.pd.mrs {
		if len(out) == maxOffered {
			break
		}
		if m.access&verbs.AccessRemote != 0 && q.ctx.keys.lookup(m.key) == m {
			out = append(out, m)
		}
	}
	return out
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
		return -1, shm.NoMemory("fcntl", len(m.buf), err)
	}
	return fd, nil
}

// lendFD returns a descriptor of the MR's memory as dupFD does, until release. It takes none of
// the process where the peer may write: who asks when there is none would be told that there is
// no such MR. m.mu is held, and need not be until release.
func (m *mr) lendFD() (fd int, release func(), err error) {
	if !m.closed && m.access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 {
		if err := m.mem.users.Hold(); err != nil {
			return -1, nil, err
		}
		return m.mem.fd, m.mem.users.Release, nil
	}
	if fd, err = m.dupFD(); err != nil {
		return -1, nil, err
	}
	return fd, func() { unix.Close(fd) }, nil
}

// openOffer maps what a peer offers and takes fds, all of them also on error.
func openOffer(b []byte, fds []int) (_ *peer, err error) {
	p := &peer{}
	left := fds
	defer func() {
		control.CloseFDs(left)
		if err != nil {
			p.unmap()
		}
	}()
	if len(b) < offerHeader || b[0] != offerVersion {
		return nil, fmt.Errorf("%w: offer of %d bytes that is not of version %d", verbs.ErrProtocol, len(b), offerVersion)
	}
	flags, n := b[1], int(b[8])
	want := 1 + n + bits.OnesCount8(flags&(offerEvent|offerSRQ))
	if n > maxOffered || len(b) != offerHeader+n*shm.MROfferSize || len(fds) != want || flags&^offerFlags != 0 {
		return nil, fmt.Errorf("%w: offer of %d bytes, %d MRs and %d descriptors", verbs.ErrProtocol, len(b), n, len(fds))
	}
	p.qpn = shm.HostOrder.Uint32(b[4:])
	out, err := shm.OpenOutbox(left[0], shm.Geometry{Shift: b[2], BounceShift: b[3]})
	if err != nil {
		return nil, err
	}
	p.out = *out
	next := 1
	if flags&offerEvent != 0 {
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
		m, err := shm.ParseMROffer(b[offerHeader+i*shm.MROfferSize:]).Open(left[next])
		if err != nil {
			return nil, err
		}
		next++
		p.add(m)
	}
	return p, nil
}
