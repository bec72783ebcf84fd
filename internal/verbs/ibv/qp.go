//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// qp is verbs.QP. The locks are taken in the order ctl, send, recv.
type qp struct {
	ctx      *devContext
	pd       *pd
	handle   uintptr          // struct ibv_qp
	c        *cQP             // the same, C's memory
	id       *cmID            // the id that it was made on, or nil
	qpn      atomic.Uint32    // the CQs may look before it is known
	init     verbs.QPInitAttr // with the granted capacities
	sendCQ   *cq
	recvCQ   *cq
	srq      *srq // may be nil
	postSend uintptr
	postRecv uintptr
	mem      *arena
	asInit   cmInit      // how the connection manager had it in INIT
	failed   atomic.Bool // a request has failed: the QP is or was in ERR
	extended bool        // made by the extended verbs
	rts      atomic.Bool // the connection manager has established it; see known

	ctl    sync.Mutex // Modify, Query, Close
	closed bool       // written with all locks held

	sendMu   sync.Mutex
	sends    sendList
	sendArgs [3]uintptr
	sendBad  *uintptr
	writer   *atomicWriter // nil unless the device has ATOMIC_WRITE

	recvMu   sync.Mutex
	recvs    recvList
	recvArgs [3]uintptr
	recvBad  *uintptr
}

func (p *pd) CreateQP(attr *verbs.QPInitAttr) (verbs.QP, error) {
	q, err := p.createQP(attr, nil)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// createQP makes a QP, on an id of the connection manager if there is one.
func (p *pd) createQP(attr *verbs.QPInitAttr, id *cmID) (_ *qp, err error) {
	if attr == nil {
		return nil, fmt.Errorf("%w: no attributes", verbs.ErrInvalid)
	}
	q := &qp{ctx: p.ctx, pd: p, id: id, init: *attr}
	if err := q.checkInit(); err != nil {
		return nil, err
	}
	if err := p.users.Hold(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.users.Release()
		}
	}()
	if err := q.holdQueues(); err != nil {
		return nil, err
	}
	if err := q.create(); err != nil {
		q.releaseQueues()
		return nil, err
	}
	attr.Cap = q.init.Cap
	p.ctx.addQP(q)
	return q, nil
}

// checkInit checks what the QP is to be made of.
func (q *qp) checkInit() error {
	a, limits := &q.init, &q.ctx.limits.attr
	switch a.Type {
	case verbs.QPTypeRC:
	case verbs.QPTypeUC, verbs.QPTypeUD:
		if q.ctx.dev.transport == verbs.TransportIWARP {
			return fmt.Errorf("%w: QP type %v on iWARP", verbs.ErrNotSupported, a.Type)
		}
	default:
		return fmt.Errorf("%w: QP type %v", verbs.ErrNotSupported, a.Type)
	}
	var ok bool
	if q.sendCQ, ok = a.SendCQ.(*cq); !ok || q.sendCQ.ctx != q.ctx {
		return fmt.Errorf("%w: SendCQ is not a CQ of the context", verbs.ErrInvalid)
	}
	if q.recvCQ, ok = a.RecvCQ.(*cq); !ok || q.recvCQ.ctx != q.ctx {
		return fmt.Errorf("%w: RecvCQ is not a CQ of the context", verbs.ErrInvalid)
	}
	if a.SRQ != nil {
		if q.srq, ok = a.SRQ.(*srq); !ok || q.srq.pd != q.pd {
			return fmt.Errorf("%w: the SRQ is not of the PD", verbs.ErrInvalid)
		}
	}
	for _, c := range []struct {
		name      string
		got, most int
	}{
		{"MaxSendWR", a.Cap.MaxSendWR, limits.MaxQPWR},
		{"MaxRecvWR", a.Cap.MaxRecvWR, limits.MaxQPWR},
		{"MaxSendSGE", a.Cap.MaxSendSGE, limits.MaxSGE},
		{"MaxRecvSGE", a.Cap.MaxRecvSGE, limits.MaxSGE},
		{"MaxInlineData", a.Cap.MaxInlineData, maxInlineTried}, // the device may want less
	} {
		if c.got < 0 || c.got > c.most {
			return fmt.Errorf("%w: %s %d, where 0 to %d are possible", verbs.ErrInvalid, c.name, c.got, c.most)
		}
	}
	return nil
}

// holdQueues counts the QP as a user of its CQs and SRQ.
func (q *qp) holdQueues() error {
	if err := q.sendCQ.hold(q); err != nil {
		return fmt.Errorf("send CQ: %w", err)
	}
	if err := q.recvCQ.hold(q); err != nil {
		q.sendCQ.release(q)
		return fmt.Errorf("receive CQ: %w", err)
	}
	if q.srq == nil {
		return nil
	}
	if err := q.srq.hold(); err != nil {
		q.sendCQ.release(q)
		q.recvCQ.release(q)
		return fmt.Errorf("SRQ: %w", err)
	}
	return nil
}

