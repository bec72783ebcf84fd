//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"io"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// These tests need a device; what every driver must do is in TestConformance.

func openDevice(t *testing.T) *devContext {
	t.Helper()
	ctx, err := needDevice(t).Open()
	require.NoError(t, err)
	closeLater(t, ctx)
	return ctx.(*devContext)
}

func closeLater(t *testing.T, c io.Closer) {
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
}

func TestDevices(t *testing.T) {
	d := needDevice(t)
	all, err := ibvDriver{}.Devices()
	require.NoError(t, err)
	var names []string
	for _, x := range all {
		names = append(names, x.Name())
		assert.NotZero(t, x.GUID(), x.Name())
		assert.NotEqual(t, verbs.TransportUnknown, x.Transport(), x.Name())
	}
	assert.Contains(t, names, d.name)
	_, err = (&device{lib: d.lib, name: "gone0"}).Open()
	assert.ErrorIs(t, err, verbs.ErrNoDevice)
}

// The two ways to read the GID table agree.
func TestGIDFromSysfs(t *testing.T) {
	ctx := openDevice(t)
	port, err := ctx.QueryPort(1)
	require.NoError(t, err)
	for i := range min(port.GIDTblLen, 8) {
		want, err := ctx.QueryGID(1, i)
		require.NoError(t, err)
		got := verbs.GIDEntry{Index: i, Port: 1}
		require.NoError(t, ctx.gidFromSysfs(&got))
		assert.Equal(t, want, got)
	}
}

func TestMaxInlineData(t *testing.T) {
	ctx := openDevice(t)
	attr, err := ctx.QueryDevice()
	require.NoError(t, err)
	again, err := ctx.probeInline()
	require.NoError(t, err)
	assert.Equal(t, attr.MaxInlineData, again)
	assert.GreaterOrEqual(t, attr.MaxInlineData, 16)
}

