//go:build linux && (amd64 || arm64)

package soft

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestCQRing(t *testing.T) {
	ctx := soft0.open()
	v, err := ctx.CreateCQ(100, nil)
	require.NoError(t, err)
	c := v.(*cq)
	require.Equal(t, 100, c.Cap())
	wc := make([]verbs.WC, 7)
	next := uint64(0)
	for i := range uint64(500) { // in and out at different paces, through the growth
		c.push(&verbs.WC{WRID: i}, nil, 0)
		if i%9 == 8 || i >= 400 {
			n, err := c.Poll(wc)
			require.NoError(t, err)
			for _, w := range wc[:n] {
				require.Equal(t, next, w.WRID)
				next++
			}
		}
	}
	require.LessOrEqual(t, len(c.ring), 128)
	require.NoError(t, c.Close())
	_, err = c.Poll(wc)
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.NoError(t, ctx.Close())
}

// TestEventStays: an event that nobody has got is still there when the CQ is armed again.
func TestEventStays(t *testing.T) {
	a, b := newConnected(t, defaults())
	b.postRecv(1, 0)
	require.NoError(t, b.cq.ReqNotify(false))
	a.post(writeImm(b, 0, nil, 3))
	require.EqualValues(t, 1, a.qp.WakeupsSent())
	require.NoError(t, b.cq.ReqNotify(false))
	require.True(t, b.cq.takeEvent())
	require.False(t, b.cq.takeEvent(), "it is got once")
	require.EqualValues(t, 3, b.next().ImmData)
}

// TestOverrunBySends kills a CQ by completions of this side.
func TestOverrunBySends(t *testing.T) {
	c := defaults()
	c.cqe = 4
	a, b := newConnected(t, c)
	wr := write(b, 0, nil)
	wr.Flags |= verbs.SendSignaled
	for range 5 {
		a.post(wr)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ev, err := a.ctx.AsyncEvent(ctx)
	require.NoError(t, err)
	require.Equal(t, verbs.EventCQErr, ev.Type)
	require.Equal(t, verbs.CQ(a.cq), ev.CQ)
	ev, err = a.ctx.AsyncEvent(ctx)
	require.NoError(t, err)
	require.Equal(t, verbs.EventQPFatal, ev.Type)
	require.Equal(t, verbs.QPErr, a.qp.State())
	_, err = a.cq.Poll(make([]verbs.WC, 1))
	require.ErrorIs(t, err, verbs.ErrCQOverrun)
	require.ErrorIs(t, a.cq.ReqNotify(false), verbs.ErrCQOverrun)
}

// TestOverrunByReceives counts what waits in the inboxes as well.
func TestOverrunByReceives(t *testing.T) {
	c := defaults()
	a := newSide(t, c)
	c.cqe = 4
	b := newSide(t, c)
	connect(t, a, b, c)
	b.postRecv(5, 0)
	for range 4 {
		a.post(writeImm(b, 0, nil, 1))
	}
	for range 4 {
		require.Equal(t, verbs.WCSuccess, b.next().Status)
	}
	b.postRecv(5, 0)
	for range 5 {
		a.post(writeImm(b, 0, nil, 1))
	}
	_, err := b.cq.Poll(make([]verbs.WC, 1))
	require.ErrorIs(t, err, verbs.ErrCQOverrun)
	eventually(t, func() bool { return b.qp.State() == verbs.QPErr })
}

// TestFairPolling: a busy QP does not keep others on its CQ from being polled.
func TestFairPolling(t *testing.T) {
	c := defaults()
	a, b := newConnected(t, c)
	q, err := b.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, Cap: verbs.QPCap{MaxRecvWR: 8}})
	require.NoError(t, err)
	other := *b
	other.qp = q.(*qp)
	require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.QPInit, PortNum: 1, AccessFlags: c.access}, verbs.RCMaskInit))
	a2 := newSide(t, c)
	connect(t, a2, &other, c)
	defer q.Close()

	b.postRecv(32, 0)
	other.postRecv(1, 100)
	for range 32 {
		a.post(writeImm(b, 0, nil, 1))
	}
	a2.post(writeImm(b, 0, nil, 2))
	for i := range 3 {
		if b.next().ImmData == 2 {
			break
		}
		require.Less(t, i, 2, "the second QP is starved")
	}
}

// TestSendAfterReset: completions from before a reset take no place of what is posted after it.
func TestSendAfterReset(t *testing.T) {
	c := defaults()
	c.depth = 4
	a, b := newConnected(t, c)
	wr := write(b, 0, nil)
	wr.Flags |= verbs.SendSignaled
	for range c.depth {
		a.post(wr)
	}
	require.NoError(t, a.qp.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
	for _, s := range []*side{a, b} {
		require.NoError(t, s.qp.Modify(&verbs.QPAttr{State: verbs.QPInit, PortNum: 1, AccessFlags: c.access}, verbs.RCMaskInit))
	}
	connect(t, a, b, c)
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	for range c.depth {
		a.post(wr)
	}
}

// TestEventsOfDestroyed: nobody is told of an event of what was destroyed.
func TestEventsOfDestroyed(t *testing.T) {
	ctx := soft0.open()
	p, err := ctx.AllocPD()
	require.NoError(t, err)
	c, err := ctx.CreateCQ(1, nil)
	require.NoError(t, err)
	s, err := p.CreateSRQ(&verbs.SRQInitAttr{MaxWR: 1})
	require.NoError(t, err)
	for range 2 {
		c.(*cq).push(&verbs.WC{}, nil, 0)
	}
	ctx.raise(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: s})
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	ev, err := ctx.AsyncEvent(ended)
	require.ErrorIs(t, err, context.Canceled, "%v", ev.Type)
	require.NoError(t, p.Close())
	require.NoError(t, ctx.Close())
}
