package verbstest

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testOrder(t *testing.T, s *suite) {
	s.needs(t, verbs.CapWriteImm, "WriteThenWriteWithImm", func(e *env) {
		// What was written before a WRITE_WITH_IMM is there when its receive
		// completes, wherever it went.
		p := e.pair(PairConfig{})
		for i := range 300 {
			fill(p.A.Mem[:8192], i)
			p.B.PostRecv(verbs.RecvWR{WRID: uint64(i)})
			p.A.Post(
				unsignaled(writeWR(1, p.A.SGL(0, 8000), p.B, 0)),
				unsignaled(writeWR(2, p.A.SGL(8000, 100), p.B, 20000)),
				writeImmWR(uint64(i), p.A.SGL(8100, 92), p.B, 30000, uint32(i)),
			)
			wc := p.B.ReceivedOK(uint64(i), verbs.WCRecvRDMAWithImm)
			require.EqualValues(e.t, i, wc.ImmData)
			sameBytes(e.t, p.A.Mem[:8000], p.B.Mem[:8000])
			sameBytes(e.t, p.A.Mem[8000:8100], p.B.Mem[20000:20100])
			sameBytes(e.t, p.A.Mem[8100:8192], p.B.Mem[30000:30092])
			p.A.SentOK(uint64(i), verbs.WCRDMAWrite)
		}
	})

	s.run(t, "WriteThenSend", func(e *env) {
		p := e.pair(PairConfig{})
		for i := range 300 {
			fill(p.A.Mem[:4200], i)
			p.B.Recv(uint64(i), 20000, 100)
			p.A.Post(unsignaled(writeWR(1, p.A.SGL(0, 4100), p.B, 0)), sendWR(2, p.A.SGL(4100, 100)))
			p.B.ReceivedOK(uint64(i), verbs.WCRecv)
			sameBytes(e.t, p.A.Mem[:4100], p.B.Mem[:4100])
			sameBytes(e.t, p.A.Mem[4100:4200], p.B.Mem[20000:20100])
			p.A.SentOK(2, verbs.WCSend)
		}
	})

	s.run(t, "ManyMessages", func(e *env) {
		// Thousands of messages, windows full on both sides: none is lost, doubled
		// or out of order, and the receives are consumed in order.
		p := e.pair(PairConfig{})
		require.NoError(e.t, streamErr(e, p.A, p.B, 5000))
	})

	s.run(t, "BothWays", func(e *env) {
		p := e.pair(PairConfig{})
		errs := make(chan error, 2)
		go func() { errs <- streamErr(e, p.A, p.B, 3000) }()
		go func() { errs <- streamErr(e, p.B, p.A, 3000) }()
		finish(e.t, errs, 2, 4*e.cfg.Timeout)
	})
}

// streamErr sends n numbered messages from one End to the other, which must not
// send meanwhile; it may be called from any goroutine.
func streamErr(e *env, from, to *End, n int) error {
	const slots = 32 // of 64 bytes; messages in the lower half of memory, receives in the upper
	errs := make(chan error, 2)
	var ready atomic.Int64 // messages whose receives have been posted again
	up := len(to.Mem) / 2
	post := func(i int) error {
		_, err := to.QP.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGList: to.SGL(up+i%slots*64, 64)}})
		return err
	}
	for i := range slots {
		if err := post(i); err != nil {
			return err
		}
	}
	go func() {
		for i := range n {
			if i >= slots {
				if err := expect(e, from.SendCQ, uint64(i-slots), verbs.WCSend); err != nil {
					errs <- err
					return
				}
			}
			off, size := i%slots*64, 8+i%57
			binary.NativeEndian.PutUint64(from.Mem[off:], uint64(i))
			if err := e.ahead(i, slots, &ready); err != nil {
				errs <- err
				return
			}
			if _, err := from.QP.PostSend([]verbs.SendWR{sendWR(uint64(i), from.SGL(off, size))}); err != nil {
				errs <- err
				return
			}
		}
		for i := n - min(n, slots); i < n; i++ {
			if err := expect(e, from.SendCQ, uint64(i), verbs.WCSend); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	go func() {
		for i := range n {
			if err := expect(e, to.RecvCQ, uint64(i), verbs.WCRecv); err != nil {
				errs <- err
				return
			}
			if got := word(to.Mem, up+i%slots*64); got != uint64(i) {
				errs <- unexpected("message", got, uint64(i))
				return
			}
			if i+slots < n {
				if err := post(i + slots); err != nil {
					errs <- err
					return
				}
			}
			ready.Add(1)
		}
		errs <- nil
	}()
	first := <-errs
	if second := <-errs; first == nil {
		first = second
	}
	return first
}
