//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// iWARP's connections begin on TCP, whose refusals come as errno where the connection
// manager of InfiniBand has reasons (cma_iw_handler in the kernel).

// connectOverTCP is rdma_connect on iWARP: that of siw waits until TCP is connected, which
// takes minutes where nobody answers. Others' calls, the events of the id and its Close do
// not wait for it; the id is destroyed when it returns. mu is held, but not meanwhile.
func (id *cmID) connectOverTCP(c *cParam) error {
	handle := id.useLocked()
	id.mu.Unlock()
	err := id.withPrivateData(id.ch.connects, c, "rdma_connect", id.ch.lib.connect, handle)
	_ = id.unuse()
	id.mu.Lock()
	return err
}

// iwarpReason is the reason that an errno stands for: MPA's reject, of which the private
// data is the application's, comes as a reset.
func iwarpReason(errno syscall.Errno) verbs.RejectReason {
	switch errno {
	case syscall.ECONNRESET, syscall.ECONNREFUSED:
		return verbs.RejectConsumer
	case syscall.ETIMEDOUT:
		return verbs.RejectTimeout
	}
	return verbs.RejectNone
}

// failedAtOnce is the event by which devices that ask the peer tell what siw's rdma_connect,
// which waits for TCP to connect, says itself; false if err is no answer of the network.
func (id *cmID) failedAtOnce(err error) (verbs.CMEvent, bool) {
	peer := id.remote
	var errno syscall.Errno
	if id.ctx.dev.transport != verbs.TransportIWARP || !errors.As(err, &errno) {
		return verbs.CMEvent{}, false
	}
	switch errno {
	case syscall.ECONNREFUSED:
		return verbs.CMEvent{
			Type: verbs.CMRejected, ID: id, Reason: verbs.RejectNoService,
			Err: fmt.Errorf("nobody listens at %v: %w", peer, errno),
		}, true
	case syscall.ECONNRESET:
		return verbs.CMEvent{
			Type: verbs.CMRejected, ID: id, Reason: verbs.RejectNone,
			Err: fmt.Errorf("reset by %v: %w", peer, errno),
		}, true
	case syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return verbs.CMEvent{
			Type: verbs.CMUnreachable, ID: id,
			Err: fmt.Errorf("%v did not answer: %w", peer, err),
		}, true
	}
	return verbs.CMEvent{}, false
}
