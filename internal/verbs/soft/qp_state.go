//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// transition is a change of state that IBA figure 124 has, with the attributes it
// needs and those it may bring along (ibv_modify_qp(3)).
type transition struct {
	from, to verbs.QPState
	need     verbs.QPAttrMask
	may      verbs.QPAttrMask
}

// transitions are those of a type, of which some attributes may be changed always, and
// others in SQD.
func transitions(typ verbs.QPType, always, inSQD verbs.QPAttrMask) []transition {
	init := verbs.UpMask(typ, verbs.QPInit)
	return []transition{
		{verbs.QPReset, verbs.QPInit, init, 0},
		{verbs.QPInit, verbs.QPInit, 0, init},
		{verbs.QPInit, verbs.QPRTR, verbs.UpMask(typ, verbs.QPRTR), always | verbs.QPMaskPKeyIndex},
		{verbs.QPRTR, verbs.QPRTS, verbs.UpMask(typ, verbs.QPRTS), always},
		{verbs.QPRTS, verbs.QPRTS, 0, always},
		{verbs.QPRTS, verbs.QPSQD, 0, 0},
		{verbs.QPSQD, verbs.QPRTS, 0, always},
		{verbs.QPSQD, verbs.QPSQD, 0, always | inSQD | verbs.QPMaskPKeyIndex},
		{verbs.QPSQErr, verbs.QPRTS, 0, always}, // where an RC QP never is
	}
}

var transitionsOf = map[verbs.QPType][]transition{
	verbs.QPTypeRC: transitions(verbs.QPTypeRC, verbs.QPMaskAccessFlags|verbs.QPMaskMinRNRTimer,
		verbs.QPMaskPort|verbs.QPMaskAV|verbs.QPMaskMaxQPRdAtomic|verbs.QPMaskMaxDestRdAtomic|
			verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry),
	verbs.QPTypeUC: transitions(verbs.QPTypeUC, verbs.QPMaskAccessFlags, verbs.QPMaskAV),
	verbs.QPTypeUD: transitions(verbs.QPTypeUD, verbs.QPMaskQKey, 0),
}

func (q *qp) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if attr == nil {
		return fmt.Errorf("%w: no attributes", verbs.ErrInvalid)
	}
	q.lockAlone()
	l := q.link
	dial, err := q.modify(attr, mask)
	to := q.attr.DestQPN
	reset := q.link == nil
	q.unlock()
	if l != nil && reset {
		l.close(nil)
	}
	if dial != nil {
		q.dial(dial, to)
	}
	return err
}

// modify is Modify under mu. It returns the search for a peer that is to begin.
func (q *qp) modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) (*bringUp, error) {
	if q.closed {
		return nil, verbs.ErrClosed
	}
	from, to := q.State(), q.State()
	if mask&verbs.QPMaskState != 0 {
		to = attr.State
	}
	if err := checkTransition(q.typ, from, to, mask); err != nil {
		return nil, err
	}
	if err := q.checkAttr(attr, mask); err != nil {
		return nil, err
	}
	switch to {
	case verbs.QPErr:
		q.toError()
		return nil, nil
	case verbs.QPReset:
		q.reset()
		return nil, nil
	}
	if from == verbs.QPReset {
		if err := q.toInit(); err != nil {
			return nil, err
		}
	}
	q.setAttr(attr, mask)
	q.enter(from, to)
	if from == verbs.QPInit && to == verbs.QPRTR {
		return q.startDial(), nil
	}
	return nil, nil
}

func checkTransition(typ verbs.QPType, from, to verbs.QPState, mask verbs.QPAttrMask) error {
	if to == verbs.QPErr || to == verbs.QPReset {
		if mask != verbs.QPMaskState {
			return fmt.Errorf("%w: attributes %#x on the way to %v", verbs.ErrInvalid, uint32(mask), to)
		}
		return nil
	}
	mask &^= verbs.QPMaskState
	for _, t := range transitionsOf[typ] {
		if t.from != from || t.to != to {
			continue
		}
		need := t.need &^ verbs.QPMaskState
		if lacks := need &^ mask; lacks != 0 {
			return fmt.Errorf("%w: %v to %v without attributes %#x", verbs.ErrInvalid, from, to, uint32(lacks))
		}
		if more := mask &^ (need | t.may); more != 0 {
			return fmt.Errorf("%w: %v to %v with attributes %#x", verbs.ErrInvalid, from, to, uint32(more))
		}
		return nil
	}
	return fmt.Errorf("%w: no transition from %v to %v", verbs.ErrInvalid, from, to)
}

