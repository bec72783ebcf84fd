package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// localStatus is the status of a local protection error.
func (e *env) localStatus() []verbs.WCStatus {
	if e.cfg.has(DeviatesLocalStatus) {
		return []verbs.WCStatus{verbs.WCLocProtErr, verbs.WCLocQPOpErr, verbs.WCWRFlushErr, verbs.WCGeneralErr}
	}
	return []verbs.WCStatus{verbs.WCLocProtErr}
}

// badSGEs are SGEs of an End that name memory wrongly. Each has 64 bytes.
var badSGEs = map[string]func(e *env, x *End) verbs.SGE{
	"wrong lkey": func(_ *env, x *End) verbs.SGE {
		s := x.SGE(4096, 64)
		s.LKey ^= 0x5a5a5a00
		return s
	},
	"before the start": func(e *env, x *End) verbs.SGE {
		mr := e.part(x, 4096, everything)
		return verbs.SGE{Addr: mr.Addr() - 1, Length: 64, LKey: mr.LKey()}
	},
	"past the end": func(e *env, x *End) verbs.SGE {
		mr := e.part(x, 4096, everything)
		return verbs.SGE{Addr: mr.Addr() + 4096 - 63, Length: 64, LKey: mr.LKey()}
	},
	"address overflow": func(_ *env, x *End) verbs.SGE {
		return verbs.SGE{Addr: ^uint64(0) - 31, Length: 64, LKey: x.MR.LKey()}
	},
	"address zero": func(_ *env, x *End) verbs.SGE {
		return verbs.SGE{Addr: 0, Length: 64, LKey: x.MR.LKey()}
	},
	"MR of another PD": func(e *env, x *End) verbs.SGE {
		mr := e.mr(e.pd(), x.Mem[4096:8192], everything)
		return verbs.SGE{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}
	},
	"deregistered MR": func(e *env, x *End) verbs.SGE {
		mr := e.part(x, 4096, everything)
		require.NoError(e.t, mr.Close())
		return verbs.SGE{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}
	},
}

func testLocalProtection(t *testing.T, s *suite) {
	readOnly := func(e *env, x *End) verbs.SGE {
		mr := e.part(x, 4096, verbs.AccessRemoteRead)
		return verbs.SGE{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}
	}
	for name, bad := range badSGEs {
		s.run(t, "Send/"+name, func(e *env) {
			e.violateLocally(bad, func(p *Pair, sgl []verbs.SGE) verbs.SendWR { return sendWR(100, sgl) })
		})
		s.run(t, "Write/"+name, func(e *env) {
			e.violateLocally(bad, func(p *Pair, sgl []verbs.SGE) verbs.SendWR { return writeWR(100, sgl, p.B, 0) })
		})
		s.run(t, "Read/"+name, func(e *env) {
			e.violateLocally(bad, func(p *Pair, sgl []verbs.SGE) verbs.SendWR { return readWR(100, sgl, p.B, 0) })
		})
		s.run(t, "Recv/"+name, func(e *env) { e.violateInReceive(bad) })
	}
	s.run(t, "Read/no local write", func(e *env) {
		e.violateLocally(readOnly, func(p *Pair, sgl []verbs.SGE) verbs.SendWR { return readWR(100, sgl, p.B, 0) })
	})
	s.needs(t, verbs.CapAtomics, "FetchAdd/no local write", func(e *env) {
		e.violateLocally(func(e *env, x *End) verbs.SGE {
			sge := readOnly(e, x)
			sge.Length = 8
			return sge
		}, func(p *Pair, sgl []verbs.SGE) verbs.SendWR {
			return oneSided(verbs.WRAtomicFetchAndAdd, 100, sgl, p.B, 0)
		})
	})
	s.run(t, "Recv/no local write", func(e *env) { e.violateInReceive(readOnly) })
	s.run(t, "Recv/deregistered after the post", func(e *env) {
		// Memory is looked at when the message comes, not when the receive is posted.
		p := e.pair(PairConfig{})
		mr := e.part(p.B, 4096, everything)
		p.B.PostRecv(verbs.RecvWR{WRID: 200, SGList: []verbs.SGE{{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}}})
		require.NoError(e.t, mr.Close())
		fill(p.A.Mem[:64], 1)
		p.A.Post(sendWR(100, p.A.SGL(0, 64)))
		require.Contains(e.t, e.localStatus(), p.B.Received(1)[0].Status)
		p.A.Sent(1)
		e.inState(p.B.QP, verbs.QPErr)
		sameBytes(e.t, make([]byte, 64), p.B.Mem[4096:4160])
	})
	s.run(t, "SecondSGE", func(e *env) {
		if e.attr.MaxSGE < 2 {
			e.t.Skip("MaxSGE is 1")
		}
		e.violateLocally(badSGEs["wrong lkey"], func(p *Pair, sgl []verbs.SGE) verbs.SendWR {
			return sendWR(100, []verbs.SGE{p.A.SGE(0, 64), sgl[0]})
		})
	})
}

