package link

import (
	"errors"
	"log/slog"

	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// outOfReach reports whether a lane has failed because the network, or the peer, has gone, as far
// as this end knows. To disconnect would make a reset of the peer's own timeout where one direction
// still works; and a goodbye over a link that is down takes soft-RoCE's connection manager down with
// it, for all connections.
func (e *laneEnd) outOfReach() bool {
	if e.p.sameHost || lied(e.err) || errors.Is(e.err, errAccused) || peerAnswered(e.err) {
		return false
	}
	// A queue that is full is this end's, and says nothing of the peer.
	return errors.Is(e.err, errNoAnswer) || errors.Is(e.err, errGone) && !errors.Is(e.err, verbs.ErrQueueFull)
}

// stopAnswering takes the QP of a lane that is out of reach to ERR, where the device has not done so for a
// request that has failed: in RTS it would go on answering a peer that is heard again, whose bytes nobody
// takes in. So the peer's requests fail, by which it learns that the lane has ended.
func (e *laneEnd) stopAnswering() {
	if err := e.p.qp.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState); err != nil {
		asynclog.Log(e.cfg.logger(), slog.LevelDebug, "link: QP to ERR", "err", err)
	}
}

// peerAnswered reports whether a request has failed by the word of the peer's device.
func peerAnswered(err error) bool {
	for _, status := range []verbs.WCStatus{verbs.WCRNRRetryExcErr, verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr} {
		if errors.Is(err, status) {
			return true
		}
	}
	return false
}

// hold keeps the verbs objects of a lane that is out of reach, since to destroy them says goodbye
// as well: until the program has closed all its streams, or the connection manager says that the
// connection has ended. Streams that are closed do not wait for the others.
func (e *laneEnd) hold() {
	e.mu.Lock()
	for _, s := range e.streams {
		if s != nil && s.end.closed && !s.moving() {
			s.finish()
		}
	}
	idle := e.inUse.Load() == 0
	e.mu.Unlock()
	if !idle {
		<-e.unheld
	}
}

// unhold lets a lane that is out of reach go.
func (e *laneEnd) unhold() { e.release.Do(func() { close(e.unheld) }) }
