package rdmanet

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

// paperQueue is a QP and its send CQ that complete when told to, as hardware
// does: signalled requests only, and a slot comes back with a later completion.
type paperQueue struct {
	verbs.QP
	verbs.CQ
	t         *testing.T
	capacity  int
	queue     []verbs.SendWR // posted and not yet executed
	held      int            // slots taken
	completed []verbs.WC
	frees     []int // slots that each completion gives back
	unpolled  int
}

func (p *paperQueue) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		if p.held == p.capacity {
			return i, verbs.ErrQueueFull
		}
		p.held++
		p.queue = append(p.queue, wrs[i])
	}
	return len(wrs), nil
}

// execute lets the device finish n requests.
func (p *paperQueue) execute(n int) {
	for range min(n, len(p.queue)) {
		wr := p.queue[0]
		p.queue = p.queue[1:]
		p.unpolled++
		if wr.Flags&verbs.SendSignaled != 0 {
			p.completed = append(p.completed, verbs.WC{WRID: wr.WRID})
			p.frees = append(p.frees, p.unpolled)
			p.unpolled = 0
		}
	}
}

func (p *paperQueue) Close() error { return nil }

func (p *paperQueue) Poll(wc []verbs.WC) (int, error) {
	n := copy(wc, p.completed)
	for _, f := range p.frees[:n] {
		p.held -= f
	}
	p.completed, p.frees = p.completed[n:], p.frees[n:]
	return n, nil
}

// TestSendQueue posts at random against a device that completes at random: the
// queue never overflows, and a full one always gets room again, which it only
// can if it holds a signalled request (invariant 5).
func TestSendQueue(t *testing.T) {
	for _, capacity := range []int{8, 13, 16, 128} {
		testSendQueue(t, capacity, nil)
		testSendQueue(t, capacity, &confirmation{mr: new(simMR)})
	}
}

func testSendQueue(t *testing.T, capacity int, confirm *confirmation) {
	r := rand.New(rand.NewPCG(1, uint64(capacity)))
	dev := &paperQueue{t: t, capacity: capacity}
	q := newSendQueue(dev, dev, capacity)
	q.confirm = confirm
	var wrs [3]verbs.SendWR
	for range 20000 {
		n := 1 + r.IntN(len(wrs))
		ok, err := q.reserveRoom(n)
		require.NoError(t, err)
		if ok {
			require.NoError(t, q.post(wrs[:n], r.IntN(50) == 0))
			continue
		}
		signalled := len(dev.completed) > 0
		for _, wr := range dev.queue {
			isSignalled := wr.Flags&verbs.SendSignaled != 0
			signalled = signalled || isSignalled
			require.Equal(t, isSignalled && confirm != nil, wr.Opcode == verbs.WRRDMARead, "READs alone are signalled")
		}
		require.True(t, signalled, "a full queue without a signalled request is stuck for ever")
		dev.execute(1 + r.IntN(capacity))
	}
}

func TestSendQueueReportsFailure(t *testing.T) {
	dev := &paperQueue{t: t, capacity: 8}
	q := newSendQueue(dev, dev, 8)
	dev.completed = []verbs.WC{{Status: verbs.WCRetryExcErr}}
	dev.frees = []int{0}
	require.ErrorIs(t, q.reap(), verbs.WCRetryExcErr)
}
