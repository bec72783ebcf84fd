package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestSelfTestPasses(t *testing.T) {
	h := roceHost()
	c, took := h.checkEcho(t.Context(), roce())
	assert.Equal(t, check{"self-test", "rxe0", statusOK, "1 MiB there and back in 1 ms on 192.0.2.1, unchanged", ""}, c)
	assert.Equal(t, costs{5, 100 << 10}, took)
}

func TestSelfTestFails(t *testing.T) {
	low := limited("65536", "unlimited", "1024")
	for _, tt := range []struct {
		err         error
		detail, fix string
	}{
		{fmt.Errorf("%w: ibv_reg_mr: %w", verbs.ErrNoMemory, syscall.ENOMEM), "on 192.0.2.1: cannot allocate RDMA memory", "ulimit -l unlimited"},
		{context.DeadlineExceeded, "not all came back within 20s", "dmesg | tail"},
		{errWrongBytes, "what came back is not what was sent", "dmesg | tail"},
		{errors.Join(errors.New("one"), errors.New("two")), "one; two", "dmesg | tail"},
	} {
		h := fakeHost(low, roce())
		h.echo = func(context.Context, string, netip.Addr) (outcome, error) { return outcome{}, tt.err }
		c, took := h.checkEcho(t.Context(), roce())
		assert.Equal(t, statusFail, c.Status)
		assert.Contains(t, c.Detail, tt.detail)
		assert.Equal(t, tt.fix, c.Fix)
		assert.Zero(t, took)
	}
}

func TestSelfTestIsBounded(t *testing.T) {
	h := roceHost()
	h.echo = func(ctx context.Context, _ string, _ netip.Addr) (outcome, error) {
		_, bounded := ctx.Deadline()
		assert.True(t, bounded)
		return outcome{}, nil
	}
	_, _ = h.checkEcho(t.Context(), roce())
}

func TestDeviceThatIsAskedFor(t *testing.T) {
	listed := []rdmanet.Device{software, roce()}
	asked := func(flag, env string, err error) []check {
		h := roceHost()
		h.chosen = env
		h.echo = func(_ context.Context, device string, at netip.Addr) (outcome, error) {
			require.Equal(t, "127.0.0.1", at.String())
			return outcome{}, err
		}
		return h.checkChosen(t.Context(), flag, listed)
	}
	gone := fmt.Errorf("%w: mlx5_9", verbs.ErrNoDevice)
	assert.Empty(t, asked("", "", nil))
	assert.Empty(t, asked("rxe0", "soft0", gone), "those are in the list")
	assert.Empty(t, asked("", switchedOff, gone), "which is no device")

	c := one(t, asked("", "mlx5_9", gone))
	assert.Equal(t, check{"device", "mlx5_9", statusFail, "RDMANET_DEVICE asks for it, but there is none of this name", "unset RDMANET_DEVICE"}, c)
	c = one(t, asked("mlx5_9", "mlx5_9", gone))
	assert.Equal(t, check{"device", "mlx5_9", statusFail, "-device asks for it, but there is none of this name", "/usr/bin/rdmanet-doctor"}, c)
	c = one(t, asked("", "soft0-iwarp", nil))
	assert.Equal(t, check{"device", "soft0-iwarp", statusOK, "RDMANET_DEVICE asks for it, and it works", ""}, c)
	c = one(t, asked("", "soft0-iwarp", syscall.EMFILE))
	assert.Equal(t, statusFail, c.Status)
	assert.Contains(t, c.Detail, "too many open files")
	assert.Len(t, asked("a", "b", gone), 2)
}
