//go:build linux && (amd64 || arm64)

package soft

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// stamp fills b with bytes that tell where they belong.
func stamp(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}

// TestSendSizes sends every size around the limits of an entry and of the bounce
// area, while the receiver sleeps and while it polls.
func TestSendSizes(t *testing.T) {
	const area = 1 << shm.BounceShift
	c := defaults()
	c.memory = 4 * area
	for _, sleeps := range []bool{true, false} {
		t.Run(fmt.Sprint("sleeps=", sleeps), func(t *testing.T) {
			a, b := newConnected(t, c)
			for i, n := range []int{0, 1, 4, 5, 64, 4096, area - 1, area, area + 1, 3*area + 17, 3, area / 2, area/2 + 9, 0} {
				stamp(a.bytes(0, n), i)
				clear(b.mem.Bytes())
				third := n / 3
				_, err := b.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGList: []verbs.SGE{b.sge(0, third), b.sge(third, 0), b.sge(third, n-third)}}})
				require.NoError(t, err)
				post := func() {
					half := n / 2
					a.post(verbs.SendWR{Opcode: verbs.WRSendWithImm, Flags: verbs.SendSignaled, WRID: uint64(i), ImmData: uint32(n),
						SGList: []verbs.SGE{a.sge(0, half), a.sge(half, n-half)}})
				}
				if sleeps {
					got := make(chan verbs.WC)
					go func() { got <- b.next() }()
					post()
					require.EqualValues(t, n, (<-got).ByteLen)
				} else {
					post()
					var wc [1]verbs.WC
					eventually(t, func() bool { k, _ := b.cq.Poll(wc[:]); return k == 1 })
					require.Equal(t, verbs.WC{WRID: uint64(i), Opcode: verbs.WCRecv, Flags: verbs.WCWithImm, ByteLen: uint32(n), ImmData: uint32(n),
						QPN: b.qp.QPN(), SrcQP: a.qp.QPN()}, wc[0])
				}
				require.Equal(t, verbs.WCSuccess, a.next().Status)
				require.True(t, bytes.Equal(a.bytes(0, n), b.bytes(0, n)), "%d bytes", n)
			}
		})
	}
}

// TestSendInline sends inline data that has to wait: it is copied at the post.
func TestSendInline(t *testing.T) {
	a, b := newConnected(t, defaults())
	data := make([]byte, 300<<10)
	stamp(data, 1)
	want := bytes.Clone(data)
	a.post(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: data})
	clear(data)
	_, err := b.qp.PostRecv([]verbs.RecvWR{{SGList: []verbs.SGE{b.sge(0, len(data))}}})
	require.NoError(t, err)
	require.EqualValues(t, len(data), b.next().ByteLen)
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	require.True(t, bytes.Equal(want, b.bytes(0, len(data))))
}

// TestSendFullBounce posts more than the bounce area holds to a peer that does
// nothing: its link takes the messages, and all of them complete.
func TestSendFullBounce(t *testing.T) {
	a, b := newConnected(t, defaults())
	const n, size = 32, 30 << 10
	for i := range n {
		_, err := b.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGList: []verbs.SGE{b.sge(i*size, size)}}})
		require.NoError(t, err)
		stamp(a.bytes(i*size, size), i)
		a.post(verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.sge(i*size, size)}})
	}
	for i := range n {
		require.Equal(t, verbs.WC{WRID: uint64(i), Opcode: verbs.WCSend, QPN: a.qp.QPN()}, a.next())
	}
	for i := range n {
		require.EqualValues(t, i, b.next().WRID)
	}
	require.True(t, bytes.Equal(a.bytes(0, n*size), b.bytes(0, n*size)))
}

// TestSendPartThenHangup: of a message that breaks off the receive is flushed.
func TestSendPartThenHangup(t *testing.T) {
	c := defaults()
	c.memory = 4 << 20
	a, b := newConnected(t, c)
	_, err := b.qp.PostRecv([]verbs.RecvWR{{WRID: 7, SGList: []verbs.SGE{b.sge(0, 4<<20)}}})
	require.NoError(t, err)
	// The bounce area is there, and a is in the middle of a message that it
	// cannot go on with.
	eventually(t, func() bool {
		a.qp.mu.Lock()
		defer a.qp.mu.Unlock()
		p := a.qp.peer
		if !p.bounced {
			if !p.asked {
				p.asked = true
				a.qp.link.tell(msgBounce)
			}
			return false
		}
		p.out.Filled = 1000
		*p.out.Long(shm.OffFilled) = 1000
		p.out.Publish(shm.EntrySend, 0, 2000)
		return true
	})
	b.none()
	a.qp.disconnect()
	<-b.gone
	wc := b.next()
	require.EqualValues(t, 7, wc.WRID)
	require.Equal(t, verbs.WCWRFlushErr, wc.Status)
	b.none()
}

// TestKickAgain: a receiver that is looking already may have looked too early, and
// is asked once more.
func TestKickAgain(t *testing.T) {
	a, b := newConnected(t, defaults())
	b.qp.mu.Lock() // it does not answer meanwhile
	a.qp.mu.Lock()
	p := a.qp.peer
	p.kicked = true // as if under way
	a.qp.kick(p)
	a.qp.mu.Unlock()
	a.qp.gotKicked(linkOf(a))
	a.qp.mu.Lock()
	require.True(t, p.kicked)
	require.False(t, p.again)
	a.qp.mu.Unlock()
	b.qp.mu.Unlock()
	eventually(t, func() bool {
		a.qp.mu.Lock()
		defer a.qp.mu.Unlock()
		return !p.kicked
	})
}
