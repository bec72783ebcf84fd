//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// known is the state that the library has last seen the QP in. librdmacm moves
// QPs, too. Of iWARP's it never sees more than INIT, since there the kernel takes
// them to RTS when it connects them: that they are connected we know ourselves.
func (q *qp) known() verbs.QPState {
	st := verbs.QPState(atomic.LoadUint32(&q.c.state))
	if st < verbs.QPRTS && q.rts.Load() {
		return verbs.QPRTS
	}
	return st
}

// established notes that the connection manager has brought the QP to RTS. q may be nil.
func (q *qp) established() {
	if q != nil {
		q.rts.Store(true)
	}
}

// connectedByNumber asks the device whether it has connected an iWARP QP that was made on
// no id. sendMu is held.
func (q *qp) connectedByNumber() bool {
	if q.ctx.dev.transport != verbs.TransportIWARP || q.id != nil {
		return false
	}
	var a cQPAttr
	var in cQPInitAttr
	if callInt(q.ctx.lib.queryQP, q.handle, uintptr(unsafe.Pointer(&a)), uintptr(verbs.QPMaskState), uintptr(unsafe.Pointer(&in))) != 0 ||
		verbs.QPState(a.qpState) < verbs.QPRTS {
		return false
	}
	q.established()
	return true
}

// State asks the device, which may have moved the QP to ERR by itself.
func (q *qp) State() verbs.QPState {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return verbs.QPReset
	}
	if st := q.known(); st == verbs.QPReset || st == verbs.QPErr {
		return st
	}
	var a cQPAttr
	var in cQPInitAttr
	if q.ctx.changes(q.ctx.lib.queryQP, q.handle, uintptr(unsafe.Pointer(&a)), uintptr(verbs.QPMaskState), uintptr(unsafe.Pointer(&in))) != 0 {
		return verbs.QPErr // the device is gone
	}
	st := verbs.QPState(a.qpState)
	if st > verbs.QPRTS && q.ctx.dev.transport == verbs.TransportIWARP {
		return verbs.QPErr // its TERMINATE and CLOSING, from which there is no way back either
	}
	return st
}

// flush sees to it that a receive posted in ERR completes. soft-RoCE looks at its
// receive queue only when a packet comes or the state is set.
func (q *qp) flush() {
	if q.State() != verbs.QPErr {
		q.failed.Store(false) // it has been through RESET since
		return
	}
	_ = q.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState) // it may be closed by now
}

// errBroken is why a connection ends whose QP is broken.
var errBroken = errors.New("the device has given up the QP (QP_FATAL)")

// broken is called when the device has given up the QP for an error that may keep it from
// completing anything more (IBA 11.6.3): nobody would learn of it. Of a connection the
// application is told, and the peer; of another QP what can be flushed is.
func (q *qp) broken() {
	if id := q.id; id != nil {
		id.order.run(func() { id.onEvent(&cmEvent{typ: driver.CMConnectError, err: errBroken}) })
		return
	}
	go q.fail() // which may take its time
}

func (q *qp) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if attr == nil {
		return fmt.Errorf("%w: no attributes", verbs.ErrInvalid)
	}
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return verbs.ErrClosed
	}
	if err := q.checkAttr(attr, mask); err != nil {
		return err
	}
	was := q.known()
	var c cQPAttr
	fillAttr(&c, attr, mask)
	if mask&verbs.QPMaskState != 0 && attr.State == verbs.QPSQD && was == verbs.QPRTS {
		c.enSQDAsyncNotify = 1
		mask |= qpMaskEnSQDNotify
	}
	c.retryCnt = q.ctx.limits.finiteRetries(c.retryCnt)
	err := q.modify(&c, mask)
	if mask&verbs.QPMaskState == 0 {
		return err
	}
	if err != nil {
		return fmt.Errorf("QP %#x from %v to %v with attributes %#x: %w", q.QPN(), was, attr.State, uint32(mask), err)
	}
	q.rts.Store(false) // from now on the library knows
	if was == verbs.QPSQD && attr.State == verbs.QPRTS {
		q.resume()
	}
	return nil
}

// modify is ibv_modify_qp. Modifications that end a QP have the slots of ends: a device
// may take its time over them. ctl is held.
func (q *qp) modify(c *cQPAttr, mask verbs.QPAttrMask) error {
	s := q.ctx.begin
	if mask&verbs.QPMaskState != 0 && (c.qpState == uint32(verbs.QPErr) || c.qpState == uint32(verbs.QPReset)) {
		s = q.ctx.end
	}
	return q.modifyIn(s, c, mask)
}