// checkAttr checks the values that mask names.
func (q *qp) checkAttr(a *verbs.QPAttr, mask verbs.QPAttrMask) error {
	const all = verbs.AccessLocalWrite | verbs.AccessRemote
	bad := ""
	switch {
	case mask&verbs.QPMaskPort != 0 && a.PortNum != 1:
		bad = fmt.Sprintf("port %d of a device with one", a.PortNum)
	case mask&verbs.QPMaskPKeyIndex != 0 && a.PKeyIndex != 0:
		bad = fmt.Sprintf("P_Key index %d of a table of one", a.PKeyIndex)
	case mask&verbs.QPMaskAccessFlags != 0 && a.AccessFlags&^all != 0:
		bad = fmt.Sprintf("access flags %#x", uint32(a.AccessFlags))
	case mask&verbs.QPMaskPathMTU != 0 && a.PathMTU.Bytes() == 0:
		bad = fmt.Sprintf("path MTU %d", a.PathMTU)
	case mask&verbs.QPMaskDestQPN != 0 && a.DestQPN > 1<<24-1:
		bad = fmt.Sprintf("QPN %#x of more than 24 bits", a.DestQPN)
	case mask&verbs.QPMaskRQPSN != 0 && a.RQPSN > 1<<24-1, mask&verbs.QPMaskSQPSN != 0 && a.SQPSN > 1<<24-1:
		bad = "PSN of more than 24 bits"
	case mask&verbs.QPMaskMinRNRTimer != 0 && a.MinRNRTimer > 31:
		bad = fmt.Sprintf("RNR timer %d", a.MinRNRTimer)
	case mask&verbs.QPMaskTimeout != 0 && a.Timeout > 31:
		bad = fmt.Sprintf("timeout %d", a.Timeout)
	case mask&verbs.QPMaskRetryCnt != 0 && a.RetryCnt > 7, mask&verbs.QPMaskRNRRetry != 0 && a.RNRRetry > 7:
		bad = "more than 7 retries"
	case mask&verbs.QPMaskAV != 0 && !a.AH.IsGlobal:
		bad = "address vector without GID"
	case mask&verbs.QPMaskAV != 0:
		if _, err := q.ctx.QueryGID(1, a.AH.SGIDIndex); err != nil {
			return err
		}
	}
	if bad != "" {
		return fmt.Errorf("%w: %s", verbs.ErrInvalid, bad)
	}
	return nil
}

func (q *qp) setAttr(a *verbs.QPAttr, mask verbs.QPAttrMask) {
	d := &q.attr
	set(mask&verbs.QPMaskPort, &d.PortNum, a.PortNum)
	set(mask&verbs.QPMaskPKeyIndex, &d.PKeyIndex, a.PKeyIndex)
	if mask&verbs.QPMaskQKey != 0 {
		d.QKey = a.QKey
		q.recvCQ.mu.Lock()
		q.qkey = a.QKey
		q.recvCQ.mu.Unlock()
	}
	set(mask&verbs.QPMaskAccessFlags, &d.AccessFlags, a.AccessFlags)
	set(mask&verbs.QPMaskAV, &d.AH, a.AH)
	set(mask&verbs.QPMaskPathMTU, &d.PathMTU, a.PathMTU)
	set(mask&verbs.QPMaskDestQPN, &d.DestQPN, a.DestQPN)
	set(mask&verbs.QPMaskRQPSN, &d.RQPSN, a.RQPSN)
	set(mask&verbs.QPMaskSQPSN, &d.SQPSN, a.SQPSN)
	set(mask&verbs.QPMaskMaxQPRdAtomic, &d.MaxRdAtomic, a.MaxRdAtomic)
	set(mask&verbs.QPMaskMaxDestRdAtomic, &d.MaxDestRdAtomic, a.MaxDestRdAtomic)
	set(mask&verbs.QPMaskMinRNRTimer, &d.MinRNRTimer, a.MinRNRTimer)
	set(mask&verbs.QPMaskTimeout, &d.Timeout, a.Timeout)
	set(mask&verbs.QPMaskRetryCnt, &d.RetryCnt, a.RetryCnt)
	set(mask&verbs.QPMaskRNRRetry, &d.RNRRetry, a.RNRRetry)
}

