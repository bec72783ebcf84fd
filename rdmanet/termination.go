package rdmanet

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/rdmanet/go-rdmanet/ring"
)

// A termination is how a connection ends: what the application shut, what the peer said,
// whether requests still go out, and why it failed. It is the one place that answers who
// may still send and who may still read, and it only remembers and answers: whoever notes
// something sees to what follows from it.
//
// Marks are set and never cleared, so no lock guards them, and all may ask at any time.
// The first cause counts; it is set before the mark that makes it count.
type termination struct {
	marks atomic.Uint32
	cause atomic.Pointer[error]
}

// Marks of a termination.
const (
	termClosed       = 1 << iota // Close
	termReadShut                 // CloseRead
	termWriteShut                // CloseWrite, or Close: the end of the stream is posted or pending
	termPeerFIN                  // the peer writes no more
	termPeerClosed               // the peer neither writes nor reads any more
	termSendDone                 // nothing can be sent: disconnected, or requests fail; how it ends, the receive queue tells
	termUnanswered               // with termSendDone: the peer's device did not answer
	termFailed                   // cause says why; nothing moves any more
	termToldCorrupt              // with termFailed: the peer was told of a wrong checksum
	termDisconnected             // this end has disconnected, or was
)

func (t *termination) has(marks uint32) bool { return t.marks.Load()&marks != 0 }

// set sets marks and reports whether none of them was set.
func (t *termination) set(marks uint32) (first bool) { return t.marks.Or(marks)&marks == 0 }

// What happens to a connection.

// setCause notes why the connection is going to fail, unless that is known.
func (t *termination) setCause(err error) (first bool) { return t.cause.CompareAndSwap(nil, &err) }

// fail: nothing moves any more. The cause is set.
func (t *termination) fail() (first bool) { return t.set(termFailed) }

// endSending: nothing can be sent any more; unanswered, as the peer's device does not answer.
func (t *termination) endSending(unanswered bool) {
	marks := uint32(termSendDone)
	if unanswered {
		marks |= termUnanswered
	}
	t.marks.Or(marks)
}

// disconnect reports whether it is for the caller to disconnect.
func (t *termination) disconnect() (first bool) { return t.set(termDisconnected) }

// disconnected: by the peer, or with its death.
func (t *termination) disconnected() { t.marks.Or(termSendDone | termDisconnected) }

// toldCorrupt: the peer gets to know of the wrong checksum for which the connection fails.
func (t *termination) toldCorrupt() { t.marks.Or(termToldCorrupt) }

// close is the application's Close.
func (t *termination) close() { t.marks.Or(termClosed) }

func (t *termination) shutRead() (first bool)  { return t.set(termReadShut) }
func (t *termination) shutWrite() (first bool) { return t.set(termWriteShut) }

// peerFIN: the peer writes no more.
func (t *termination) peerFIN() { t.marks.Or(termPeerFIN) }

// peerClose: the peer neither writes nor reads any more.
func (t *termination) peerClose() { t.marks.Or(termPeerFIN | termPeerClosed) }

// What has happened.

func (t *termination) closed() bool     { return t.has(termClosed) }
func (t *termination) failed() bool     { return t.has(termFailed) }
func (t *termination) sendDone() bool   { return t.has(termSendDone) }
func (t *termination) peerClosed() bool { return t.has(termPeerClosed) }
func (t *termination) writeShut() bool  { return t.has(termWriteShut) }

// corruptTold reports whether the peer gets to know of a wrong checksum.
func (t *termination) corruptTold() bool { return t.has(termToldCorrupt) }