func (q *qp) releaseQueues() {
	q.sendCQ.release(q)
	q.recvCQ.release(q)
	if q.srq != nil {
		q.srq.release()
	}
}

// create makes the C object and the arrays for its requests.
func (q *qp) create() error {
	a := &q.init
	// struct ibv_qp_init_attr_ex begins as struct ibv_qp_init_attr does.
	in := &cQPInitAttrEx{
		sendCQ: q.sendCQ.handle,
		recvCQ: q.recvCQ.handle,
		cap: cQPCap{
			maxSendWR: uint32(a.Cap.MaxSendWR), maxRecvWR: uint32(a.Cap.MaxRecvWR),
			maxSendSGE: uint32(a.Cap.MaxSendSGE), maxRecvSGE: uint32(a.Cap.MaxRecvSGE),
			maxInlineData: uint32(a.Cap.MaxInlineData),
		},
		qpType: uint32(a.Type),
	}
	if q.ctx.isSoftIWARP() {
		in.cap.maxSendSGE = max(in.cap.maxSendSGE, 2) // for splitSmall
	}
	if q.srq != nil {
		in.srq = q.srq.handle
	}
	if a.SigAll {
		in.sqSigAll = 1
	}
	var err error
	if q.id != nil {
		err = q.id.makeQP(q, in)
	} else {
		err = q.make(in)
	}
	if err != nil {
		return fmt.Errorf("QP of %d send and %d receive requests: %w", a.Cap.MaxSendWR, a.Cap.MaxRecvWR, err)
	}
	granted := verbs.QPCap{
		MaxSendWR: int(in.cap.maxSendWR), MaxRecvWR: int(in.cap.maxRecvWR),
		MaxSendSGE: int(in.cap.maxSendSGE), MaxRecvSGE: int(in.cap.maxRecvSGE),
		MaxInlineData: int(in.cap.maxInlineData),
	}
	a.Cap = granted
	if err := q.allocate(); err != nil {
		_ = q.destroy() // the error that matters is the first
		return err
	}
	return nil
}

// allocate makes the arrays that requests are built in.
func (q *qp) allocate() (err error) {
	c := &q.init.Cap
	size := sendListSize(c) + 2*arraySize[uintptr](1) + arraySize[uint64](1)
	if q.srq == nil {
		size += recvListSize(c.MaxRecvSGE)
	}
	if q.mem, err = newArena(q.ctx.lib, size); err != nil {
		return err
	}
	q.sends.init(q.mem, c, q.init.Type, q.ctx.limits.attr.Caps)
	q.sends.siw = q.ctx.isSoftIWARP()
	q.sends.maxRd = min(c.MaxSendSGE, q.ctx.limits.attr.MaxSGERD)
	q.sends.ops = q.init.SendOps
	q.sends.pd = q.pd
	q.sendBad = &array[uintptr](q.mem, 1)[0]
	q.sendArgs = [3]uintptr{q.handle, uintptr(unsafe.Pointer(&q.sends.wrs[0])), uintptr(unsafe.Pointer(q.sendBad))}
	q.recvBad = &array[uintptr](q.mem, 1)[0]
	if q.srq == nil {
		q.recvs.init(q.mem, c.MaxRecvSGE)
		q.recvs.siw = q.ctx.isSoftIWARP()
		q.recvArgs = [3]uintptr{q.handle, uintptr(unsafe.Pointer(&q.recvs.wrs[0])), uintptr(unsafe.Pointer(q.recvBad))}
	}
	q.postSend, q.postRecv = q.ctx.ops().postSend, q.ctx.ops().postRecv
	if q.extended && q.sends.caps&verbs.CapAtomicWrite != 0 {
		q.writer = newAtomicWriter(q, &array[uint64](q.mem, 1)[0])
	}
	if q.writer == nil {
		q.sends.caps &^= verbs.CapAtomicWrite
	}
	return nil
}

func (q *qp) QPN() uint32        { return q.qpn.Load() }
func (q *qp) PD() verbs.PD       { return q.pd }
func (q *qp) Type() verbs.QPType { return q.init.Type }
func (q *qp) UserData() any      { return q.init.UserData }

// destroy destroys the C object and frees the arrays.
func (q *qp) destroy() error {
	if q.id != nil {
		q.id.forgetQP(q)
	}
	err := returned("ibv_destroy_qp", q.ctx.ends(q.ctx.lib.destroyQP, q.handle))
	if q.mem != nil {
		q.mem.free()
	}
	return err
}

// Close waits for a Connect over TCP (iWARP), without a thread and before the locks:
// ibv_destroy_qp would wait for it.
func (q *qp) Close() error {
	q.id.awaitTCP()
	q.ctl.Lock()
	defer q.ctl.Unlock()
	q.sendMu.Lock()
	defer q.sendMu.Unlock()
	q.recvMu.Lock()
	defer q.recvMu.Unlock()
	if q.closed {
		return verbs.ErrClosed
	}
	q.closed = true
	q.ctx.forgetQP(q)
	err := q.destroy()
	q.releaseQueues()
	q.pd.users.Release()
	return err
}