// set changes an attribute if named, which is its bit of the mask, is not zero.
func set[T any](named verbs.QPAttrMask, attr *T, to T) {
	if named != 0 {
		*attr = to
	}
}

// toInit makes what a QP needs outside RESET.
func (q *qp) toInit() error {
	if q.typ == verbs.QPTypeUD {
		if q.srq == nil {
			q.rq.share(nil)
		}
		return nil
	}
	// The SRQ's peers count on as many entries as it has receives.
	in, err := shm.NewInbox(q.rq.max)
	if err != nil {
		return err
	}
	c := q.recvCQ
	c.mu.Lock()
	q.in, q.stopped, q.flushing, q.talked, q.failure = in, false, false, false, recvFailure{}
	c.mu.Unlock()
	if q.srq == nil {
		q.rq.share(&in.Mapping)
	}
	return nil
}

// enter is the change to any state but RESET and ERR, once the attributes are set.
func (q *qp) enter(from, to verbs.QPState) {
	q.state.Store(uint32(to))
	if q.in != nil {
		q.setStatus()
	}
	if from < verbs.QPRTR && to >= verbs.QPRTR && q.link != nil {
		q.link.tell(msgUp)
	}
	switch {
	case to == verbs.QPRTR && q.typ == verbs.QPTypeUD:
		q.startDatagrams()
	case from == verbs.QPRTS && to == verbs.QPSQD:
		if q.sq.done == q.sq.posted || q.sq.wait.sent == 0 {
			q.drained()
		}
	case to == verbs.QPRTS:
		q.progress()
	}
}

// toRTS brings a QP that the connection manager connects from INIT to RTS, with
// the parameters of the connection in attr.
func (q *qp) toRTS(attr verbs.QPAttr) error {
	q.mu.Lock()
	defer q.unlock()
	if q.closed {
		return verbs.ErrClosed
	}
	if st := q.State(); st != verbs.QPInit && st != verbs.QPRTR {
		return fmt.Errorf("%w: QP in %v cannot be connected", verbs.ErrState, st)
	}
	const mask = verbs.QPMaskMaxQPRdAtomic | verbs.QPMaskMaxDestRdAtomic | verbs.QPMaskMinRNRTimer |
		verbs.QPMaskTimeout | verbs.QPMaskRetryCnt | verbs.QPMaskRNRRetry
	if err := q.checkAttr(&attr, mask); err != nil {
		return err
	}
	q.setAttr(&attr, mask|verbs.QPMaskAccessFlags|verbs.QPMaskAV|verbs.QPMaskPathMTU)
	if q.link == nil {
		q.attr.DestQPN = attr.DestQPN
	}
	q.enter(q.State(), verbs.QPRTS)
	return nil
}

// reset is the change to RESET: the connection ends and what is queued is dropped.
// The caller closes the link. mu is held.
func (q *qp) reset() {
	q.state.Store(uint32(verbs.QPReset))
	q.endDial()
	q.dropPeer()
	q.link = nil
	q.offered.close()
	q.offered = nil
	if q.timer != nil {
		q.timer.Stop()
	}
	q.sq.done = q.sq.posted
	q.sendCQ.mu.Lock() // who polls may be about to store less
	q.sq.freed.Store(q.sq.posted)
	q.sendCQ.mu.Unlock()
	q.sq.wait = waitState{}
	q.attr = verbs.QPAttr{}
	in := q.in
	if in != nil {
		in.Withdraw()
		// The peer may have the memory mapped for longer than we have.
		atomic.StoreUint32(in.Status, uint32(shm.StatusError))
	}
	if q.srq == nil {
		q.rq.unshare()
	}
	c := q.recvCQ
	c.mu.Lock()
	q.stopped, q.flushing = true, false
	q.failure = recvFailure{} // who has found it may be about to act on it
	c.rx = without(c.rx, q)
	q.dropCur()
	q.in = nil
	c.mu.Unlock()
	if in != nil {
		in.Close()
	}
}