// modifyIn is modify in a slot of s.
func (q *qp) modifyIn(s slots, c *cQPAttr, mask verbs.QPAttrMask) error {
	s.take()
	defer s.give()
	return returned("ibv_modify_qp", callInt(q.ctx.lib.modifyQP, q.handle, uintptr(unsafe.Pointer(c)), uintptr(mask)))
}

// resume starts what was posted in SQD. soft-RoCE waits for the next post. ctl is held.
func (q *qp) resume() {
	q.sendMu.Lock()
	defer q.sendMu.Unlock()
	if q.writer != nil {
		q.writer.ring()
	}
}

// checkAttr checks what the fields of the C structs are too narrow to hold, or
// what some devices take without a word.
func (q *qp) checkAttr(a *verbs.QPAttr, mask verbs.QPAttrMask) error {
	const (
		rights = verbs.AccessLocalWrite | verbs.AccessRemote
		bits24 = 1<<24 - 1
	)
	limits := &q.ctx.limits.attr
	has := func(bit verbs.QPAttrMask) bool { return mask&bit != 0 }
	bad := ""
	switch {
	case has(verbs.QPMaskState) && a.State > verbs.QPErr:
		bad = fmt.Sprintf("state %d", a.State)
	case has(verbs.QPMaskPort) && (a.PortNum < 1 || int(a.PortNum) > limits.PhysPortCnt):
		bad = fmt.Sprintf("port %d of a device with %d", a.PortNum, limits.PhysPortCnt)
	case has(verbs.QPMaskPathMTU) && a.PathMTU.Bytes() == 0:
		bad = fmt.Sprintf("path MTU %d", a.PathMTU)
	case has(verbs.QPMaskDestQPN) && a.DestQPN > bits24:
		bad = fmt.Sprintf("QPN %#x of more than 24 bits", a.DestQPN)
	case has(verbs.QPMaskRQPSN) && a.RQPSN > bits24, has(verbs.QPMaskSQPSN) && a.SQPSN > bits24:
		bad = "PSN of more than 24 bits"
	case has(verbs.QPMaskMinRNRTimer) && a.MinRNRTimer > 31:
		bad = fmt.Sprintf("RNR timer %d", a.MinRNRTimer)
	case has(verbs.QPMaskTimeout) && a.Timeout > 31:
		bad = fmt.Sprintf("timeout %d", a.Timeout)
	case has(verbs.QPMaskRetryCnt) && a.RetryCnt > 7, has(verbs.QPMaskRNRRetry) && a.RNRRetry > 7:
		bad = "more than 7 retries"
	case has(verbs.QPMaskMaxQPRdAtomic) && int(a.MaxRdAtomic) > limits.MaxQPInitRdAtom:
		bad = fmt.Sprintf("MaxRdAtomic %d of at most %d", a.MaxRdAtomic, limits.MaxQPInitRdAtom)
	case has(verbs.QPMaskMaxDestRdAtomic) && int(a.MaxDestRdAtomic) > limits.MaxQPRdAtom:
		bad = fmt.Sprintf("MaxDestRdAtomic %d of at most %d", a.MaxDestRdAtomic, limits.MaxQPRdAtom)
	case has(verbs.QPMaskAccessFlags) && a.AccessFlags&^rights != 0:
		bad = fmt.Sprintf("access flags %#x", uint32(a.AccessFlags))
	}
	if bad != "" {
		return fmt.Errorf("%w: %s", verbs.ErrInvalid, bad)
	}
	if has(verbs.QPMaskAV) {
		return q.ctx.checkAV(&a.AH)
	}
	return nil
}

// checkAV checks an address vector against the GID table.
func (c *devContext) checkAV(a *verbs.AHAttr) error {
	attr, err := c.QueryPort(a.PortNum)
	if err != nil {
		return err
	}
	if !a.IsGlobal {
		if attr.LinkLayer == verbs.LinkLayerEthernet {
			return fmt.Errorf("%w: address vector without GID on RoCE", verbs.ErrInvalid)
		}
		return nil
	}
	if n := min(attr.GIDTblLen, 256); a.SGIDIndex < 0 || a.SGIDIndex >= n {
		return fmt.Errorf("%w: index %d of a GID table of %d", verbs.ErrInvalid, a.SGIDIndex, attr.GIDTblLen)
	}
	return nil
}

