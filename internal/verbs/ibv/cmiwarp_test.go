//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// What rdma_connect says of the peer becomes an event, on iWARP only; what it says of the
// call stays an error.
func TestFailedAtOnce(t *testing.T) {
	id := &cmID{ctx: &devContext{dev: &device{transport: verbs.TransportIWARP}}}
	for errno, want := range map[syscall.Errno]verbs.CMEvent{
		syscall.ECONNREFUSED: {Type: verbs.CMRejected, Reason: verbs.RejectNoService},
		syscall.ECONNRESET:   {Type: verbs.CMRejected},
		syscall.ETIMEDOUT:    {Type: verbs.CMUnreachable},
		syscall.EHOSTUNREACH: {Type: verbs.CMUnreachable},
	} {
		ev, ok := id.failedAtOnce(failed("rdma_connect", errno))
		assert.True(t, ok, "%v", errno)
		assert.Equal(t, want.Type, ev.Type, "%v", errno)
		assert.Equal(t, want.Reason, ev.Reason, "%v", errno)
		assert.ErrorIs(t, ev.Err, errno)
	}
	for _, err := range []error{failed("rdma_connect", syscall.ENOMEM), failed("rdma_connect", syscall.EINVAL), errors.New("other")} {
		_, ok := id.failedAtOnce(err)
		assert.False(t, ok, "%v", err)
	}
	id.ctx.dev.transport = verbs.TransportRoCE
	_, ok := id.failedAtOnce(failed("rdma_connect", syscall.ECONNREFUSED))
	assert.False(t, ok)
}