// Datagrams: a GRH precedes the data, and the address handle says where to.
func TestUD(t *testing.T) {
	const qkey, grh = 0x11111111, 40
	if onIWARP(t) {
		t.Skip("iWARP has no datagrams")
	}
	ctx := openDevice(t)
	at, err := verbstest.Locate(ctx)
	require.NoError(t, err)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	closeLater(t, pd)
	mem, err := ctx.AllocMemory(4096, 4096)
	require.NoError(t, err)
	closeLater(t, mem)
	mr, err := pd.RegMR(mem.Bytes(), verbs.AccessLocalWrite)
	require.NoError(t, err)
	closeLater(t, mr)
	cq, err := ctx.CreateCQ(16, nil)
	require.NoError(t, err)
	closeLater(t, cq)
	newQP := func() verbs.QP {
		qp, err := pd.CreateQP(&verbs.QPInitAttr{
			Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		require.NoError(t, err)
		closeLater(t, qp)
		for _, step := range []struct {
			attr verbs.QPAttr
			mask verbs.QPAttrMask
		}{
			{verbs.QPAttr{State: verbs.QPInit, PortNum: at.Port, QKey: qkey}, verbs.QPMaskState | verbs.QPMaskPKeyIndex | verbs.QPMaskPort | verbs.QPMaskQKey},
			{verbs.QPAttr{State: verbs.QPRTR}, verbs.QPMaskState},
			{verbs.QPAttr{State: verbs.QPRTS, SQPSN: 1}, verbs.QPMaskState | verbs.QPMaskSQPSN},
		} {
			require.NoError(t, qp.Modify(&step.attr, step.mask))
		}
		return qp
	}
	a, b := newQP(), newQP()
	av := at.AH(at.GID, at.LID)
	handle, err := pd.CreateAH(&av)
	require.NoError(t, err)

	copy(mem.Bytes(), "datagram")
	_, err = b.PostRecv([]verbs.RecvWR{{WRID: 1, SGList: []verbs.SGE{{Addr: mr.Addr() + 1024, Length: 1024, LKey: mr.LKey()}}}})
	require.NoError(t, err)
	_, err = a.PostSend([]verbs.SendWR{{
		WRID: 2, Opcode: verbs.WRSendWithImm, Flags: verbs.SendSignaled, ImmData: 99, AH: handle, RemoteQPN: b.QPN(), RemoteQKey: qkey,
		SGList: []verbs.SGE{{Addr: mr.Addr(), Length: 8, LKey: mr.LKey()}},
	}})
	require.NoError(t, err)
	got := map[uint64]verbs.WC{}
	require.Eventually(t, func() bool {
		var wc [2]verbs.WC
		n, err := cq.Poll(wc[:])
		require.NoError(t, err)
		for _, w := range wc[:n] {
			got[w.WRID] = w
		}
		return len(got) == 2
	}, 30*time.Second, time.Millisecond)
	assert.Equal(t, verbs.WCSuccess, got[2].Status)
	wc := got[1]
	assert.Equal(t, verbs.WCSuccess, wc.Status)
	assert.Equal(t, verbs.WCWithImm|verbs.WCGRH, wc.Flags)
	assert.EqualValues(t, 99, wc.ImmData)
	assert.EqualValues(t, grh+8, wc.ByteLen)
	assert.Equal(t, a.QPN(), wc.SrcQP)
	assert.Equal(t, "datagram", string(mem.Bytes()[1024+grh:1024+grh+8]))

	require.NoError(t, handle.Close())
	require.ErrorIs(t, handle.Close(), verbs.ErrClosed)
	_, err = a.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, AH: handle}})
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// Events by the hundred: acknowledged in batches, all of them before the CQ goes.
func TestManyEvents(t *testing.T) {
	ctx := openDevice(t)
	ch, err := ctx.CreateCompChannel()
	require.NoError(t, err)
	closeLater(t, ch)
	p := verbstest.NewPair(t, ctx, verbstest.PairConfig{ByCM: byCM(t), B: verbstest.EndConfig{Channel: ch}})
	var wc [1]verbs.WC
	require.NoError(t, ch.SetReadDeadline(time.Now().Add(30*time.Second)))
	for range 2*ackBatch + 7 {
		require.NoError(t, p.B.RecvCQ.ReqNotify(false))
		p.B.PostRecv(verbs.RecvWR{})
		p.A.Post(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
		cq, err := ch.GetEvent()
		require.NoError(t, err)
		require.Equal(t, p.B.RecvCQ, cq)
		p.A.Sent(1)
		n, err := p.B.RecvCQ.Poll(wc[:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
}

// Waits that find at once what they want leave a bounded number of events behind.
func TestEventsAreConsumed(t *testing.T) {
	ctx := openDevice(t)
	ch, err := ctx.CreateCompChannel()
	require.NoError(t, err)
	closeLater(t, ch)
	p := verbstest.NewPair(t, ctx, verbstest.PairConfig{ByCM: byCM(t), B: verbstest.EndConfig{Channel: ch}})
	for range maxLeft - 1 {
		raiseUnawaited(t, p, ch)
	}
	require.NotZero(t, pending(t, ch), "the test shows nothing")
	require.NoError(t, ch.WaitRead(func() bool { return true }))
	require.Zero(t, pending(t, ch))
}

// raiseUnawaited has an event raised that the wait for it does not need.
func raiseUnawaited(t *testing.T, p *verbstest.Pair, ch verbs.CompChannel) {
	t.Helper()
	require.NoError(t, p.B.RecvCQ.ReqNotify(false))
	p.B.PostRecv(verbs.RecvWR{})
	p.A.Post(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	p.A.Sent(1)
	p.B.Received(1)
	require.NoError(t, ch.WaitRead(func() bool { return true }))
}

// pending returns how many events, at most one, are left on the channel.
func pending(t *testing.T, ch verbs.CompChannel) int {
	t.Helper()
	fds := []unix.PollFd{{Fd: at[cCompChannel](ch.(*compChannel).kernel.handle).fd, Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	require.NoError(t, err)
	return n
}

// A direction that has consumed an event has the other try again, which the
// poller may not.
func TestConsumerWakesTheOther(t *testing.T) {
	ctx := openDevice(t)
	made, err := ctx.CreateCompChannel()
	require.NoError(t, err)
	closeLater(t, made)
	ch := made.(*compChannel)
	// The writer's descriptor shall never become readable by itself.
	unready, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(unready)
	wr := ch.wr.(*ownWait)
	require.NoError(t, wr.close())
	require.NoError(t, wr.open(unready))

	p := verbstest.NewPair(t, ctx, verbstest.PairConfig{ByCM: byCM(t), B: verbstest.EndConfig{Channel: ch}})
	p.B.PostRecv(verbs.RecvWR{})
	limit := time.Now().Add(20 * time.Second)
	require.NoError(t, ch.SetReadDeadline(limit))
	require.NoError(t, ch.SetWriteDeadline(limit))
	looked, errs := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		calls := 0
		errs <- ch.WaitWrite(func() bool {
			calls++
			if calls == 1 {
				looked <- struct{}{}
			}
			return calls > 1
		})
	}()
	<-looked
	posted := false
	require.NoError(t, ch.WaitRead(func() bool {
		if !posted {
			posted = true
			require.NoError(t, p.B.RecvCQ.ReqNotify(false))
			p.A.Post(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
			return false
		}
		return pending(t, ch) == 0 // having consumed the event, come sooner or later
	}))
	require.NoError(t, <-errs)
	// The deadline is the caller's again.
	require.NoError(t, ch.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
	require.ErrorIs(t, ch.WaitWrite(func() bool { return false }), os.ErrDeadlineExceeded)
	p.A.Sent(1)
	p.B.Received(1)
}

// Events that nobody waits for are taken all the same from channels that are shared: the kernel keeps each
// until then.
func TestSharedEventsAreConsumed(t *testing.T) {
	ctx := openDevice(t)
	ctx.ownChannels.Add(math.MaxInt32 / 2)
	made, err := ctx.CreateCompChannel()
	ctx.ownChannels.Add(-math.MaxInt32 / 2)
	require.NoError(t, err)
	closeLater(t, made)
	ch := made.(*compChannel)
	require.NotNil(t, ch.shared)
	p := verbstest.NewPair(t, ctx, verbstest.PairConfig{ByCM: byCM(t), B: verbstest.EndConfig{Channel: ch}})
	const events = 32
	for range events {
		raiseUnawaited(t, p, ch)
	}
	require.Eventually(t, func() bool {
		ch.mu.Lock()
		defer ch.mu.Unlock()
		return p.B.RecvCQ.(*cq).raised == events
	}, 20*time.Second, time.Millisecond)
}

// Registration beyond the limit says which limit it is and how to raise it.
func TestMemlock(t *testing.T) {
	ctx := openDevice(t)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	closeLater(t, pd)
	mem, err := ctx.AllocMemory(1<<20, 1<<20)
	require.NoError(t, err)
	closeLater(t, mem)
	if os.Getuid() != 0 {
		t.Skip("the test gives up CAP_IPC_LOCK and needs root to begin with")
	}
	limitLockedMemory(t, 64<<10)
	_, err = pd.RegMR(mem.Bytes(), verbs.AccessLocalWrite)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorContains(t, err, "RLIMIT_MEMLOCK is 64 KiB")
}

// limitLockedMemory lowers the limit and drops the capability that overrides it,
// from the thread that the test is locked to. The thread ends with the test: even with
// the capability back, the kernel would refuse it the files that others have opened.
func limitLockedMemory(t *testing.T, n uint64) {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: n, Max: was.Max}))
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps, fewer [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &caps[0]))
	fewer = caps
	fewer[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	runtime.LockOSThread()
	require.NoError(t, unix.Capset(&header, &fewer[0]))
	t.Cleanup(func() {
		assert.NoError(t, unix.Capset(&header, &caps[0]))
		assert.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was))
	})
}

// TestCompletionVectors makes completion channels one after the other: their events are
// spread over the device's interrupts.
func TestCompletionVectors(t *testing.T) {
	ctx, err := needDevice(t).Open()
	require.NoError(t, err)
	defer ctx.Close()
	vectors := int(at[cContext](ctx.(*devContext).handle).numCompVectors)
	require.Positive(t, vectors)
	used := map[uint32]bool{}
	for range vectors {
		ch, err := ctx.CreateCompChannel()
		require.NoError(t, err)
		defer ch.Close()
		cq, err := ctx.CreateCQ(1, ch)
		require.NoError(t, err)
		defer cq.Close()
		used[ch.(*compChannel).kernel.vector] = true
	}
	require.Len(t, used, vectors)
}
