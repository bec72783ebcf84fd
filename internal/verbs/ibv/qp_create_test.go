//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Every operation has its flag.
func TestSendOpFlags(t *testing.T) {
	require.Len(t, sendOpFlags, len(needs))
	var all uint64
	for op, flag := range sendOpFlags {
		assert.NotZero(t, flag, "%v", verbs.WROpcode(op))
		assert.Zero(t, all&flag, "%v", verbs.WROpcode(op))
		all |= flag
	}
}

func qpOf(ops verbs.SendOps, caps verbs.DeviceCaps) *qp {
	ctx := &devContext{limits: limits{attr: verbs.DeviceAttr{Caps: caps}}}
	return &qp{ctx: ctx, pd: &pd{ctx: ctx, handle: 7}, init: verbs.QPInitAttr{Type: verbs.QPTypeRC, SendOps: ops}}
}

func TestSendOpsOfQP(t *testing.T) {
	writes := verbs.NewSendOps(verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRAtomicWrite)
	for _, c := range []struct {
		ops  verbs.SendOps
		caps verbs.DeviceCaps
		want uint64
	}{
		{0, verbs.CapWriteImm, 0},
		{0, verbs.CapAtomicWrite, qpExWithAtomicWrite},
		{writes, verbs.CapWriteImm, qpExWithRDMAWrite | qpExWithRDMAWriteWithImm},
		{writes, 0, qpExWithRDMAWrite},
		{writes, verbs.CapAtomicWrite, qpExWithRDMAWrite | qpExWithAtomicWrite},
	} {
		assert.Equal(t, c.want, qpOf(c.ops, c.caps).sendOps())
	}
}

// A provider that does not know the flags gets a plain call, and no other call the next
// time; a failure of another kind is the failure.
func TestMakeEither(t *testing.T) {
	ops := verbs.NewSendOps(verbs.WRRDMAWrite)
	for name, c := range map[string]struct {
		extended, plain error
		tried           string
		fails           error
	}{
		"extended":       {nil, nil, "EE", nil},
		"not supported":  {syscall.EOPNOTSUPP, nil, "EPP", nil},
		"old library":    {syscall.ENOSYS, nil, "EPP", nil},
		"unknown flag":   {syscall.EINVAL, nil, "EPP", nil},
		"bad attributes": {syscall.EINVAL, syscall.EINVAL, "EPEP", syscall.EINVAL},
		"no memory":      {syscall.ENOMEM, nil, "EE", syscall.ENOMEM},
	} {
		t.Run(name, func(t *testing.T) {
			q := qpOf(ops, 0)
			tried := ""
			for range 2 {
				in := &cQPInitAttrEx{cap: cQPCap{maxInlineData: 64}}
				err := q.makeEither(in, func() error {
					tried += "E"
					assert.EqualValues(t, qpExWithRDMAWrite, in.sendOpsFlags)
					assert.EqualValues(t, 7, in.pd)
					in.cap.maxInlineData = 1000
					return wrapped(c.extended)
				}, func() error {
					tried += "P"
					assert.Zero(t, in.compMask)
					assert.EqualValues(t, 64, in.cap.maxInlineData, "what a failed call has left")
					return wrapped(c.plain)
				})
				assert.ErrorIs(t, err, c.fails)
			}
			assert.Equal(t, c.tried, tried)
			assert.Equal(t, c.extended == nil, q.extended)
		})
	}
	q := qpOf(ops, 0)
	require.NoError(t, q.makeEither(new(cQPInitAttrEx), nil, func() error { return nil }), "no extended verbs")
	assert.False(t, q.extended)
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err)
}

// The device of the test bed has the extended verbs, and the connection manager's QPs
// come by them as well.
func TestExtendedQP(t *testing.T) {
	ctx := openDevice(t)
	domain, err := ctx.AllocPD()
	require.NoError(t, err)
	closeLater(t, domain)
	completions, err := ctx.CreateCQ(1, nil)
	require.NoError(t, err)
	closeLater(t, completions)
	made, err := domain.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: completions, RecvCQ: completions, SendOps: verbs.NewSendOps(verbs.WRRDMAWrite),
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	require.NoError(t, err)
	closeLater(t, made)
	assert.Equal(t, ctx.dev.transport == verbs.TransportRoCE, made.(*qp).extended)
}
