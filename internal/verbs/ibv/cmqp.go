//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// The QP of an id. librdmacm is not told of it but for its number: if it were,
// rdma_get_cm_event would itself take the QP of a dialer through its states, one
// connection after the other, and look at it behind our back. So the driver modifies it,
// on whatever goroutine has the event or the call, with the attributes that the kernel
// names (rdma_init_qp_attr), and tells the peer by rdma_establish.

func (id *cmID) CreateQP(domain verbs.PD, attr *verbs.QPInitAttr) (verbs.QP, error) {
	p, ok := domain.(*pd)
	if !ok {
		return nil, fmt.Errorf("the PD is not one of the id's Verbs(): %w", verbs.ErrInvalid)
	}
	q, err := p.createQP(attr, id)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// makeQP makes the C object of a QP and takes it to INIT.
func (id *cmID) makeQP(q *qp, in *cQPInitAttrEx) error {
	id.mu.Lock()
	if err := id.expect("CreateQP", cmBound, cmAddrResolved, cmResolvingRoute, cmRouteResolved, cmRequested, cmResponded); err != nil {
		id.mu.Unlock()
		return err
	}
	switch {
	case id.qp != nil || id.making:
		id.mu.Unlock()
		return fmt.Errorf("CreateQP on an id that has a QP: %w", verbs.ErrState)
	case q.pd.ctx != id.ctx:
		id.mu.Unlock()
		return fmt.Errorf("the PD is not one of the id's Verbs(): %w", verbs.ErrInvalid)
	}
	id.making = true
	handle := id.useLocked()
	id.mu.Unlock()
	defer func() { _ = id.unuse() }()

	err := q.make(in)
	if err == nil {
		if err = id.initQP(q, handle); err != nil {
			q.ctx.ends(q.ctx.lib.destroyQP, q.handle)
		}
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.making = false
	if err == nil && id.handle != 0 {
		id.qp = q
	}
	return err
}

// forgetQP ends the id's use of a QP.
func (id *cmID) forgetQP(q *qp) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp == q {
		id.qp = nil
	}
}

// cmInit is what the connection manager has a say in of a QP in INIT.
type cmInit struct {
	access uint32
	pkey   uint16
	port   uint8
}

func initOf(c *cQPAttr) cmInit { return cmInit{c.qpAccessFlags, c.pkeyIndex, c.portNum} }

// initQP takes a new QP to INIT. Before it has asked its peer the kernel gives the QP no
// rights; it is given then those that it gets in the end, to be modified once less.
func (id *cmID) initQP(q *qp, handle uintptr) error {
	if err := id.offerECE(q, handle); err != nil {
		return err
	}
	c, mask, err := id.qpAttr(id.ch.calls, handle, verbs.QPInit)
	if err != nil {
		return id.noAttributes(err)
	}
	c.qpAccessFlags |= uint32(verbs.AccessRemoteWrite)
	if err := q.modify(c, mask); err != nil {
		return err
	}
	q.asInit = initOf(c)
	return id.keepECE(q, handle)
}

// noAttributes explains why the kernel names no attributes: of a request whose dialer has left it says that
// they are invalid.
func (id *cmID) noAttributes(err error) error {
	id.mu.Lock()
	waits := id.listener != nil
	id.mu.Unlock()
	if waits && errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: the dialer has left: %w", verbs.ErrPeerGone, err)
	}
	return err
}

// qpAttr asks the kernel for the attributes with which a QP goes to a state
// (rdma_init_qp_attr).
func (id *cmID) qpAttr(s slots, handle uintptr, st verbs.QPState) (*cQPAttr, verbs.QPAttrMask, error) {
	c := &cQPAttr{qpState: uint32(st)}
	var mask int32
	err := id.ch.callIn(s, "rdma_init_qp_attr", id.ch.lib.initQPAttr, handle, uintptr(unsafe.Pointer(c)), uintptr(unsafe.Pointer(&mask)))
	c.qpState = uint32(st)
	return c, verbs.QPAttrMask(mask), err
}

// errNotReady means that the device, not the peer, is why a connection was not brought up.
var errNotReady = errors.New("the device refuses")

// kernelRoCEBits are bits of a mask that the kernel means for RoCE alone and sets for
// InfiniBand, too, whose devices refuse them.
const kernelRoCEBits = 0xe00000

