package rdmanet

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrnoTimeout has errors whose errno is a timeout: package net's say so.
func TestErrnoTimeout(t *testing.T) {
	for _, tt := range []struct {
		err     error
		timeout bool
	}{
		{newConnError(syscall.ETIMEDOUT, ErrPeerGone), true},
		{newConnError(syscall.ETIMEDOUT, nil), true},
		{newConnError(syscall.ECONNREFUSED, ErrPeerGone), false},
	} {
		err := opError(opDial, "rdma", nil, nil, dialCause(context.Background(), "connect", tt.err))
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		require.Equal(t, tt.timeout, ne.Timeout(), "%v", err)
	}
}
