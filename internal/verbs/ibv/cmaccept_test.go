//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestAcceptNil: without parameters an answer has what the dialer asked for, as far as the device
// does (rdma_accept(3)).
func TestAcceptNil(t *testing.T) {
	const limit = 16
	lib := fakeVerbs(t)
	var dest, initiates uint8 // of the QP
	var responder, depth uint8
	lib.modifyQP = purego.NewCallback(func(_ uintptr, c *cQPAttr, _ uintptr) uintptr {
		if verbs.QPState(c.qpState) == verbs.QPRTR {
			dest = c.maxDestRdAtomic
		}
		if verbs.QPState(c.qpState) == verbs.QPRTS {
			initiates = c.maxRdAtomic
		}
		if c.maxDestRdAtomic > limit || c.maxRdAtomic > limit {
			return uintptr(syscall.EINVAL)
		}
		return 0
	})
	ch := newCMChannel(lib, &librdmacm{
		initQPAttr: purego.NewCallback(func(_ uintptr, _ *cQPAttr, mask *int32) uintptr {
			*mask = int32(verbs.QPMaskState | verbs.QPMaskMaxDestRdAtomic | verbs.QPMaskMaxQPRdAtomic)
			return 0
		}),
		accept: purego.NewCallback(func(_ uintptr, p *cConnParam) uintptr {
			responder, depth = p.responderResources, p.initiatorDepth
			return 0
		}),
	})
	ctx := fakeContext(t, lib, verbs.TransportRoCE)
	ctx.limits.attr.MaxQPRdAtom, ctx.limits.attr.MaxQPInitRdAtom = limit, limit
	for _, c := range []struct{ asked, want uint8 }{{128, limit}, {4, 4}} {
		id := &cmID{
			ch: ch, handle: 1, state: cmRequested, ctx: ctx, qp: &qp{ctx: ctx, c: &cMemory[cQP](t, 1)[0]},
			asked: driver.ConnParam{ResponderResources: c.asked, InitiatorDepth: c.asked, RetryCount: 7, RNRRetryCount: 7, QPNum: 0x123},
		}
		id.events.Init(func(driver.CMEvent) {})
		require.NoError(t, id.Accept(nil))
		assert.Equal(t, c.want, dest)
		assert.Equal(t, c.want, initiates)
		// For the largest value librdmacm does the same.
		assert.EqualValues(t, rdmaMaxRespRes, responder)
		assert.EqualValues(t, rdmaMaxInitDepth, depth)
	}
}

// TestAcceptNilWithoutQP: the QP number that a request tells is the dialer's.
func TestAcceptNilWithoutQP(t *testing.T) {
	lib := fakeVerbs(t)
	ch := newCMChannel(lib, &librdmacm{accept: purego.NewCallback(func(_ uintptr, p *cConnParam) uintptr {
		t.Errorf("answered with QP %#x", p.qpNum)
		return 0
	})})
	id := &cmID{
		ch: ch, handle: 1, state: cmRequested, ctx: fakeContext(t, lib, verbs.TransportRoCE),
		asked: driver.ConnParam{QPNum: 0x123},
	}
	id.events.Init(func(driver.CMEvent) {})
	require.ErrorIs(t, id.Accept(nil), verbs.ErrState)
}
