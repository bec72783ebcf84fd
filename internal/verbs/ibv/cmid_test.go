//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A kernel that does not know the ACK timeout is no obstacle; one that refuses another
// option is, and so is any other failure.
func TestDispensableOption(t *testing.T) {
	const fn = "rdma_set_option"
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EINVAL} {
		assert.True(t, dispensable(rdmaOptionAckTimeout, failed(fn, errno)), "%v", errno)
		for _, opt := range []uintptr{rdmaOptionReuseAddr, rdmaOptionAFOnly, rdmaOptionTOS} {
			assert.False(t, dispensable(opt, failed(fn, errno)), "option %d: %v", opt, errno)
		}
	}
	for _, errno := range []syscall.Errno{syscall.ENODEV, syscall.EIO, syscall.ENOMEM} {
		assert.False(t, dispensable(rdmaOptionAckTimeout, failed(fn, errno)), "%v", errno)
	}
}
