//go:build linux && (amd64 || arm64)

package soft

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Accept brings up the QP and sends REP.
func (id *cmID) Accept(param *driver.ConnParam) error {
	id.mu.Lock()
	req := id.request
	if err := id.expect("Accept", cmRequested); err != nil {
		id.mu.Unlock()
		return err
	}
	own := driver.ConnParam{RNRRetryCount: 7}
	if param != nil {
		own = *param
	} else {
		own.ResponderResources, own.InitiatorDepth = req.Param.InitiatorDepth, req.Param.ResponderResources
	}
	if err := checkParam(&own, driver.MaxAcceptPrivateData); err != nil {
		id.mu.Unlock()
		return err
	}
	if id.qp == nil {
		id.mu.Unlock()
		return fmt.Errorf("Accept before CreateQP: %w", verbs.ErrState)
	}
	qp, sock := id.qp, id.sock
	own.QPNum = qp.QPN()
	own.RetryCount = cmp.Or(own.RetryCount, req.Param.RetryCount) // a REP does not say it
	attr := id.rtsAttr(own, req.Param)
	id.state, id.request = cmAccepting, nil
	// The dialer's whole patience is not known here; RTU follows REP at once.
	id.rtuWait = runtimer.After(id.listen.opts.HandshakeTimeout, id.rtuLate)
	id.mu.Unlock()
	id.listen.answered()

	if err := id.answer(qp, sock, req, own, attr); err != nil {
		qp.disconnect()
		sock.Close()
		id.fail(nil)
		return err
	}
	return nil
}

// stands tells that an accepted connection stands; false if that is no news. With due the
// dialer has confirmed, and its RTU has yet to be read.
func (id *cmID) stands(due bool) bool {
	id.mu.Lock()
	was := id.state
	if was == cmAccepting {
		id.confirmed()
		id.state, id.rtuDue = cmConnected, due
		id.events.Push(driver.CMEvent{Type: driver.CMEstablished, ID: id})
	}
	id.mu.Unlock()
	id.events.Deliver()
	return was == cmAccepting
}

// answer makes our offer and takes the dialer's. The QP is up before the dialer
// can know of it: nothing has to tell it later.
func (id *cmID) answer(qp *qp, sock *control.Socket, req *control.ConnMsg, own driver.ConnParam, attr verbs.QPAttr) error {
	// Not until now has this process the descriptors of the request: a server that is short of
	// them can let many wait.
	_, fds, err := sock.Recv(make([]byte, control.MaxMessage))
	if err == nil {
		// Made before the QP is up, the offer has the MRs in it: the dialer's first
		// request need not ask for one.
		err = qp.offer()
	}
	if err == nil {
		err = qp.toRTS(attr)
	}
	if err != nil {
		control.CloseFDs(fds)
		refuse(sock, rejectResources, nil)
		return err
	}
	// What the dialer offers is taken before it can know: then nothing can fail that it
	// would hear of too late.
	p, err := openOffer(req.Offer, fds)
	if err != nil {
		reason, why := driver.RejectNone, err.Error() // another try would fail as well
		if errors.Is(err, verbs.ErrNoMemory) {
			reason, why = rejectResources, ""
		}
		refuse(sock, reason, []byte(why[:min(len(why), driver.MaxRejectPrivateData)]))
		return err
	}
	// The dialer may be up, and gone again, as soon as it has REP.
	err = qp.sendOffer(sock, func(offer []byte) []byte {
		return control.AppendREP(make([]byte, 0, 512), &control.ConnMsg{Param: own, Offer: offer})
	})
	switch {
	case errors.Is(err, unix.EPIPE), errors.Is(err, os.ErrClosed):
		p.unmap()
		qp.disconnect()
		sock.Close()
		id.end(verbs.ErrPeerGone)
		return nil
	case err != nil:
		p.unmap()
		refuse(sock, rejectResources, nil)
		return err
	}
	return qp.attachPeer(newLink(qp, sock, sock, id.onMessage, id.end), p, nil)
}

// rtuLate gives up on a dialer that does not confirm.
func (id *cmID) rtuLate() {
	id.mu.Lock()
	qp := id.qp
	id.mu.Unlock()
	if qp != nil && !qp.withdraw() {
		id.stands(true)
		return
	}
	err := fmt.Errorf("the dialer did not confirm the connection in time: %w", unix.ETIMEDOUT)
	if id.fail(&driver.CMEvent{Type: driver.CMConnectError, ID: id, Err: err}) {
		qp.disconnect() // before the event, after it is settled which
		id.events.Deliver()
	}
}

func (id *cmID) Reject(privateData []byte) error {
	if n := len(privateData); n > driver.MaxRejectPrivateData {
		return fmt.Errorf("%d bytes of private data are more than %d: %w", n, driver.MaxRejectPrivateData, verbs.ErrInvalid)
	}
	id.mu.Lock()
	if err := id.expect("Reject", cmRequested); err != nil {
		id.mu.Unlock()
		return err
	}
	sock := id.sock
	id.request, id.state = nil, cmFailed
	id.mu.Unlock()
	id.listen.answered()
	refuse(sock, driver.RejectConsumer, privateData)
	return nil
}

// refuse sends REJ and closes the socket. The dialer finds the REJ before the hang-up.
func refuse(sock *control.Socket, reason driver.RejectReason, private []byte) {
	_ = sock.Send(control.AppendREJ(nil, reason, private), nil)
	sock.Close()
}