// fillAttr writes the attributes that mask names.
func fillAttr(c *cQPAttr, a *verbs.QPAttr, mask verbs.QPAttrMask) {
	c.qpState = uint32(a.State)
	c.pathMTU = uint32(a.PathMTU)
	c.qkey = a.QKey
	c.rqPSN = a.RQPSN
	c.sqPSN = a.SQPSN
	c.destQPNum = a.DestQPN
	c.qpAccessFlags = uint32(a.AccessFlags)
	c.pkeyIndex = a.PKeyIndex
	c.portNum = a.PortNum
	c.maxRdAtomic = a.MaxRdAtomic
	c.maxDestRdAtomic = a.MaxDestRdAtomic
	c.minRNRTimer = a.MinRNRTimer
	c.timeout = a.Timeout
	c.retryCnt = a.RetryCnt
	c.rnrRetry = a.RNRRetry
	if mask&verbs.QPMaskCap != 0 {
		c.cap = cQPCap{
			maxSendWR: uint32(a.Cap.MaxSendWR), maxRecvWR: uint32(a.Cap.MaxRecvWR),
			maxSendSGE: uint32(a.Cap.MaxSendSGE), maxRecvSGE: uint32(a.Cap.MaxRecvSGE),
			maxInlineData: uint32(a.Cap.MaxInlineData),
		}
	}
	if mask&verbs.QPMaskAV != 0 {
		fillAH(&c.ah, &a.AH)
	}
}

func fillAH(c *cAHAttr, a *verbs.AHAttr) {
	*c = cAHAttr{dlid: a.DLID, sl: a.SL, portNum: a.PortNum}
	if a.IsGlobal {
		c.isGlobal = 1
		c.grh = cGlobalRoute{
			dgid: a.DGID, flowLabel: a.FlowLabel, sgidIndex: uint8(a.SGIDIndex),
			hopLimit: a.HopLimit, trafficClass: a.TrafficClass,
		}
	}
}

// queried is what Query asks for: everything that QPAttr holds.
const queried = verbs.QPMaskState | verbs.QPMaskAccessFlags | verbs.QPMaskPKeyIndex | verbs.QPMaskPort | verbs.QPMaskQKey |
	verbs.QPMaskAV | verbs.QPMaskPathMTU | verbs.QPMaskTimeout | verbs.QPMaskRetryCnt | verbs.QPMaskRNRRetry | verbs.QPMaskRQPSN |
	verbs.QPMaskMaxQPRdAtomic | verbs.QPMaskMinRNRTimer | verbs.QPMaskSQPSN | verbs.QPMaskMaxDestRdAtomic | verbs.QPMaskCap | verbs.QPMaskDestQPN

func (q *qp) Query() (verbs.QPAttr, verbs.QPInitAttr, error) {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return verbs.QPAttr{}, verbs.QPInitAttr{}, verbs.ErrClosed
	}
	var c cQPAttr
	var in cQPInitAttr
	err := returned("ibv_query_qp", q.ctx.changes(q.ctx.lib.queryQP, q.handle,
		uintptr(unsafe.Pointer(&c)), uintptr(queried), uintptr(unsafe.Pointer(&in))))
	if err != nil {
		return verbs.QPAttr{}, verbs.QPInitAttr{}, err
	}
	a := c.attr()
	a.Cap = q.init.Cap // what was granted; not every device repeats it
	return a, q.init, nil
}

// attr is the attributes as verbs.QPAttr.
func (c *cQPAttr) attr() verbs.QPAttr {
	return verbs.QPAttr{
		State:       verbs.QPState(c.qpState),
		PathMTU:     verbs.MTU(c.pathMTU),
		QKey:        c.qkey,
		RQPSN:       c.rqPSN,
		SQPSN:       c.sqPSN,
		DestQPN:     c.destQPNum,
		AccessFlags: verbs.AccessFlags(c.qpAccessFlags),
		Cap: verbs.QPCap{
			MaxSendWR: int(c.cap.maxSendWR), MaxRecvWR: int(c.cap.maxRecvWR),
			MaxSendSGE: int(c.cap.maxSendSGE), MaxRecvSGE: int(c.cap.maxRecvSGE),
			MaxInlineData: int(c.cap.maxInlineData),
		},
		AH: verbs.AHAttr{
			DGID: c.ah.grh.dgid, SGIDIndex: int(c.ah.grh.sgidIndex), DLID: c.ah.dlid, SL: c.ah.sl, PortNum: c.ah.portNum,
			HopLimit: c.ah.grh.hopLimit, TrafficClass: c.ah.grh.trafficClass, FlowLabel: c.ah.grh.flowLabel, IsGlobal: c.ah.isGlobal != 0,
		},
		PKeyIndex:       c.pkeyIndex,
		PortNum:         c.portNum,
		MaxRdAtomic:     c.maxRdAtomic,
		MaxDestRdAtomic: c.maxDestRdAtomic,
		MinRNRTimer:     c.minRNRTimer,
		Timeout:         c.timeout,
		RetryCnt:        c.retryCnt,
		RNRRetry:        c.rnrRetry,
	}
}
