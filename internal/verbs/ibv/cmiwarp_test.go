//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// A Connect that waits for TCP (siw) keeps nobody from the id: its Close returns, and the
// struct is destroyed when the call is over. Nor does it keep other calls waiting.
func TestConnectWaitsForTCP(t *testing.T) {
	lib := needVerbs(t)
	goOn := make(chan struct{})
	called := make(chan struct{}, connectSlots)
	destroyed := make(chan struct{}, connectSlots)
	ch := newCMChannel(lib, &librdmacm{
		connect: purego.NewCallback(func() uintptr {
			called <- struct{}{}
			<-goOn
			return 0
		}),
		destroyID: purego.NewCallback(func() uintptr {
			destroyed <- struct{}{}
			return 0
		}),
		reject: purego.NewCallback(func() uintptr { return 0 }),
	})
	ids := make([]*cmID, cmSlots+1)
	var told atomic.Int32
	returned := make(chan error, len(ids))
	for i := range ids {
		id := &cmID{
			ch: ch, handle: 1, state: cmRouteResolved,
			ctx: &devContext{dev: &device{transport: verbs.TransportIWARP}},
		}
		id.events.Init(func(verbs.CMEvent) { told.Add(1) })
		ids[i] = id
		go func() { returned <- id.Connect(&verbs.ConnParam{QPNum: 17}, time.Minute) }()
		<-called
	}
	require.NoError(t, ch.call("rdma_reject", ch.lib.reject), "beside them")
	require.NoError(t, ids[0].Close())
	ids[1].onEvent(&cmEvent{typ: verbs.CMEstablished})
	assert.EqualValues(t, 1, told.Load())
	assert.Empty(t, destroyed, "it is in use")
	close(goOn)
	for range ids {
		require.NoError(t, <-returned)
	}
	<-destroyed
	for i, want := range []cmState{cmClosed, cmConnected, cmConnecting} {
		ids[i].mu.Lock()
		assert.Equal(t, want, ids[i].state)
		assert.Equal(t, want == cmConnecting, ids[i].timer != nil, "%v", want)
		ids[i].mu.Unlock()
	}
	for _, id := range ids[2:] {
		id.stopTimer()
	}
}
