//go:build linux && (amd64 || arm64)

package soft

import (
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// write is RDMA_WRITE, with or without immediate. Nothing is written before a
// receive is there for the immediate.
func (q *qp) write(wr *verbs.SendWR) outcome {
	p, st, o := q.reach()
	if o != succeeded {
		return o
	}
	imm := wr.Opcode == verbs.WRRDMAWriteWithImm
	if imm && (p.srq != nil || uint32(p.out.Next) == p.out.Credit) {
		if o := q.takeCredit(p); o != succeeded {
			return o
		}
	}
	size := uint64(len(wr.Inline)) + sgeLength(wr.SGList)
	if size > maxMsg {
		return failed(verbs.WCLocLenErr)
	}
	n := uint32(size)
	if n > 0 {
		dst, o := q.target(p, st, wr, n, verbs.AccessRemoteWrite)
		if o != succeeded {
			return o
		}
		if wr.Flags&verbs.SendInline != 0 {
			copy(dst, wr.Inline)
			shm.PrefetchBehind(dst)
		} else if !q.pd.gather(dst, wr.SGList, 0) {
			return failed(verbs.WCLocProtErr)
		}
	}
	if imm {
		op := uint64(shm.EntryWriteImm)
		if wr.Flags&verbs.SendSolicited != 0 {
			op |= shm.EntrySolicited
		}
		p.out.Publish(op, wr.ImmData, size)
		q.published(p, op)
	}
	return succeeded
}

// published looks whether the receiver of the entry just published must be woken.
func (q *qp) published(p *peer, op uint64) {
	q.entries++
	if shm.Sleeps(atomic.LoadUint32(p.out.Armed)) {
		q.wakePeer(op)
	}
}

// wakePeer has unlock wake the receiver, if an entry with op wakes it, and nobody else has.
func (q *qp) wakePeer(op uint64) {
	if p := q.peer; p.out.TakeWake(op&shm.EntrySolicited != 0) && p.door != nil {
		q.wake = true
		q.wakeups.Add(1)
	}
}

// reach returns the peer and its status, if requests reach it, or else the outcome of one.
func (q *qp) reach() (p *peer, st shm.Status, o outcome) {
	if p = q.peer; p != nil {
		if st = shm.Status(atomic.LoadUint32(p.out.Status)); st.State() == shm.StatusUp {
			return p, st, succeeded
		}
	}
	return nil, 0, q.notReached(p, st)
}

// notReached is the outcome of a request that waits for the connection, or for a peer that is
// connected and about to come up, and fails if there was one.
func (q *qp) notReached(p *peer, st shm.Status) outcome {
	if p == nil && q.link == nil || p != nil && st.State() == shm.StatusDown {
		return waitPeer
	}
	return failed(verbs.WCRetryExcErr)
}

// takeCredit looks whether a receive is there for one more entry.
func (q *qp) takeCredit(p *peer) outcome {
	var n uint32
	var err error
	if p.srq != nil {
		n = p.srq.ready(&p.out)
	} else if n, err = p.out.Ready(); err != nil {
		q.link.close(err)
		return failed(verbs.WCFatalErr)
	}
	if n == 0 {
		return waitRNR
	}
	return succeeded
}

// target finds the n bytes of the peer's memory that wr is about. An unknown key
// is asked for; what the peer would refuse is refused here in its name, as the
// spec has it: the QP's rights are an invalid request, the MR's an access error.
func (q *qp) target(p *peer, st shm.Status, wr *verbs.SendWR, n uint32, need verbs.AccessFlags) ([]byte, outcome) {
	m := p.last
	if m == nil || m.Key != wr.RKey {
		if m = p.find(wr.RKey); m == nil {
			return nil, q.lookup(wr.RKey)
		}
		p.last = m
	}
	if st.Access()&need == 0 {
		return nil, failed(verbs.WCRemInvReqErr)
	}
	off := wr.RemoteAddr - m.Addr // wraps far past the length if it is below
	if m.Access&need == 0 || off > uint64(len(m.Data)) || uint64(n) > uint64(len(m.Data))-off {
		return nil, failed(verbs.WCRemAccessErr)
	}
	b := m.Data[off : off+uint64(n)]
	if need != verbs.AccessRemoteRead && !m.Back(off, uint64(n)) {
		return nil, failed(verbs.WCRemOpErr)
	}
	return b, succeeded
}

// sgeLength adds up a list of at most maxSGE entries.
func sgeLength(sges []verbs.SGE) (total uint64) {
	for i := range sges {
		total += uint64(sges[i].Length)
	}
	return total
}

// gather fills dst from the SGEs, from byte skip of them on; false if one is not valid.
func (p *pd) gather(dst []byte, sges []verbs.SGE, skip uint32) bool {
	for i := range sges {
		if len(dst) == 0 {
			break
		}
		s := &sges[i]
		if s.Length <= skip {
			skip -= s.Length
			continue
		}
		src := p.local(s, 0)
		if src == nil {
			return false
		}
		dst = dst[copy(dst, src[skip:]):]
		skip = 0
	}
	return true
}

// scatter spreads src over the SGEs from byte skip of them on; false if one is
// not valid.
func (p *pd) scatter(sges []verbs.SGE, skip uint32, src []byte) bool {
	for i := range sges {
		if len(src) == 0 {
			break
		}
		s := &sges[i]
		if s.Length <= skip {
			skip -= s.Length
			continue
		}
		dst := p.local(s, verbs.AccessLocalWrite)
		if dst == nil {
			return false
		}
		src = src[copy(dst[skip:], src):]
		skip = 0
	}
	return true
}

// read is RDMA_READ.
func (q *qp) read(wr *verbs.SendWR) outcome {
	p, st, o := q.reach()
	if o != succeeded {
		return o
	}
	total := sgeLength(wr.SGList)
	if total > maxMsg {
		return failed(verbs.WCLocLenErr)
	}
	if total == 0 {
		return succeeded
	}
	src, o := q.target(p, st, wr, uint32(total), verbs.AccessRemoteRead)
	if o != succeeded {
		return o
	}
	if !q.pd.scatter(wr.SGList, 0, src) {
		return failed(verbs.WCLocProtErr)
	}
	return succeeded
}

// atomic is CMP_AND_SWP, FETCH_AND_ADD and ATOMIC_WRITE, on 8 aligned bytes of the
// peer's memory: atomic against everybody, processors included.
func (q *qp) atomic(wr *verbs.SendWR) outcome {
	p, st, o := q.reach()
	if o != succeeded {
		return o
	}
	need, brings := verbs.AccessRemoteAtomic, true
	if wr.Opcode == verbs.WRAtomicWrite {
		need, brings = verbs.AccessRemoteWrite, false
	}
	if brings && sgeLength(wr.SGList) != 8 {
		return failed(verbs.WCLocLenErr)
	}
	if wr.RemoteAddr%8 != 0 {
		return failed(verbs.WCRemInvReqErr)
	}
	if brings && !q.pd.allows(wr.SGList, verbs.AccessLocalWrite) {
		return failed(verbs.WCLocProtErr)
	}
	b, o := q.target(p, st, wr, 8, need)
	if o != succeeded {
		return o
	}
	word := shm.LongAt(b, 0)
	var old uint64
	switch wr.Opcode {
	case verbs.WRAtomicWrite:
		atomic.StoreUint64(word, wr.Swap)
		return succeeded
	case verbs.WRAtomicFetchAndAdd:
		old = atomic.AddUint64(word, wr.CompareAdd) - wr.CompareAdd
	default:
		for {
			old = atomic.LoadUint64(word)
			if old != wr.CompareAdd || atomic.CompareAndSwapUint64(word, old, wr.Swap) {
				break
			}
		}
	}
	var res [8]byte
	shm.HostOrder.PutUint64(res[:], old)
	if !q.pd.scatter(wr.SGList, 0, res[:]) {
		return failed(verbs.WCLocProtErr)
	}
	return succeeded
}

// allows reports whether all the SGEs may be used with that right, 0 to read them.
func (p *pd) allows(sges []verbs.SGE, need verbs.AccessFlags) bool {
	for i := range sges {
		if sges[i].Length != 0 && p.local(&sges[i], need) == nil {
			return false
		}
	}
	return true
}

// localInv is LOCAL_INV. It completes when no peer has the memory mapped any more.
func (q *qp) localInv(wr *verbs.SendWR) outcome {
	s := &q.sq
	switch {
	case s.wait.revoked:
		return succeeded
	case s.wait.inv:
		return waitMR // this is somebody else's retry
	}
	m := q.ctx.keys.lookup(wr.ImmData)
	if m == nil || m.pd != q.pd || !m.usableBy(q) || m.busy() {
		return failed(verbs.WCLocQPOpErr)
	}
	revoking := m.invalidate()
	if revoking == nil {
		return succeeded
	}
	s.wait.inv = true
	at := s.done
	go func() {
		revoking()
		q.mu.Lock()
		if s.done == at && s.done != s.posted {
			s.wait.revoked = true
			q.progress()
		}
		q.unlock()
	}()
	return waitMR
}
