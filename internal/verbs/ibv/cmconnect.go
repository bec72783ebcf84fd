//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

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

// makeQP is rdma_create_qp, which leaves the QP in INIT.
func (id *cmID) makeQP(q *qp, in *cQPInitAttrEx) (uintptr, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("CreateQP", cmBound, cmAddrResolved, cmResolvingRoute, cmRouteResolved, cmRequested, cmResponded); err != nil {
		return 0, err
	}
	if id.qp != nil {
		return 0, fmt.Errorf("CreateQP on an id that has a QP: %w", verbs.ErrState)
	}
	if q.pd.ctx != id.ctx {
		return 0, fmt.Errorf("the PD is not one of the id's Verbs(): %w", verbs.ErrInvalid)
	}
	id.ch.calls.Lock()
	defer id.ch.calls.Unlock()
	extended := func() error {
		return id.call("rdma_create_qp_ex", id.ch.lib.createQPEx, id.handle, uintptr(unsafe.Pointer(in)))
	}
	if id.ch.lib.createQPEx == 0 {
		extended = nil
	}
	if err := q.makeEither(in, extended, func() error {
		return id.call("rdma_create_qp", id.ch.lib.createQP, id.handle, q.pd.handle, uintptr(unsafe.Pointer(in)))
	}); err != nil {
		return 0, err
	}
	id.qp = q
	return at[cCMID](id.handle).qp, nil
}

// destroyQP is rdma_destroy_qp in two steps, of which the second is done without a
// lock: soft-RoCE waits until the network has taken what the QP sent, or, of a
// neighbour that does not answer, has given it up. That may be long, and all other
// ids would wait with it.
func (id *cmID) destroyQP(q *qp) error {
	id.mu.Lock()
	id.qp = nil
	if id.handle != 0 {
		id.ch.calls.Lock()
		at[cCMID](id.handle).qp = 0
		id.ch.calls.Unlock()
	}
	id.mu.Unlock()
	return returned("ibv_destroy_qp", callInt(id.ch.verbs.destroyQP, q.handle))
}

// fill writes the parameters as C has them. The private data stays Go's.
func (c *cConnParam) fill(p *verbs.ConnParam) {
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

func newParam(p *verbs.ConnParam, maxPrivate int) (*cParam, error) {
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

func (id *cmID) Connect(param *verbs.ConnParam, timeout time.Duration) error {
	own := verbs.ConnParam{ResponderResources: rdmaMaxRespRes, InitiatorDepth: rdmaMaxInitDepth, RetryCount: 7, RNRRetryCount: 7}
	if param != nil {
		own = *param
	}
	c, err := newParam(&own, verbs.MaxConnectPrivateData)
	if err != nil {
		return err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("Connect", cmRouteResolved); err != nil {
		return err
	}
	if id.qp == nil && own.QPNum == 0 {
		return fmt.Errorf("Connect before CreateQP and without a QP number: %w", verbs.ErrState)
	}
	c.c.retryCount = id.ctx.limits.finiteRetries(c.c.retryCount)
	// The events of the exchange may come before rdma_connect returns.
	id.state = cmConnecting
	if err := id.withPrivateData(c, "rdma_connect", id.ch.lib.connect); err != nil {
		id.state = cmRouteResolved
		return err
	}
	if timeout > 0 {
		id.timer = time.AfterFunc(timeout, func() { id.timedOut(timeout) })
	}
	return nil
}

// withPrivateData calls rdma_connect or rdma_accept. mu is held.
func (id *cmID) withPrivateData(c *cParam, name string, fn uintptr) error {
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
	return id.call(name, fn, id.handle, uintptr(unsafe.Pointer(&p.c)))
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
	id.events.Push(verbs.CMEvent{
		Type: verbs.CMUnreachable, ID: id,
		Err: fmt.Errorf("%v did not answer within %v: %w", id.remote, timeout, syscall.ETIMEDOUT),
	})
	id.mu.Unlock()
	id.events.Deliver()
}

func (id *cmID) Accept(param *verbs.ConnParam) error {
	id.mu.Lock()
	own := id.asked
	own.PrivateData = nil
	if param != nil {
		own = *param
	}
	c, err := newParam(&own, verbs.MaxAcceptPrivateData)
	if err != nil {
		id.mu.Unlock()
		return err
	}
	if err := id.expect("Accept", cmRequested, cmResponded); err != nil {
		id.mu.Unlock()
		return err
	}
	if id.state == cmResponded {
		defer id.events.Deliver()
		defer id.mu.Unlock()
		return id.establish()
	}
	if id.qp == nil && own.QPNum == 0 {
		id.mu.Unlock()
		return fmt.Errorf("Accept before CreateQP and without a QP number: %w", verbs.ErrState)
	}
	id.state = cmAccepting
	err = id.withPrivateData(c, "rdma_accept", id.ch.lib.accept)
	if err != nil && id.state == cmAccepting {
		id.state = cmRequested
	}
	q, listener := id.qp, id.listener
	if err == nil {
		id.listener = nil
	}
	id.mu.Unlock()
	if err != nil {
		return err
	}
	if listener != nil {
		listener.answered()
	}
	q.established()
	q.shortenRNR()
	return nil
}

// establish answers a CONNECT_RESPONSE, which the kernel confirms by no event. mu
// is held.
func (id *cmID) establish() error {
	if id.ch.lib.establish == 0 {
		return fmt.Errorf("%w: this librdmacm has no rdma_establish", verbs.ErrNotSupported)
	}
	if err := id.call("rdma_establish", id.ch.lib.establish, id.handle); err != nil {
		return err
	}
	id.state = cmConnected
	id.qp.established()
	id.events.Push(verbs.CMEvent{Type: verbs.CMEstablished, ID: id})
	return nil
}

// shortenRNR sets how long the peer waits before it tries again when no receive
// is posted. It is best done before anything is received; a QP that has been
// closed or has failed meanwhile needs it no more.
func (q *qp) shortenRNR() {
	if q != nil {
		_ = q.Modify(&verbs.QPAttr{MinRNRTimer: verbs.DefaultMinRNRTimer}, verbs.QPMaskMinRNRTimer)
	}
}

func (id *cmID) Reject(privateData []byte) error {
	if len(privateData) > verbs.MaxRejectPrivateData {
		return fmt.Errorf("%d bytes of private data are more than %d: %w", len(privateData), verbs.MaxRejectPrivateData, verbs.ErrInvalid)
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
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == cmDisconnected {
		return nil
	}
	if err := id.expect("Disconnect", cmConnected, cmAccepting); err != nil {
		return err
	}
	err := id.call("rdma_disconnect", id.ch.lib.disconnect, id.handle)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTCONN) {
		return nil // the peer was first, and its event is on the way
	}
	return err
}
