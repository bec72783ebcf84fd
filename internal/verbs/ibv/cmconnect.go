//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// fill writes the parameters as C has them. The private data stays Go's.
func (c *cConnParam) fill(p *driver.ConnParam) {
	*c = cConnParam{
		responderResources: p.ResponderResources,
		initiatorDepth:     p.InitiatorDepth,
		retryCount:         p.RetryCount,
		rnrRetryCount:      p.RNRRetryCount,
		qpNum:              p.QPNum,
	}
	if p.FlowControl {
		c.flowControl = 1
	}
	if p.SRQ {
		c.srq = 1
	}
}

// A cParam is parameters together with their private data, for one call.
type cParam struct {
	c       cConnParam
	private [256]byte
}

func newParam(p *driver.ConnParam, maxPrivate int) (*cParam, error) {
	switch {
	case len(p.PrivateData) > maxPrivate:
		return nil, fmt.Errorf("%d bytes of private data are more than %d: %w", len(p.PrivateData), maxPrivate, verbs.ErrInvalid)
	case p.RetryCount > 7 || p.RNRRetryCount > 7:
		return nil, fmt.Errorf("retry counts %d and %d are not both 0 to 7: %w", p.RetryCount, p.RNRRetryCount, verbs.ErrInvalid)
	}
	out := new(cParam)
	out.c.fill(p)
	out.c.privateDataLen = uint8(copy(out.private[:], p.PrivateData))
	return out, nil
}

