package verbstest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testSGE(t *testing.T, s *suite) {
	// The message "0..n" in pieces of these sizes.
	gather := func(x *End) ([]verbs.SGE, []byte) {
		pieces := [][2]int{{10, 3}, {5000, 0}, {3000, 4099}, {20000, 1}}
		var list []verbs.SGE
		var data []byte
		for _, p := range pieces {
			list = append(list, x.SGE(p[0], p[1]))
			data = append(data, x.Mem[p[0]:p[0]+p[1]]...)
		}
		return list, data
	}
	four := func(e *env) {
		e.t.Helper()
		if e.attr.MaxSGE < 4 {
			e.t.Skipf("MaxSGE is %d", e.attr.MaxSGE)
		}
	}

	s.run(t, "GatherWrite", func(e *env) {
		four(e)
		p := e.pair(PairConfig{})
		fill(p.A.Mem, 1)
		list, data := gather(p.A)
		p.A.Post(writeWR(1, list, p.B, 33))
		p.A.SentOK(1, verbs.WCRDMAWrite)
		sameBytes(e.t, data, p.B.Mem[33:33+len(data)])
		sameBytes(e.t, make([]byte, 33), p.B.Mem[:33])
		sameBytes(e.t, make([]byte, 33), p.B.Mem[33+len(data):66+len(data)])
	})

	s.run(t, "ScatterRead", func(e *env) {
		four(e)
		p := e.pair(PairConfig{})
		fill(p.B.Mem, 1)
		list, data := gather(p.A)
		if len(list) > e.attr.MaxSGERD {
			n, err := p.A.QP.PostSend([]verbs.SendWR{readWR(1, list, p.B, 33)})
			require.ErrorIs(e.t, err, verbs.ErrInvalid)
			require.Zero(e.t, n)
			e.t.Skipf("MaxSGERD is %d", e.attr.MaxSGERD)
		}
		p.A.Post(readWR(1, list, p.B, 33))
		wc := p.A.SentOK(1, verbs.WCRDMARead)
		assert.EqualValues(e.t, len(data), wc.ByteLen)
		_, data = gather(p.A)
		sameBytes(e.t, p.B.Mem[33:33+len(data)], data)
		assert.Zero(e.t, p.A.Mem[9])
		assert.Zero(e.t, p.A.Mem[13])
		assert.Zero(e.t, p.A.Mem[3000+4099])
		assert.Zero(e.t, p.A.Mem[20001])
	})

	s.run(t, "GatherScatterSend", func(e *env) {
		four(e)
		p := e.pair(PairConfig{})
		fill(p.A.Mem, 1)
		list, data := gather(p.A)
		p.B.PostRecv(verbs.RecvWR{WRID: 2, SGList: []verbs.SGE{
			p.B.SGE(100, 1), p.B.SGE(200, 100), p.B.SGE(400, 0), p.B.SGE(1000, 8192),
		}})
		p.A.Post(sendWR(1, list))
		wc := p.B.ReceivedOK(2, verbs.WCRecv)
		assert.EqualValues(e.t, len(data), wc.ByteLen)
		got := append([]byte(nil), p.B.Mem[100:101]...)
		got = append(got, p.B.Mem[200:300]...)
		got = append(got, p.B.Mem[1000:1000+len(data)-101]...)
		sameBytes(e.t, data, got)
		assert.Zero(e.t, p.B.Mem[101])
		assert.Zero(e.t, p.B.Mem[300])
		sameBytes(e.t, make([]byte, 100), p.B.Mem[1000+len(data)-101:][:100], "the rest of the last SGE")
		p.A.SentOK(1, verbs.WCSend)
	})

	s.run(t, "SmallAcrossPages", func(e *env) {
		// A few bytes in two pages, behind requests that keep the device busy: what is small may
		// take another way than what is not.
		p := e.pair(PairConfig{})
		fill(p.A.Mem, 1)
		const page, bulk, small = 4096, 32 << 10, 7
		for round := range 60 {
			clear(p.B.Mem)
			p.B.Recv(2, 60<<10, 64)
			var wrs []verbs.SendWR
			for range 8 {
				wrs = append(wrs, unsignaled(writeWR(1, p.A.SGL(round, bulk-round), p.B, 0)))
			}
			var want []byte
			for i := range small {
				size := 2 + (round*small+i)%47
				from := bulk + (i+1)*page - 1 - round%(size-1)
				wrs = append(wrs, unsignaled(writeWR(1, p.A.SGL(from, size), p.B, bulk+len(want))))
				want = append(want, p.A.Mem[from:from+size]...)
			}
			from := 2*page - 3
			p.A.Post(append(wrs, sendWR(1, p.A.SGL(from, 20)))...)
			p.B.ReceivedOK(2, verbs.WCRecv)
			sameBytes(e.t, p.A.Mem[round:bulk], p.B.Mem[:bulk-round])
			sameBytes(e.t, want, p.B.Mem[bulk:bulk+len(want)])
			sameBytes(e.t, p.A.Mem[from:from+20], p.B.Mem[60<<10:][:20])
			p.A.SentOK(1, verbs.WCSend)
		}
	})

	s.run(t, "SeveralMRs", func(e *env) {
		p := e.pair(PairConfig{})
		other := e.memory(4096)
		fill(other, 5)
		fill(p.A.Mem[:100], 6)
		mr := e.mr(p.A.PD, other, 0)
		p.A.Post(writeWR(1, []verbs.SGE{{Addr: mr.Addr() + 96, Length: 4000, LKey: mr.LKey()}, p.A.SGE(0, 100)}, p.B, 0))
		p.A.SentOK(1, verbs.WCRDMAWrite)
		sameBytes(e.t, append(append([]byte(nil), other[96:]...), p.A.Mem[:100]...), p.B.Mem[:4100])
	})

	s.run(t, "Empty", func(e *env) {
		// No SGE at all is a message of length zero.
		p := e.pair(PairConfig{})
		p.B.PostRecv(verbs.RecvWR{WRID: 2}, verbs.RecvWR{WRID: 3, SGList: p.B.SGL(0, 100)})
		p.A.Post(sendWR(1, nil), sendWR(4, nil), writeWR(5, nil, p.B, 0))
		if !e.cfg.has(DeviatesEmptyRead) {
			p.A.Post(readWR(6, nil, p.B, 0))
		}
		assert.Zero(e.t, p.B.ReceivedOK(2, verbs.WCRecv).ByteLen)
		assert.Zero(e.t, p.B.ReceivedOK(3, verbs.WCRecv).ByteLen)
		p.A.SentOK(1, verbs.WCSend)
		p.A.SentOK(4, verbs.WCSend)
		p.A.SentOK(5, verbs.WCRDMAWrite)
		if !e.cfg.has(DeviatesEmptyRead) {
			p.A.SentOK(6, verbs.WCRDMARead)
		}
	})

	s.run(t, "ZeroLengthNeedsNoKey", func(e *env) {
		// A WRITE or READ of nothing is not checked against any MR (IBA C9-88).
		p := e.pair(PairConfig{})
		w, r := writeWR(1, nil, p.B, 0), readWR(2, nil, p.B, 0)
		for _, wr := range []*verbs.SendWR{&w, &r} {
			wr.RKey ^= 0x5a5a5a00
			wr.RemoteAddr = 1
		}
		p.A.Post(w)
		p.A.SentOK(1, verbs.WCRDMAWrite)
		if e.cfg.has(DeviatesEmptyRead) {
			return
		}
		p.A.Post(r)
		p.A.SentOK(2, verbs.WCRDMARead)
	})

	s.run(t, "TooMany", func(e *env) {
		p := e.pair(PairConfig{})
		list := make([]verbs.SGE, p.A.Cap.MaxSendSGE+1)
		for i := range list {
			list[i] = p.A.SGE(i, 1)
		}
		// The first request is taken, the second is not, the third is not looked at.
		p.B.Recv(9, 0, 64)
		n, err := p.A.QP.PostSend([]verbs.SendWR{sendWR(1, p.A.SGL(0, 1)), sendWR(2, list), sendWR(3, p.A.SGL(0, 1))})
		require.ErrorIs(e.t, err, verbs.ErrInvalid)
		require.Equal(e.t, 1, n)
		p.A.SentOK(1, verbs.WCSend)
		p.B.ReceivedOK(9, verbs.WCRecv)

		list = make([]verbs.SGE, p.B.Cap.MaxRecvSGE+1)
		n, err = p.B.QP.PostRecv([]verbs.RecvWR{{WRID: 1, SGList: p.B.SGL(0, 64)}, {WRID: 2, SGList: list}})
		require.ErrorIs(e.t, err, verbs.ErrInvalid)
		require.Equal(e.t, 1, n)
		p.A.Post(sendWR(4, p.A.SGL(0, 1)))
		p.B.ReceivedOK(1, verbs.WCRecv)
		p.A.SentOK(4, verbs.WCSend)
	})

	s.run(t, "ListIsNotKept", func(e *env) {
		// The list may be used again as soon as the post returns.
		p := e.pair(PairConfig{})
		fill(p.A.Mem, 1)
		sgl, rsgl := p.A.SGL(0, 100), p.B.SGL(0, 100)
		wrs := []verbs.SendWR{sendWR(1, sgl)}
		rwrs := []verbs.RecvWR{{WRID: 2, SGList: rsgl}}
		send := func() {
			_, err := p.A.QP.PostSend(wrs)
			require.NoError(e.t, err)
			sgl[0], wrs[0] = verbs.SGE{}, verbs.SendWR{}
		}
		recv := func() {
			_, err := p.B.QP.PostRecv(rwrs)
			require.NoError(e.t, err)
			rsgl[0], rwrs[0] = verbs.SGE{}, verbs.RecvWR{}
		}
		if e.cfg.has(DeviatesNoRNR) {
			recv()
			send()
		} else {
			send() // before the receive: it has to wait
			recv()
		}
		p.B.ReceivedOK(2, verbs.WCRecv)
		p.A.SentOK(1, verbs.WCSend)
		sameBytes(e.t, p.A.Mem[:100], p.B.Mem[:100])
	})
}
