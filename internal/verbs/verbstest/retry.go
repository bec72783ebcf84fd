package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testRetry: requests to a peer that does not answer fail when the transport's
// retries are used up.
func testRetry(t *testing.T, s *suite) {
	short := DefaultConnAttr()
	short.Timeout, short.RetryCnt = 10, 2 // 4.2 ms, three times
	// Long enough for a peer that is there to answer on a busy machine.
	enough := DefaultConnAttr()
	enough.Timeout, enough.RetryCnt = 16, 3 // 0.27 s, four times

	fails := func(e *env, a *End) {
		e.t.Helper()
		a.Recv(300, 0, 8)
		a.Post(sendWR(1, a.SGL(0, 8)), unsignaled(sendWR(2, nil)), sendWR(3, nil))
		wcs := a.Sent(3)
		require.Equal(e.t, verbs.WCRetryExcErr, wcs[0].Status, "status %v", wcs[0].Status)
		require.EqualValues(e.t, 1, wcs[0].WRID)
		requireFlushed(e.t, wcs[1:], 2, 3)
		requireFlushed(e.t, a.Received(1), 300)
		e.inState(a.QP, verbs.QPErr)
	}

	s.run(t, "NoSuchQP", func(e *env) {
		e.byHand()
		gone := e.end(EndConfig{MemSize: 4096})
		address := gone.Address()
		require.NoError(e.t, gone.QP.Close())
		a := e.end(EndConfig{Conn: &short})
		a.Connect(address)
		fails(e, a)
	})

	s.run(t, "PeerInReset", func(e *env) {
		e.byHand()
		b := e.end(EndConfig{MemSize: 4096})
		a := e.end(EndConfig{Conn: &short})
		a.Connect(b.Address())
		fails(e, a)
	})

	s.run(t, "PeerNeverConnects", func(e *env) {
		e.byHand()
		b := e.end(EndConfig{MemSize: 4096})
		b.Init()
		a := e.end(EndConfig{Conn: &short})
		a.Connect(b.Address())
		fails(e, a)
	})

	s.run(t, "PeerBelongsToAnother", func(e *env) {
		e.byHand()
		// B is connected to C. A names B as its peer and gets nothing out of it.
		p := e.pair(PairConfig{})
		a := e.end(EndConfig{Conn: &short})
		p.B.Recv(1, 0, 64)
		a.Connect(p.B.Address())
		fails(e, a)
		p.A.Post(sendWR(2, p.A.SGL(0, 64)))
		p.B.ReceivedOK(1, verbs.WCRecv)
		p.A.SentOK(2, verbs.WCSend)
	})

	for name, leave := range map[string]func(e *env, b *End){
		"PeerCloses": func(e *env, b *End) { require.NoError(e.t, b.QP.Close()) },
		"PeerInErr": func(e *env, b *End) {
			require.NoError(e.t, b.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
		},
		"PeerResets": func(e *env, b *End) {
			require.NoError(e.t, b.QP.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
		},
	} {
		s.run(t, name, func(e *env) {
			// A connection that worked loses its peer. A device that notices by
			// itself may flush what it has not tried.
			if name == "PeerResets" {
				e.byHand()
			}
			p := e.pair(PairConfig{A: EndConfig{Conn: &enough}})
			exchange(e.t, p)
			before := append([]byte(nil), p.B.Mem[:64]...)
			p.A.Recv(300, 0, 8)
			leave(e, p.B)
			fill(p.A.Mem[:64], 77)
			if e.cfg.has(DeviatesErrPosts) { // it learns of it in any case
				requireFlushed(e.t, p.A.Received(1), 300)
				e.inState(p.A.QP, verbs.QPErr)
				return
			}
			p.A.Post(writeWR(1, p.A.SGL(0, 64), p.B, 0), sendWR(2, p.A.SGL(0, 8)))
			wcs := p.A.Sent(2)
			require.Contains(e.t, []verbs.WCStatus{verbs.WCRetryExcErr, verbs.WCWRFlushErr}, wcs[0].Status, "status %v", wcs[0].Status)
			require.EqualValues(e.t, 1, wcs[0].WRID)
			requireFlushed(e.t, wcs[1:], 2)
			requireFlushed(e.t, p.A.Received(1), 300)
			e.inState(p.A.QP, verbs.QPErr)
			sameBytes(e.t, before, p.B.Mem[:64])
		})
	}
}
