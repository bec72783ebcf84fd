package verbstest

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// refused requires that the device says it lacks an operation, and that the QP
// goes on as if nothing had been posted.
func (e *env) refused(p *Pair, wr verbs.SendWR) {
	e.t.Helper()
	n, err := p.A.QP.PostSend([]verbs.SendWR{wr})
	require.ErrorIs(e.t, err, verbs.ErrNotSupported)
	require.Zero(e.t, n)
	exchange(e.t, p)
}

func testOpcodes(t *testing.T, s *suite) {
	s.run(t, "SEND", func(e *env) {
		p := e.pair(PairConfig{})
		fill(p.A.Mem[:300], 1)
		p.B.Recv(21, 500, 400)
		p.A.Post(sendWR(11, p.A.SGL(0, 300)))
		wc := p.B.ReceivedOK(21, verbs.WCRecv)
		assert.EqualValues(e.t, 300, wc.ByteLen)
		assert.Zero(e.t, wc.Flags)
		sameBytes(e.t, p.A.Mem[:300], p.B.Mem[500:800])
		sameBytes(e.t, make([]byte, 100), p.B.Mem[800:900], "past the message")
		p.A.SentOK(11, verbs.WCSend)
	})

	s.run(t, "SEND_WITH_IMM", func(e *env) {
		p := e.pair(PairConfig{})
		fill(p.A.Mem[:300], 1)
		wr := sendWR(11, p.A.SGL(0, 300))
		wr.Opcode, wr.ImmData = verbs.WRSendWithImm, 0xdeadbeef
		if !e.can(verbs.CapWriteImm) {
			e.refused(p, wr)
			return
		}
		p.B.Recv(21, 500, 400)
		p.A.Post(wr)
		wc := p.B.ReceivedOK(21, verbs.WCRecv)
		assert.EqualValues(e.t, 300, wc.ByteLen)
		assert.Equal(e.t, verbs.WCWithImm, wc.Flags)
		assert.EqualValues(e.t, 0xdeadbeef, wc.ImmData)
		sameBytes(e.t, p.A.Mem[:300], p.B.Mem[500:800])
		p.A.SentOK(11, verbs.WCSend)
	})

	s.run(t, "RDMA_WRITE", func(e *env) {
		p := e.pair(PairConfig{})
		fill(p.A.Mem[:300], 1)
		p.B.Recv(21, 0, 64)
		p.A.Post(writeWR(11, p.A.SGL(0, 300), p.B, 501))
		p.A.SentOK(11, verbs.WCRDMAWrite)
		sameBytes(e.t, p.A.Mem[:300], p.B.Mem[501:801])
		sameBytes(e.t, make([]byte, 501), p.B.Mem[:501])
		sameBytes(e.t, make([]byte, 100), p.B.Mem[801:901])
		e.quiet(p.B.RecvCQ) // it takes no receive and the peer learns nothing
	})

	s.run(t, "RDMA_WRITE_WITH_IMM", func(e *env) {
		p := e.pair(PairConfig{})
		fill(p.A.Mem[:300], 1)
		wr := writeImmWR(11, p.A.SGL(0, 300), p.B, 501, 0x01020304)
		if !e.can(verbs.CapWriteImm) {
			e.refused(p, wr)
			return
		}
		p.B.Recv(21, 4000, 10) // its buffer is neither used nor measured
		p.B.PostRecv(verbs.RecvWR{WRID: 22})
		p.A.Post(wr, writeImmWR(12, nil, p.B, 0, 0))
		wc := p.B.ReceivedOK(21, verbs.WCRecvRDMAWithImm)
		assert.EqualValues(e.t, 300, wc.ByteLen)
		assert.Equal(e.t, verbs.WCWithImm, wc.Flags)
		assert.EqualValues(e.t, 0x01020304, wc.ImmData)
		sameBytes(e.t, p.A.Mem[:300], p.B.Mem[501:801])
		sameBytes(e.t, make([]byte, 10), p.B.Mem[4000:4010])
		wc = p.B.ReceivedOK(22, verbs.WCRecvRDMAWithImm)
		assert.Zero(e.t, wc.ByteLen)
		assert.Equal(e.t, verbs.WCWithImm, wc.Flags)
		assert.Zero(e.t, wc.ImmData)
		p.A.SentOK(11, verbs.WCRDMAWrite)
		p.A.SentOK(12, verbs.WCRDMAWrite)
	})

	s.run(t, "RDMA_READ", func(e *env) {
		p := e.pair(PairConfig{})
		fill(p.B.Mem[:1000], 1)
		p.A.Post(readWR(11, p.A.SGL(100, 300), p.B, 7))
		wc := p.A.SentOK(11, verbs.WCRDMARead)
		assert.EqualValues(e.t, 300, wc.ByteLen)
		sameBytes(e.t, p.B.Mem[7:307], p.A.Mem[100:400])
		sameBytes(e.t, make([]byte, 100), p.A.Mem[:100])
		sameBytes(e.t, make([]byte, 100), p.A.Mem[400:500])
		e.quiet(p.B.RecvCQ)
	})

	s.run(t, "ReadAfterWrite", func(e *env) {
		p := e.pair(PairConfig{})
		for i := range 50 {
			fill(p.A.Mem[:4096], i)
			p.A.Post(unsignaled(writeWR(1, p.A.SGL(0, 4096), p.B, 0)), readWR(uint64(i), p.A.SGL(8192, 4096), p.B, 0))
			p.A.SentOK(uint64(i), verbs.WCRDMARead)
			sameBytes(e.t, p.A.Mem[:4096], p.A.Mem[8192:8192+4096])
		}
	})

	s.run(t, "ATOMIC_WRITE", func(e *env) {
		p := e.pair(PairConfig{})
		wr := oneSided(verbs.WRAtomicWrite, 11, nil, p.B, 64)
		wr.Swap = 0x1122334455667788
		if !e.can(verbs.CapAtomicWrite) {
			e.refused(p, wr)
			return
		}
		p.A.Post(wr)
		p.A.SentOK(11, verbs.WCAtomicWrite)
		assert.EqualValues(e.t, 0x1122334455667788, binary.NativeEndian.Uint64(p.B.Mem[64:]))
		sameBytes(e.t, make([]byte, 64), p.B.Mem[:64])
		sameBytes(e.t, make([]byte, 64), p.B.Mem[72:136])
	})

	s.run(t, "Unknown", func(e *env) {
		p := e.pair(PairConfig{})
		for _, op := range []verbs.WROpcode{verbs.WRBindMW + 1, 255} {
			n, err := p.A.QP.PostSend([]verbs.SendWR{oneSided(op, 1, p.A.SGL(0, 8), p.B, 0)})
			require.Error(e.t, err)
			require.Zero(e.t, n)
		}
		exchange(e.t, p)
	})

	s.needs(t, verbs.CapSynchronous, "Synchronous", func(e *env) {
		// Once the peer is known a post has executed when it returns.
		p := e.pair(PairConfig{})
		p.A.Post(writeWR(1, p.A.SGL(0, 64), p.B, 0))
		p.A.SentOK(1, verbs.WCRDMAWrite)
		for i := range 50 {
			fill(p.A.Mem[:64], i)
			p.A.Post(unsignaled(writeWR(2, p.A.SGL(0, 64), p.B, 0)))
			sameBytes(e.t, p.A.Mem[:64], p.B.Mem[:64])
		}
	})
}
