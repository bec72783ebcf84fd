package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testRNR: a message that finds no receive is retried as the QPs say.
func testRNR(t *testing.T, s *suite) {
	s.run(t, "Waits", func(e *env) {
		p := e.pair(PairConfig{})
		p.Settle()
		fill(p.A.Mem[:200], 1)
		p.A.Post(sendWR(1, p.A.SGL(0, 100)), sendWR(2, p.A.SGL(100, 100)))
		e.quiet(p.A.SendCQ)
		p.B.Recv(11, 0, 100)
		p.B.ReceivedOK(11, verbs.WCRecv)
		p.A.SentOK(1, verbs.WCSend)
		e.quiet(p.A.SendCQ)
		p.B.Recv(12, 100, 100)
		p.B.ReceivedOK(12, verbs.WCRecv)
		p.A.SentOK(2, verbs.WCSend)
		sameBytes(e.t, p.A.Mem[:200], p.B.Mem[:200])
	})

	s.needs(t, verbs.CapWriteImm, "WriteWithImmWaits", func(e *env) {
		p := e.pair(PairConfig{})
		p.Settle()
		fill(p.A.Mem[:200], 1)
		p.A.Post(writeImmWR(1, p.A.SGL(0, 200), p.B, 500, 42))
		e.quiet(p.A.SendCQ)
		p.B.PostRecv(verbs.RecvWR{WRID: 11})
		require.EqualValues(e.t, 42, p.B.ReceivedOK(11, verbs.WCRecvRDMAWithImm).ImmData)
		p.A.SentOK(1, verbs.WCRDMAWrite)
		sameBytes(e.t, p.A.Mem[:200], p.B.Mem[500:700])
	})

	s.run(t, "NothingOvertakes", func(e *env) {
		// What was posted behind a request that waits waits, too.
		p := e.pair(PairConfig{})
		p.Settle()
		p.A.Post(writeWR(9, p.A.SGL(0, 8), p.B, 3000)) // now the key has been used, too
		p.A.SentOK(9, verbs.WCRDMAWrite)
		fill(p.A.Mem[:200], 1)
		fill(p.B.Mem[1000:1100], 2)
		p.A.Post(
			sendWR(1, p.A.SGL(0, 100)),
			writeWR(2, p.A.SGL(100, 100), p.B, 500),
			readWR(3, p.A.SGL(4096, 100), p.B, 1000),
		)
		e.quiet(p.A.SendCQ)
		sameBytes(e.t, make([]byte, 100), p.B.Mem[500:600])
		sameBytes(e.t, make([]byte, 100), p.A.Mem[4096:4196])
		p.B.Recv(11, 0, 100)
		p.A.SentOK(1, verbs.WCSend)
		p.A.SentOK(2, verbs.WCRDMAWrite)
		p.A.SentOK(3, verbs.WCRDMARead)
		p.B.ReceivedOK(11, verbs.WCRecv)
		sameBytes(e.t, p.A.Mem[100:200], p.B.Mem[500:600])
		sameBytes(e.t, p.B.Mem[1000:1100], p.A.Mem[4096:4196])
	})

	s.run(t, "PlainWriteNeedsNone", func(e *env) {
		conn := DefaultConnAttr()
		conn.RNRRetry = 0
		p := e.pair(PairConfig{A: EndConfig{Conn: &conn}})
		p.A.Post(writeWR(1, p.A.SGL(0, 100), p.B, 0), readWR(2, p.A.SGL(0, 100), p.B, 0))
		p.A.SentOK(1, verbs.WCRDMAWrite)
		p.A.SentOK(2, verbs.WCRDMARead)
	})

	for _, c := range []struct {
		name           string
		retries, timer uint8
	}{
		{"NoRetry", 0, 1},
		{"FewRetries", 2, 1},
		{"SlowRetries", 1, 16}, // 2.56 ms each
	} {
		s.run(t, c.name, func(e *env) {
			// The retries are those of the requester, the time between them is
			// the responder's.
			a, b := DefaultConnAttr(), DefaultConnAttr()
			a.RNRRetry, b.MinRNRTimer = c.retries, c.timer
			p := e.pair(PairConfig{A: EndConfig{Conn: &a}, B: EndConfig{Conn: &b}})
			// A receive that is there is used before any retry is counted.
			p.B.Recv(5, 4096, 100)
			p.A.Post(sendWR(4, p.A.SGL(0, 100)))
			p.A.SentOK(4, verbs.WCSend)
			p.A.Post(sendWR(1, p.A.SGL(0, 100)), unsignaled(writeWR(2, p.A.SGL(0, 8), p.B, 0)), sendWR(3, nil))
			wcs := p.A.Sent(3)
			require.Equal(e.t, verbs.WCRNRRetryExcErr, wcs[0].Status, "status %v", wcs[0].Status)
			require.EqualValues(e.t, 1, wcs[0].WRID)
			requireFlushed(e.t, wcs[1:], 2, 3)
			e.inState(p.A.QP, verbs.QPErr)
			sameBytes(e.t, make([]byte, 8), p.B.Mem[:8])
		})
	}

	s.run(t, "Repeatedly", func(e *env) {
		// The receiver is always a little late, for many messages.
		p := e.pair(PairConfig{})
		for i := range 100 {
			fill(p.A.Mem[:64], i)
			p.A.Post(sendWR(uint64(i), p.A.SGL(0, 64)))
			p.B.Recv(uint64(i), 0, 64)
			p.B.ReceivedOK(uint64(i), verbs.WCRecv)
			p.A.SentOK(uint64(i), verbs.WCSend)
			sameBytes(e.t, p.A.Mem[:64], p.B.Mem[:64])
		}
	})
}
