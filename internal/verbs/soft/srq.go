//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/object"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// srq is verbs.SRQ. Its peers see how many receives it holds in a page that they
// can only read. Two peers may count on the same receive: the message of the one
// that comes too late waits in its inbox until another receive is posted, where a
// packet device would have it sent again.
type srq struct {
	pd    *pd
	rq    *recvQueue
	fd    int
	users object.Users // QPs

	// rq.mu guards these and, for an SRQ, also taking.
	page    []byte // nil when it is closed
	limit   int
	waiting []*qp // QPs with a message that found no receive
}

// Where the page holds the counts of receives posted and taken.
const (
	offSRQPosted = 0
	offSRQTaken  = 64
)

func newSRQ(p *pd, attr *verbs.SRQInitAttr) (*srq, error) {
	if attr == nil || attr.MaxWR < 1 || attr.MaxWR > maxQueue || attr.MaxSGE < 0 || attr.MaxSGE > maxSGE ||
		attr.SRQLimit < 0 || attr.SRQLimit > attr.MaxWR {
		return nil, fmt.Errorf("%w: SRQ attributes %+v, where up to %d requests of %d SGEs are possible", verbs.ErrInvalid, attr, maxQueue, maxSGE)
	}
	fd, page, err := shm.New("rdma-soft-srq", shm.PageSize, shm.PageSize, true)
	if err != nil {
		return nil, err
	}
	s := &srq{pd: p, fd: fd, page: page, limit: attr.SRQLimit, rq: newRecvQueue(p, attr.MaxWR, attr.MaxSGE)}
	// From here on nobody but this mapping can write.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
		_ = shm.Unmap(page)
		unix.Close(fd)
		return nil, fmt.Errorf("%w: an SRQ needs F_SEAL_FUTURE_WRITE (Linux 5.1): %w", verbs.ErrNotSupported, err)
	}
	return s, nil
}

func (s *srq) PD() verbs.PD { return s.pd }

func (s *srq) count(off int) *uint32 { return shm.WordAt(s.page, off) }

func (s *srq) PostRecv(wrs []verbs.RecvWR) (n int, err error) {
	s.rq.mu.Lock()
	if s.page == nil {
		s.rq.mu.Unlock()
		return 0, verbs.ErrClosed
	}
	s.rq.release()
	for n < len(wrs) {
		if err = s.rq.post(&wrs[n]); err != nil {
			break
		}
		n++
	}
	s.rq.publish()
	atomic.StoreUint32(s.count(offSRQPosted), s.rq.posted)
	waiting := s.waiting
	s.waiting = nil
	s.rq.mu.Unlock()
	for _, q := range waiting {
		q.progressInbox()
	}
	return n, err
}

func (s *srq) SetLimit(limit int) error {
	s.rq.mu.Lock()
	defer s.rq.mu.Unlock()
	if s.page == nil {
		return verbs.ErrClosed
	}
	if limit < 0 || limit > s.rq.max {
		return fmt.Errorf("%w: limit %d of an SRQ of %d", verbs.ErrInvalid, limit, s.rq.max)
	}
	s.limit = limit
	return nil
}

// taken counts the receive that peek returned as taken; rq.mu is held.
func (s *srq) taken() {
	s.rq.next++
	atomic.StoreUint32(s.count(offSRQTaken), s.rq.next)
	if s.limit > 0 && int(s.rq.posted-s.rq.next) < s.limit {
		s.limit = 0
		s.pd.ctx.raise(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: s})
	}
}

// wait notes that q has a message for which there is no receive; rq.mu is held.
func (s *srq) wait(q *qp) {
	if !slices.Contains(s.waiting, q) {
		s.waiting = append(s.waiting, q)
	}
}

// release ends the use of the SRQ by q.
func (s *srq) release(q *qp) {
	s.rq.mu.Lock()
	s.waiting = without(s.waiting, q)
	s.rq.mu.Unlock()
	s.users.Release()
}

func (s *srq) Close() error {
	err := s.users.Close(func(qps int) error {
		if qps > 0 {
			return fmt.Errorf("%w: %d QPs use the SRQ", verbs.ErrBusy, qps)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.rq.mu.Lock()
	defer s.rq.mu.Unlock()
	_ = shm.Unmap(s.page)
	s.page = nil
	unix.Close(s.fd)
	s.pd.ctx.async.Forget(func(ev verbs.AsyncEvent) bool { return ev.SRQ == verbs.SRQ(s) })
	s.pd.users.Release()
	return nil
}

// srqView is the page of a peer's SRQ, as an initiator sees it.
type srqView []byte

func openSRQ(fd int) (srqView, error) {
	return shm.MapPeer(fd, 0, shm.PageSize, unix.PROT_READ)
}

// ready returns how many more entries o may publish: what the SRQ holds, less
// what we have in flight. The peer's figures bound only what it has to keep itself.
func (v srqView) ready(o *shm.Outbox) uint32 {
	taken := atomic.LoadUint32(shm.WordAt(v, offSRQTaken))
	held := atomic.LoadUint32(shm.WordAt(v, offSRQPosted)) - taken
	flight := uint32(o.Next) - atomic.LoadUint32(o.Word(shm.OffConsumed))
	room := min(held, 1<<o.Shift)
	if flight >= room {
		return 0
	}
	return room - flight
}
