package rdmanet

import (
	"context"
	"fmt"
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
		err := opError(opDial, "rdma", nil, nil, dialCause(context.Background(), tt.err))
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		require.Equal(t, tt.timeout, ne.Timeout(), "%v", err)
	}
}

// TestOpErrorWrapsOthers has an error of another package's call somewhere in it.
func TestOpErrorWrapsOthers(t *testing.T) {
	inner := fmt.Errorf("no route: %w", &net.OpError{Op: "dial", Net: "udp", Err: syscall.ENETUNREACH})
	var op *net.OpError
	require.ErrorAs(t, opError(opDial, "rdma", nil, nil, inner), &op)
	require.Equal(t, "rdma", op.Net)
	require.ErrorIs(t, op, syscall.ENETUNREACH)
	require.Same(t, op, opError(opDial, "rdma6", nil, nil, op), "once is enough")
}
