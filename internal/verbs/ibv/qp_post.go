//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"syscall"

	"github.com/ebitengine/purego"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.sendMu.Lock()
	n, err := q.postSends(wrs)
	q.sendMu.Unlock()
	return n, err
}

func (q *qp) postSends(wrs []verbs.SendWR) (int, error) {
	if q.closed {
		return 0, verbs.ErrClosed
	}
	// Some devices queue what they then refuse because of the state.
	if st := q.known(); st < verbs.QPRTS && !q.connectedByNumber() {
		return 0, fmt.Errorf("%w: PostSend to a QP in %v", verbs.ErrState, st)
	}
	l := &q.sends
	n := 0
	for n < len(wrs) {
		if q.alone(&wrs[n]) {
			if err := q.postAlone(&wrs[n]); err != nil {
				return n, err
			}
			n++
			continue
		}
		l.reset()
		var bad error
		for i := n; i < len(wrs) && !q.alone(&wrs[i]); i++ {
			ok, err := l.add(&wrs[i])
			if !ok {
				bad = err
				break
			}
		}
		if l.n > 0 {
			taken, err := q.flushSends()
			n += taken
			if err != nil {
				return n, err
			}
		}
		if bad != nil {
			return n, bad
		}
	}
	return n, nil
}

// flushSends posts the chain and returns how many requests of it were taken.
func (q *qp) flushSends() (int, error) {
	*q.sendBad = 0
	r, _, errno := purego.SyscallN(q.postSend, q.sendArgs[:]...)
	if int32(r) == 0 && (*q.sendBad == 0 || q.ctx.dev.transport != verbs.TransportIWARP) {
		return q.sends.n, nil
	}
	taken := 0
	if *q.sendBad != 0 {
		taken = q.sends.index(*q.sendBad)
	}
	if int32(r) == 0 {
		// siw's library forgets that the queue was full once it has told the kernel of the
		// requests before.
		return taken, verbs.ErrQueueFull
	}
	return taken, postError("ibv_post_send", int32(r), syscall.Errno(errno))
}

// postError is what a post that failed has returned: an errno, of some drivers (siw) a
// negative one. siw's library returns -1 where the kernel refused, whose errno says why.
func postError(fn string, r int32, errno syscall.Errno) error {
	if r == -1 && errno != 0 {
		r = int32(errno)
	}
	if r == int32(syscall.ENOMEM) || r == -int32(syscall.ENOMEM) {
		return verbs.ErrQueueFull
	}
	return returned(fn, r)
}

func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.recvMu.Lock()
	n, err := q.postRecvs(wrs)
	failed := n > 0 && (q.known() == verbs.QPErr || q.failed.Load())
	q.recvMu.Unlock()
	if failed {
		q.flush()
	}
	return n, err
}

func (q *qp) postRecvs(wrs []verbs.RecvWR) (int, error) {
	switch {
	case q.closed:
		return 0, verbs.ErrClosed
	case q.srq != nil:
		return 0, fmt.Errorf("%w: PostRecv to a QP with an SRQ", verbs.ErrInvalid)
	case q.known() == verbs.QPReset:
		return 0, fmt.Errorf("%w: PostRecv to a QP in %v", verbs.ErrState, verbs.QPReset)
	}
	return q.recvs.post("ibv_post_recv", q.postRecv, &q.recvArgs, q.recvBad, wrs)
}

// post posts requests in chains, by ibv_post_recv or ibv_post_srq_recv.
func (l *recvList) post(name string, fn uintptr, args *[3]uintptr, badWR *uintptr, wrs []verbs.RecvWR) (int, error) {
	n := 0
	for n < len(wrs) {
		l.reset()
		var bad error
		for i := n; i < len(wrs); i++ {
			ok, err := l.add(&wrs[i])
			if !ok {
				bad = err
				break
			}
		}
		if l.n > 0 {
			*badWR = 0
			r, _, _ := purego.SyscallN(fn, args[:]...)
			if int32(r) != 0 {
				if *badWR != 0 {
					n += l.index(*badWR)
				}
				return n, postError(name, int32(r), 0) // the kernel has no part in it
			}
			n += l.n
		}
		if bad != nil {
			return n, bad
		}
	}
	return n, nil
}
