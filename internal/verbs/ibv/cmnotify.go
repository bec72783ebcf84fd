//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	// notifyDelay is for how long a confirmation may come after the data behind it and is not taken
	// for lost.
	notifyDelay = 100 * time.Millisecond
	// notifyTime is how long the end of a connection waits for ESTABLISHED to follow rdma_notify. A
	// thread of the kernel's brings it about.
	notifyTime = 2 * time.Second
)

// A notice is about data that has arrived before the peer's confirmation.
type notice struct {
	timer *time.Timer   // tells the kernel
	done  chan struct{} // closed when ESTABLISHED, or something else, has followed
}

// Notify tells that data has arrived on the QP of an answered request. Where the peer's
// confirmation was lost, the kernel takes that for it, and ESTABLISHED follows.
func (id *cmID) Notify() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == cmConnected {
		return nil
	}
	if err := id.expect("Notify", cmAccepting); err != nil {
		return err
	}
	if id.notice == nil && !id.confirming && id.overIB() { // TCP, below iWARP, loses nothing
		id.notice = &notice{time.AfterFunc(notifyDelay, func() { _ = id.tellKernel() }), make(chan struct{})}
	}
	return nil
}

// tellKernel is rdma_notify, if nothing has come meanwhile.
func (id *cmID) tellKernel() error {
	id.mu.Lock()
	if id.notice == nil {
		id.mu.Unlock()
		return nil
	}
	handle := id.useLocked()
	id.mu.Unlock()
	defer func() { _ = id.unuse() }()
	err := id.complete("rdma_notify", id.ch.lib.notify, handle, uintptr(verbs.EventCommEst))
	if err == nil || errors.Is(err, syscall.EISCONN) { // the confirmation came meanwhile
		return nil
	}
	id.mu.Lock()
	id.endNotice()
	id.mu.Unlock()
	return err
}

// settleNotice waits, before the connection is ended, until what Notify has told is done with, for
// notifyTime. The kernel repeats the answer until the thread that acts on rdma_notify has run. If the
// connection is ended before, nothing stops it: the kernel repeats the answer for more than a minute,
// and rdma_destroy_id waits for that.
func (id *cmID) settleNotice() {
	id.mu.Lock()
	n := id.notice
	id.mu.Unlock()
	if n == nil {
		return
	}
	if n.timer.Stop() {
		_ = id.tellKernel()
	}
	timeout := time.NewTimer(notifyTime)
	defer timeout.Stop()
	select {
	case <-n.done:
	case <-timeout.C:
	}
}

// endNotice is called when the id has left cmAccepting. mu is held.
func (id *cmID) endNotice() {
	if n := id.notice; n != nil {
		n.timer.Stop()
		close(n.done)
		id.notice = nil
	}
}

// heard is called when the device says that a packet has come before the connection was
// confirmed (COMM_EST).
func (q *qp) heard() {
	if id := q.id; id != nil {
		id.order.run(func() { _ = id.Notify() })
	}
}
