package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestReasonOf(t *testing.T) {
	refusedWith := func(code cm.RefusalCode) error {
		r := cm.NewRefusal(code, "")
		private, err := r.MarshalBinary()
		require.NoError(t, err)
		return opError(opDial, "tcp", nil, nil, &cm.RejectedError{Reason: 28, PrivateData: private})
	}
	for _, tt := range []struct {
		err   error
		want  FallbackReason
		lasts bool
	}{
		{ErrNoDevice, FallbackNoDevice, true},
		{verbs.ErrNotSupported, FallbackNoDevice, true},
		{errors.Join(ErrNoRoute, verbs.ErrTCPPorts), FallbackNoDevice, true},
		{newConnError(syscall.ENODEV, cm.ErrDeviceRemoved), FallbackNoDevice, true},
		{errors.Join(ErrNoDevice, ErrNoRoute), FallbackNoRoute, true},
		{syscall.EADDRNOTAVAIL, FallbackNoRoute, true},
		{&cm.RejectedError{Reason: 8}, FallbackRefused, true},
		{&cm.RejectedError{Reason: 4}, FallbackUnreachable, true},
		{refusedWith(cm.RefusedVersion), FallbackVersion, true},
		{refusedWith(cm.RefusedNotPermitted), FallbackDenied, true},
		{refusedWith(cm.RefusedResources), FallbackResources, false},
		{refusedWith(cm.RefusedShutdown), FallbackRefused, false},
		{refusedWith(cm.RefusedMalformed), FallbackRefused, true},
		{fmt.Errorf("denied: %w", syscall.EACCES), FallbackDenied, true},
		{&cm.UnreachableError{}, FallbackUnreachable, true},
		{os.NewSyscallError("connect", syscall.ETIMEDOUT), FallbackUnreachable, true},
		{syscall.EHOSTUNREACH, FallbackUnreachable, true},
		{os.ErrDeadlineExceeded, FallbackUnreachable, true},
		{context.DeadlineExceeded, FallbackUnreachable, true},
		{ErrSlow, FallbackSlow, true},
		{endedDial(context.DeadlineExceeded, fmt.Errorf("%w: %w", verbs.ErrTryAgain, syscall.ECONNREFUSED)), FallbackSlow, true},
		{ErrNoMemory, FallbackResources, false},
		{syscall.EMFILE, FallbackResources, false},
		{ErrProtocol, FallbackFailed, false},
		{syscall.ECONNRESET, FallbackFailed, false},
	} {
		require.Equal(t, tt.want, reasonOf(tt.err), "%v", tt.err)
		require.Equal(t, tt.lasts, lasts(tt.err, time.Hour) > 0, "%v", tt.err)
	}
}

// TestSlowIsForgottenSoon: a server that is behind with accepting is tried again.
func TestSlowIsForgottenSoon(t *testing.T) {
	require.Equal(t, time.Second, lasts(ErrSlow, DefaultRetryRDMA))
	require.Equal(t, time.Millisecond, lasts(ErrSlow, time.Millisecond))
	require.Equal(t, DefaultRetryRDMA, lasts(syscall.ECONNREFUSED, DefaultRetryRDMA))
}

func TestFallbackError(t *testing.T) {
	e := &FallbackError{
		Op: "dial", Network: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80},
		Reason: FallbackRefused, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}
	require.EqualError(t, e, "dial tcp 10.0.0.1:80 without RDMA (refused): connect: connection refused")
	require.ErrorIs(t, e, syscall.ECONNREFUSED)
	require.False(t, e.Timeout())
	e.Err = os.ErrDeadlineExceeded
	require.True(t, e.Timeout())
	require.Len(t, fallbackNames, int(fallbackReasons))
	require.Equal(t, "failed", FallbackFailed.String())
	require.Equal(t, "reason 200", FallbackReason(200).String())
}