// err is the cause, nil if there is none.
func (t *termination) err() error {
	if p := t.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// goneErrno tells, as TCP does, a peer that does not answer from one that has left.
func (t *termination) goneErrno() syscall.Errno {
	if t.has(termUnanswered) {
		return syscall.ETIMEDOUT
	}
	return syscall.ECONNRESET
}

// Who may still do what.

// readErr is what a Read that finds no bytes returns, nil if it is to wait for some. Only
// for io.EOF does it matter whether all bytes of the receive queue were looked at before.
func (t *termination) readErr() error {
	marks := t.marks.Load()
	switch {
	case marks == 0:
		return nil
	case marks&termClosed != 0:
		return net.ErrClosed
	case marks&(termFailed|termPeerFIN) == termFailed:
		return t.err()
	case marks&(termPeerFIN|termReadShut) != 0:
		return io.EOF
	}
	return nil
}

// writeErr is what a Write that sends nothing returns, nil if it is to wait for room. A
// peer that has gone may have said more before: that is still to come.
func (t *termination) writeErr() error {
	marks := t.marks.Load()
	switch {
	case marks == 0:
		return nil
	case marks&termClosed != 0:
		return net.ErrClosed
	case marks&(termWriteShut|termPeerClosed) != 0:
		return syscall.EPIPE
	case marks&termFailed != 0:
		return t.err()
	}
	return nil
}

// ended reports whether nobody will wait in a direction any more.
func (t *termination) ended(d direction) bool {
	if d == dirRead {
		return t.has(termClosed | termFailed | termReadShut)
	}
	return t.has(termClosed | termFailed | termWriteShut | termPeerClosed)
}

// received reports whether no bytes follow those that were taken from the receive queue.
func (t *termination) received() bool { return t.has(termPeerFIN | termFailed) }

// broken reports whether nothing is sent any more, and nothing arrives but what is already
// in the receive queue.
func (t *termination) broken() bool { return t.has(termFailed | termSendDone) }

// maySend reports whether bytes of a Write may be sent.
func (t *termination) maySend() bool {
	return !t.has(termFailed | termSendDone | termPeerClosed | termWriteShut)
}

// mayFlush reports whether bytes may be sent that a Write has left behind, and their end.
func (t *termination) mayFlush() bool { return !t.has(termFailed | termSendDone | termPeerClosed) }

// peerListens reports whether credits and keepalives are of use to the peer.
func (t *termination) peerListens() bool { return !t.has(termFailed | termPeerClosed) }

// peerTakes reports whether a closed connection has somebody to deliver to.
func (t *termination) peerTakes() bool {
	marks := t.marks.Load()
	return marks&(termSendDone|termPeerClosed) == 0 && marks&(termFailed|termToldCorrupt) != termFailed
}

// over reports whether neither end can send any more, so that there is nothing to shut.
func (t *termination) over() bool {
	marks := t.marks.Load()
	if marks&(termPeerFIN|termFailed) == termPeerFIN {
		return marks&termWriteShut != 0
	}
	return marks&(termFailed|termSendDone) != 0
}

// expected reports whether the end is one that both sides know of, so that what fails from
// now on is no failure.
func (t *termination) expected() bool { return t.has(termClosed | termPeerClosed) }

// endKind is how the stream ends: an end that does not read any more says so, or the peer
// would write until the ring is full and wait there.
func (t *termination) endKind() ring.Kind {
	if t.has(termReadShut) {
		return ring.KindClose
	}
	return ring.KindFIN
}

// peerMaySay reports whether a doorbell of a kind may follow what the peer has said. After
// the end of its stream it may close, reset, and give credit.
func (t *termination) peerMaySay(kind ring.Kind) bool {
	return kind != ring.KindData || !t.has(termPeerFIN)
}

func (t *termination) state() ConnState {
	marks := t.marks.Load()
	switch {
	case marks&termClosed != 0:
		return StateClosing
	case marks&(termFailed|termSendDone) != 0 && marks&termPeerClosed == 0:
		return StateFailed
	case marks&termPeerFIN != 0 && marks&termWriteShut != 0:
		return StateClosing
	case marks&termPeerFIN != 0:
		return StateCloseWait
	case marks&termWriteShut != 0:
		return StateFinWait
	}
	return StateEstablished
}