func (id *cmID) Connect(param *driver.ConnParam, timeout time.Duration) error {
	own := driver.ConnParam{ResponderResources: rdmaMaxRespRes, InitiatorDepth: rdmaMaxInitDepth, RetryCount: 7, RNRRetryCount: 7}
	if param != nil {
		own = *param
	}
	c, err := newParam(&own, driver.MaxConnectPrivateData)
	if err != nil {
		return err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("Connect", cmRouteResolved); err != nil {
		return err
	}
	if id.qp != nil {
		c.ofQP(id.qp)
	} else if own.QPNum == 0 {
		return fmt.Errorf("Connect before CreateQP and without a QP number: %w", verbs.ErrState)
	}
	c.c.retryCount = id.ctx.limits.finiteRetries(c.c.retryCount)
	// The events of the exchange may come before rdma_connect returns, and wait for mu.
	id.state = cmConnecting
	if id.ctx.dev.transport == verbs.TransportIWARP {
		id.connectOverTCP(c)
	} else {
		err = id.withPrivateData(id.ch.calls, c, "rdma_connect", id.ch.lib.connect, id.handle)
	}
	if err != nil {
		id.state = cmRouteResolved
		return err
	}
	if timeout > 0 {
		id.timer = time.AfterFunc(timeout, func() { id.timedOut(timeout) })
	}
	return nil
}

// ofQP says which QP the parameters are for.
func (c *cParam) ofQP(q *qp) {
	c.c.qpNum, c.c.srq = q.QPN(), 0
	if q.srq != nil {
		c.c.srq = 1
	}
}

// withPrivateData calls rdma_connect or rdma_accept. mu is held, or the id is in use.
func (id *cmID) withPrivateData(s slots, c *cParam, name string, fn, handle uintptr) error {
	mem, err := newArena(id.ch.verbs, arraySize[cParam](1))
	if err != nil {
		return err
	}
	defer mem.free()
	p := &array[cParam](mem, 1)[0]
	*p = *c
	if p.c.privateDataLen > 0 {
		p.c.privateData = uintptr(unsafe.Pointer(&p.private))
	}
	return id.ch.callIn(s, name, fn, handle, uintptr(unsafe.Pointer(&p.c)))
}

// timedOut ends a Connect that took too long. Whatever comes of it later is undone.
func (id *cmID) timedOut(timeout time.Duration) {
	id.mu.Lock()
	if id.state != cmConnecting {
		id.mu.Unlock()
		return
	}
	id.state = cmFailed
	id.timer = nil
	id.endAsking()
	id.abandon()
	id.events.Push(driver.CMEvent{
		Type: driver.CMUnreachable, ID: id,
		Err: driver.Explain(fmt.Sprintf("the host did not answer within %v", timeout), syscall.ETIMEDOUT),
	})
	id.mu.Unlock()
	id.events.Deliver()
}

func (id *cmID) Accept(param *driver.ConnParam) error {
	id.mu.Lock()
	own := id.asked
	// What the dialer asked for, as far as this device has it (rdma_accept(3)).
	own.ResponderResources, own.InitiatorDepth = rdmaMaxRespRes, rdmaMaxInitDepth
	own.PrivateData, own.QPNum, own.SRQ = nil, 0, false // those were the dialer's
	if param != nil {
		own = *param
	}
	c, err := newParam(&own, driver.MaxAcceptPrivateData)
	if err == nil && id.takenBack {
		err = id.takenBackError()
	}
	if err == nil {
		err = id.expect("Accept", cmRequested, cmResponded)
	}
	was, q := id.state, id.qp
	if err == nil && was == cmRequested && q == nil && own.QPNum == 0 {
		err = fmt.Errorf("Accept before CreateQP and without a QP number: %w", verbs.ErrState)
	}
	if err != nil {
		id.mu.Unlock()
		return err
	}
	id.state = cmAccepting
	id.confirming = was == cmResponded
	asked := id.asked
	handle := id.useLocked()
	id.mu.Unlock()

	if was == cmResponded {
		err := id.confirm(q, handle)
		_ = id.unuse()
		return id.confirmed(err)
	}
	defer func() { _ = id.unuse() }()
	if err := id.answer(q, handle, c, &asked); err != nil {
		q.fail()
		id.mu.Lock()
		if id.state == cmAccepting {
			id.state = cmRequested
			id.endNotice()
		}
		id.mu.Unlock()
		return err
	}
	q.established()
	id.mu.Lock()
	listener := id.listener
	id.listener = nil
	id.mu.Unlock()
	if listener != nil {
		listener.answered()
	}
	return nil
}

// answer brings the QP up and is rdma_accept. The id is in use.
func (id *cmID) answer(q *qp, handle uintptr, c *cParam, asked *driver.ConnParam) error {
	if q != nil {
		c.ofQP(q)
		responder, initiator := c.c.responderResources, c.c.initiatorDepth
		limits := &q.ctx.limits.attr
		if responder == rdmaMaxRespRes {
			responder = uint8(min(int(asked.ResponderResources), limits.MaxQPRdAtom))
		}
		if initiator == rdmaMaxInitDepth {
			initiator = uint8(min(int(asked.InitiatorDepth), limits.MaxQPInitRdAtom))
		}
		if err := q.bringUp(id, handle, responder, initiator, c.c.retryCount, false); err != nil {
			return err
		}
	}
	return id.withPrivateData(id.ch.ready, c, "rdma_accept", id.ch.lib.accept, handle)
}

// confirm brings the QP up, if there is one, with the answer to Connect, and tells the
// peer (rdma_establish). The id is in use.
func (id *cmID) confirm(q *qp, handle uintptr) error {
	if q != nil {
		if err := q.bringUp(id, handle, rdmaMaxRespRes, rdmaMaxInitDepth, 0, true); err != nil {
			q.fail()
			return err
		}
	}
	if err := id.complete("rdma_establish", id.ch.lib.establish, handle); err != nil {
		q.fail()
		return err
	}
	return nil
}

// confirmed ends what Accept of an answer began. No event of the kernel's follows, but that
// of a peer which took the confirmation and has disconnected already.
func (id *cmID) confirmed(err error) error {
	id.mu.Lock()
	left := id.left
	id.confirming, id.left = false, nil
	if err != nil {
		err = id.notUp(err)
	}
	switch {
	case id.state != cmAccepting: // it was closed, or the peer is gone
		if id.takenBack {
			err = id.takenBackError()
		} else if err == nil {
			err = fmt.Errorf("the connection ended before it was confirmed: %w", verbs.ErrPeerGone)
		}
	case err != nil:
		id.state = cmFailed
	default:
		id.state = cmConnected
		id.events.Push(driver.CMEvent{Type: driver.CMEstablished, ID: id})
	}
	id.mu.Unlock()
	id.events.Deliver()
	if left != nil {
		id.order.run(func() { id.onEvent(left) })
	}
	return err
}

func (id *cmID) Reject(privateData []byte) error {
	if len(privateData) > driver.MaxRejectPrivateData {
		return fmt.Errorf("%d bytes of private data are more than %d: %w", len(privateData), driver.MaxRejectPrivateData, verbs.ErrInvalid)
	}
	id.mu.Lock()
	if err := id.expect("Reject", cmRequested, cmResponded); err != nil {
		id.mu.Unlock()
		return err
	}
	private := append(make([]byte, 0, 256), privateData...)
	err := id.call("rdma_reject", id.ch.lib.reject, id.handle, uintptr(unsafe.Pointer(unsafe.SliceData(private))), uintptr(len(private)))
	id.state = cmFailed
	listener := id.listener
	id.listener = nil
	id.mu.Unlock()
	if listener != nil {
		listener.answered()
	}
	return err
}

func (id *cmID) Disconnect() error {
	id.settleNotice()
	id.mu.Lock()
	if id.state == cmDisconnected {
		id.mu.Unlock()
		return nil
	}
	if err := id.expect("Disconnect", cmConnected, cmAccepting); err != nil {
		id.mu.Unlock()
		return err
	}
	q, answered := id.qp, id.state == cmAccepting && id.overIB()
	handle := id.useLocked()
	id.mu.Unlock()
	defer id.events.Deliver() // when it is used no more
	defer func() { _ = id.unuse() }()
	err := id.disconnect(q, handle)
	if err != nil || !answered {
		return err
	}
	// Of an answer that nobody has confirmed rdma_disconnect says nothing, neither to the peer
	// nor here. Close takes it back; should it be confirmed before, that ends at once.
	// rdma_reject would take it back now, but leaves the answer to be repeated for a minute,
	// which rdma_destroy_id waits for.
	id.mu.Lock()
	confirmed := id.state == cmConnected
	if id.state == cmAccepting {
		id.state = cmDisconnected
		id.endNotice()
		id.events.Push(driver.CMEvent{Type: driver.CMDisconnected, ID: id})
	}
	id.mu.Unlock()
	if confirmed { // perhaps after rdma_disconnect, which did nothing then
		return id.disconnect(q, handle)
	}
	return nil
}

// disconnect is rdma_disconnect of an id that is in use.
func (id *cmID) disconnect(q *qp, handle uintptr) error {
	q.disconnect()
	err := id.call("rdma_disconnect", id.ch.lib.disconnect, handle)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTCONN) {
		return nil // the peer was first, and its event is on the way
	}
	return err
}