// bringUp takes the QP to RTS once the connection manager knows the peer's. The depths are
// those of READs and atomics; 0xff stands for what was negotiated.
// answered means that this is the dialer, who has the answer. The listener's end takes the
// type of service and the retries from the request unless it has its own. iWARP's is moved by the
// kernel, which names no attributes for RTS.
func (q *qp) bringUp(id *cmID, handle uintptr, responder, initiator, retries uint8, answered bool) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return verbs.ErrClosed
	}
	if answered {
		if err := id.agreeECE(q, handle); err != nil {
			return err
		}
	}
	for _, st := range []verbs.QPState{verbs.QPInit, verbs.QPRTR, verbs.QPRTS} {
		c, mask, err := id.qpAttr(id.ch.ready, handle, st)
		if err != nil {
			return id.noAttributes(err)
		}
		if q.ctx.dev.transport == verbs.TransportIB {
			mask &^= kernelRoCEBits
		}
		switch st {
		case verbs.QPInit:
			if initOf(c) == q.asInit {
				continue
			}
		case verbs.QPRTR:
			if responder != rdmaMaxRespRes {
				c.maxDestRdAtomic = responder
			}
			// How long the peer waits before it tries again when no receive is posted.
			c.minRNRTimer = verbs.DefaultMinRNRTimer
			if tos := id.typeOfService(); tos != 0 && !answered && c.ah.isGlobal != 0 {
				c.ah.grh.trafficClass = tos
			}
		case verbs.QPRTS:
			if initiator != rdmaMaxInitDepth {
				c.maxRdAtomic = initiator
			}
			if retries != 0 && !answered {
				c.retryCnt = retries
			}
			c.retryCnt = q.ctx.limits.finiteRetries(c.retryCnt)
		}
		if mask == 0 {
			continue
		}
		if err := q.modifyIn(q.ctx.ready, c, mask); err != nil {
			return fmt.Errorf("%w: QP %#x to %v: %w", errNotReady, q.QPN(), st, err)
		}
	}
	q.established()
	return nil
}

// typeOfService is what was set on the id or, if it is a request's, on its listener.
func (id *cmID) typeOfService() uint8 {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.opts.TOS
}

// disconnect takes the QP out of the connection before the peer is told: to ERR, or
// iWARP's to SQD, from where the kernel's connection manager takes it on. q may be nil.
func (q *qp) disconnect() {
	if q == nil {
		return
	}
	st := verbs.QPErr
	if q.ctx.dev.transport == verbs.TransportIWARP {
		st = verbs.QPSQD
	}
	q.end(st)
}

// fail takes the QP of a connection that did not come about to ERR. q may be nil.
func (q *qp) fail() {
	if q != nil {
		q.end(verbs.QPErr)
	}
}

// end takes the QP to a state. One that has been closed or has failed needs it no more.
func (q *qp) end(st verbs.QPState) {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if !q.closed {
		q.rts.Store(false)
		_ = q.modify(&cQPAttr{qpState: uint32(st)}, verbs.QPMaskState)
	}
}

// ECE (enhanced connection establishment) is what two devices of one maker agree on
// beyond the specification. It travels in the messages of the connection manager.

func (id *cmID) hasECE() bool {
	v, lib := id.ch.verbs, id.ch.lib
	return v.queryECE != 0 && v.setECE != 0 && lib.setLocalECE != 0 && lib.getRemoteECE != 0
}

// offerECE takes what the device of a new QP can do into the messages to come, and what
// the peer asks for, if there is a request, into the QP.
func (id *cmID) offerECE(q *qp, handle uintptr) error {
	if !id.hasECE() {
		return nil
	}
	own, err := q.ece()
	if err != nil || own.vendorID == 0 {
		return err
	}
	if err := id.call("rdma_set_local_ece", id.ch.lib.setLocalECE, handle, uintptr(unsafe.Pointer(own))); err != nil {
		return err
	}
	peer, err := id.peerECE(handle)
	if err != nil || peer.vendorID == 0 {
		return err
	}
	if peer.vendorID != own.vendorID {
		peer = &cECE{vendorID: own.vendorID}
	}
	return q.setECE(peer)
}

// keepECE has the answer to a request say what the QP has taken up of it.
func (id *cmID) keepECE(q *qp, handle uintptr) error {
	if !id.hasECE() {
		return nil
	}
	own, err := q.ece()
	if err != nil || own.vendorID == 0 {
		return err
	}
	return id.call("rdma_set_local_ece", id.ch.lib.setLocalECE, handle, uintptr(unsafe.Pointer(own)))
}

// agreeECE takes the peer's answer into the QP of the dialer.
func (id *cmID) agreeECE(q *qp, handle uintptr) error {
	if !id.hasECE() {
		return nil
	}
	own, err := q.ece()
	if err != nil || own.vendorID == 0 {
		return err
	}
	peer, err := id.peerECE(handle)
	switch {
	case err != nil:
		return err
	case peer.vendorID == 0: // it does not know ECE
		peer.vendorID, peer.options = own.vendorID, 0
	case peer.vendorID != own.vendorID:
		return fmt.Errorf("%w: the peer answered with ECE options of vendor %#x", syscall.EPROTO, peer.vendorID)
	}
	return q.setECE(peer)
}

func (id *cmID) peerECE(handle uintptr) (*cECE, error) {
	out := new(cECE)
	err := id.call("rdma_get_remote_ece", id.ch.lib.getRemoteECE, handle, uintptr(unsafe.Pointer(out)))
	return out, err
}

// ece is ibv_query_ece: zeros where the device has none.
func (q *qp) ece() (*cECE, error) {
	out := new(cECE)
	r := q.ctx.changes(q.ctx.lib.queryECE, q.handle, uintptr(unsafe.Pointer(out)))
	if syscall.Errno(r) == syscall.EOPNOTSUPP {
		return new(cECE), nil
	}
	return out, returned("ibv_query_ece", r)
}

func (q *qp) setECE(ece *cECE) error {
	r := q.ctx.changes(q.ctx.lib.setECE, q.handle, uintptr(unsafe.Pointer(ece)))
	if syscall.Errno(r) == syscall.EOPNOTSUPP {
		return nil
	}
	return returned("ibv_set_ece", r)
}
