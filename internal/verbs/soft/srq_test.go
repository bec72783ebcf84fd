//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestSRQBetweenPeers has two peers count on one receive: the message that comes
// too late waits in its inbox, and its receiver is woken when there is another.
func TestSRQBetweenPeers(t *testing.T) {
	c := defaults()
	c.srq = 8
	b := newSide(t, c)
	plain := defaults()
	a1, a2 := newSide(t, plain), newSide(t, plain)
	connect(t, a1, b, plain)

	// A second QP of the same SRQ, PD and CQ.
	q, err := b.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: b.qp.srq, Cap: verbs.QPCap{MaxSendWR: 1}})
	require.NoError(t, err)
	second := *b
	second.qp = q.(*qp)
	require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.QPInit, PortNum: 1, AccessFlags: c.access}, verbs.RCMaskInit))
	connect(t, a2, &second, plain)
	defer q.Close()

	post := func(n int) {
		for range n {
			_, err := b.qp.srq.PostRecv([]verbs.RecvWR{{SGList: []verbs.SGE{b.sge(0, 64)}}})
			require.NoError(t, err)
		}
	}
	post(1)
	for i, a := range []*side{a1, a2} {
		wr := writeImm(b, 0, nil, uint32(i))
		wr.Flags |= verbs.SendSignaled
		a.post(wr)
		require.Equal(t, verbs.WCSuccess, a.next().Status, "both saw the one receive")
	}
	first := b.next()
	got := make(chan verbs.WC)
	go func() { got <- b.next() }()
	eventually(t, func() bool { // it sleeps, and the message waits
		rq := b.qp.srq.rq
		b.cq.mu.Lock()
		defer b.cq.mu.Unlock()
		rq.mu.Lock()
		defer rq.mu.Unlock()
		return b.cq.armed == shm.ArmedAny && len(b.qp.srq.waiting) == 1
	})
	select {
	case wc := <-got:
		t.Fatalf("%+v without a receive", wc)
	default:
	}
	post(1)
	require.Equal(t, uint32(1), first.ImmData+(<-got).ImmData)
}

// TestSRQPageIsReadOnly: peers cannot map the page of an SRQ for writing.
func TestSRQPageIsReadOnly(t *testing.T) {
	c := defaults()
	c.srq = 8
	b := newSide(t, c)
	_, err := shm.MapPeer(b.qp.srq.fd, 0, shm.PageSize, 3)
	require.ErrorIs(t, err, verbs.ErrProtocol)
	v, err := openSRQ(b.qp.srq.fd)
	require.NoError(t, err)
	require.NoError(t, shm.Unmap(v))
}

// TestSRQPostBesideALook: whoever looks into an inbox meanwhile, a post to an SRQ finds the room that there is.
func TestSRQPostBesideALook(t *testing.T) {
	const depth = 4
	c := defaults()
	c.depth, c.cqe, c.srq = depth, 2*depth, depth
	_, b := newConnected(t, c)
	post := func() error {
		_, err := b.qp.srq.PostRecv([]verbs.RecvWR{{}})
		return err
	}
	for range depth - 1 {
		require.NoError(t, post())
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				b.qp.progressInbox()
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for range 20000 {
		require.NoError(t, post())
		b.qp.rq.mu.Lock()
		b.qp.srq.taken() // and polled
		b.qp.rq.mu.Unlock()
	}
}