// violateLocally posts a request whose memory is not the requester's to use:
// LOC_PROT_ERR, and the rest is flushed. The post itself takes it.
func (e *env) violateLocally(bad func(*env, *End) verbs.SGE, request func(*Pair, []verbs.SGE) verbs.SendWR) {
	e.t.Helper()
	p := e.pair(PairConfig{})
	fill(p.A.Mem, 1)
	fill(p.B.Mem, 2)
	wr := request(p, []verbs.SGE{bad(e, p.A)})
	memA, memB := append([]byte(nil), p.A.Mem...), append([]byte(nil), p.B.Mem...)
	p.B.Recv(200, 8192, 256)
	p.A.Recv(300, 0, 64)
	wrs, others := []verbs.SendWR{wr, unsignaled(sendWR(101, p.A.SGL(0, 8))), sendWR(102, nil)}, []uint64{101, 102}
	if wr.Opcode == verbs.WRRDMARead && e.cfg.has(DeviatesReadOrder) {
		wrs, others = wrs[:1], nil // others may have completed before
	}
	p.A.Post(wrs...)
	wcs := p.A.Sent(len(wrs))
	require.Contains(e.t, e.localStatus(), wcs[0].Status, "status %v", wcs[0].Status)
	require.EqualValues(e.t, 100, wcs[0].WRID)
	requireFlushed(e.t, wcs[1:], others...)
	requireFlushed(e.t, p.A.Received(1), 300)
	e.inState(p.A.QP, verbs.QPErr)
	sameBytes(e.t, memA, p.A.Mem)
	if wr.Opcode == verbs.WRRDMARead || wr.Opcode == verbs.WRAtomicFetchAndAdd {
		return // the responder may have answered before the result could not be placed
	}
	sameBytes(e.t, memB, p.B.Mem)
}

// violateInReceive sends into a receive whose memory is not the responder's to use:
// LOC_PROT_ERR there, REM_OP_ERR at the sender, both QPs in ERR.
func (e *env) violateInReceive(bad func(*env, *End) verbs.SGE) {
	e.t.Helper()
	p := e.pair(PairConfig{})
	fill(p.A.Mem, 1)
	fill(p.B.Mem, 2)
	memB := append([]byte(nil), p.B.Mem...)
	p.B.PostRecv(verbs.RecvWR{WRID: 200, SGList: []verbs.SGE{bad(e, p.B)}})
	p.B.Recv(201, 0, 64)
	p.A.Post(sendWR(100, p.A.SGL(0, 64)), sendWR(101, p.A.SGL(0, 64)))
	wcs := p.B.Received(2)
	require.Contains(e.t, e.localStatus(), wcs[0].Status, "status %v", wcs[0].Status)
	require.EqualValues(e.t, 200, wcs[0].WRID)
	requireFlushed(e.t, wcs[1:], 201)
	wcs = p.A.Sent(2)
	if !e.cfg.has(DeviatesEarlySuccess) {
		require.Equal(e.t, verbs.WCRemOpErr, wcs[0].Status, "status %v", wcs[0].Status)
		requireFlushed(e.t, wcs[1:], 101)
	}
	e.inState(p.A.QP, verbs.QPErr)
	e.inState(p.B.QP, verbs.QPErr)
	sameBytes(e.t, memB, p.B.Mem)
}
