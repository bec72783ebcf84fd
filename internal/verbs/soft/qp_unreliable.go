//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// UC is RC without acknowledgements (IBA 9.8.2). Its QPs meet, wait for memory of the
// peer and send as those of RC do; but what the peer would have refused, or has no
// receive for, is dropped, and the sender hears nothing of it. An error of a sender's own
// stops its send queue and nothing else: the QP goes to SQE and not to ERR.

// checkType checks that a device has QPs of the type that attr asks for.
func (d *device) checkType(attr *verbs.QPInitAttr) error {
	switch iwarp := d.transport == verbs.TransportIWARP; {
	case attr.Type == verbs.QPTypeRC, attr.Type == verbs.QPTypeUD && !iwarp:
		return nil
	case attr.Type != verbs.QPTypeUC || iwarp:
		return fmt.Errorf("%w: QP type %v on %s", verbs.ErrNotSupported, attr.Type, d.name)
	case attr.SRQ != nil:
		return fmt.Errorf("%w: a UC QP with an SRQ", verbs.ErrNotSupported)
	}
	return nil
}

// meetTimeout is how long a UC QP in RTR or above holds back what is posted because the
// peer was not found yet. After that it is sent, and nobody gets it.
const meetTimeout = time.Second

// settle makes of the outcome of a request what the type of the QP allows it to be: on
// UC no fault of the peer's is one of the request. mu is held.
func (q *qp) settle(wr *verbs.SendWR, o outcome) outcome {
	if q.typ == verbs.QPTypeRC || o == succeeded {
		return o
	}
	switch o {
	case waitPeer:
		if d := q.dialing; d != nil && time.Since(d.began) < meetTimeout {
			return o
		}
	case failed(verbs.WCRemOpErr):
		if q.sq.wait.badRecv {
			q.sq.wait.badRecv = false
			q.link.nak(nakOp) // the receive is the peer's own error
		}
	case waitRNR, failed(verbs.WCRetryExcErr), failed(verbs.WCRemInvReqErr), failed(verbs.WCRemAccessErr), failed(verbs.WCFatalErr):
	default:
		return o
	}
	if !q.pd.allows(wr.SGList, 0) {
		return failed(verbs.WCLocProtErr) // lost or not, it is looked at
	}
	return succeeded
}
