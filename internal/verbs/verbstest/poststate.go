package verbstest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testPostState posts in every state: sends are taken from RTS on, receives from
// INIT on, and what is posted in ERR is flushed.
func testPostState(t *testing.T, s *suite) {
	for _, state := range qpStates {
		s.run(t, fmt.Sprintf("Send-%v", state), func(e *env) {
			e.byHandFrom(state)
			if state == verbs.QPErr && e.cfg.has(DeviatesErrPosts) {
				e.t.Skip("what is posted in ERR does not complete on this device")
			}
			b := e.end(EndConfig{})
			b.Init()
			a := e.end(EndConfig{})
			e.reach(a, b.Address(), state)
			n, err := a.QP.PostSend([]verbs.SendWR{sendWR(5, a.SGL(0, 8))})
			switch state {
			case verbs.QPReset, verbs.QPInit, verbs.QPRTR:
				require.ErrorIs(e.t, err, verbs.ErrState)
				require.Zero(e.t, n)
			case verbs.QPErr:
				require.NoError(e.t, err)
				requireFlushed(e.t, a.Sent(1), 5)
			default:
				require.NoError(e.t, err)
				require.Equal(e.t, 1, n)
			}
		})
		s.run(t, fmt.Sprintf("Recv-%v", state), func(e *env) {
			e.byHandFrom(state)
			if state == verbs.QPErr && e.cfg.has(DeviatesErrPosts) {
				e.t.Skip("what is posted in ERR does not complete on this device")
			}
			b := e.end(EndConfig{})
			b.Init()
			a := e.end(EndConfig{})
			e.reach(a, b.Address(), state)
			n, err := a.QP.PostRecv([]verbs.RecvWR{{WRID: 6, SGList: a.SGL(0, 8)}})
			switch state {
			case verbs.QPReset:
				require.ErrorIs(e.t, err, verbs.ErrState)
				require.Zero(e.t, n)
			case verbs.QPErr:
				require.NoError(e.t, err)
				requireFlushed(e.t, a.Received(1), 6)
			default:
				require.NoError(e.t, err)
				require.Equal(e.t, 1, n)
			}
		})
	}

	s.run(t, "ReceiveInRTR", func(e *env) {
		// A QP in RTR takes messages; it need not be able to send.
		e.byHand()
		a, b := e.end(EndConfig{}), e.end(EndConfig{})
		b.Init()
		b.Recv(1, 0, 64)
		rtr := b.At.RTRAttr(a.Address(), b.Conn)
		require.NoError(e.t, b.QP.Modify(&rtr, verbs.RCMaskRTR))
		a.Connect(b.Address())
		fill(a.Mem[:64], 9)
		a.Post(sendWR(2, a.SGL(0, 64)))
		b.ReceivedOK(1, verbs.WCRecv)
		a.SentOK(2, verbs.WCSend)
		sameBytes(e.t, a.Mem[:64], b.Mem[:64])
	})

	s.run(t, "SendBeforePeerIsUp", func(e *env) {
		// The transport's retries bridge the time until the peer is in RTR.
		e.byHand()
		a, b := e.end(EndConfig{}), e.end(EndConfig{})
		a.Connect(b.Address())
		fill(a.Mem[:64], 3)
		a.Post(sendWR(1, a.SGL(0, 64)), sendWR(2, a.SGL(0, 1)))
		b.Init()
		b.Recv(11, 0, 64)
		b.Recv(12, 100, 64)
		b.Connect(a.Address())
		b.ReceivedOK(11, verbs.WCRecv)
		b.ReceivedOK(12, verbs.WCRecv)
		a.SentOK(1, verbs.WCSend)
		a.SentOK(2, verbs.WCSend)
		sameBytes(e.t, a.Mem[:64], b.Mem[:64])
	})
}

// requireFlushed requires that every completion is a flush, in this order.
func requireFlushed(t require.TestingT, wcs []verbs.WC, ids ...uint64) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	require.Len(t, wcs, len(ids))
	for i, wc := range wcs {
		require.Equal(t, verbs.WCWRFlushErr, wc.Status, "status %v of request %d", wc.Status, wc.WRID)
		require.Equal(t, ids[i], wc.WRID, "flush order: %+v", wcs)
	}
}
