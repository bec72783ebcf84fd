package verbstest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

const noRight = "missing right of the MR"

// A violation is a request that the responder must refuse.
type violation struct {
	name   string
	access verbs.AccessFlags // of the responder's QP if not 0
	wr     func(e *env, p *Pair) verbs.SendWR
	want   verbs.WCStatus
	event  verbs.AsyncEventType
}

// part registers n bytes of the End's memory from its second page on, so that there is mapped memory on
// both sides of the MR.
func (e *env) part(x *End, n int, access verbs.AccessFlags) verbs.MR {
	return e.mr(x.PD, x.Mem[4096:4096+n], access)
}

// at aims a request at an MR.
func at(wr verbs.SendWR, mr verbs.MR, off int) verbs.SendWR {
	wr.RemoteAddr, wr.RKey = mr.Addr()+uint64(int64(off)), mr.RKey()
	return wr
}

// refusals are the ways to name memory wrongly, for requests of n bytes.
func refusals(n int, right verbs.AccessFlags) map[string]func(e *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
	inner := func(e *env, p *Pair) verbs.MR { return e.part(p.B, 4096, everything) }
	by := 1
	if n == 8 {
		by = 8 // atomics are aligned
	}
	return map[string]func(e *env, p *Pair, wr verbs.SendWR) verbs.SendWR{
		"wrong rkey": func(_ *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
			wr = at(wr, p.B.MR, 4096)
			wr.RKey ^= 0x5a5a5a00
			return wr
		},
		"rkey of a neighbour's bits": func(_ *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
			wr = at(wr, p.B.MR, 4096)
			wr.RKey ^= 1
			return wr
		},
		"before the start": func(e *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
			return at(wr, inner(e, p), -by)
		},
		"past the end": func(e *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
			return at(wr, inner(e, p), 4096-n+by)
		},
		"address overflow": func(_ *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
			wr = at(wr, p.B.MR, 0)
			wr.RemoteAddr = -uint64(n - n/2)
			wr.RemoteAddr &^= 7
			return wr
		},
		"address zero": func(_ *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
			wr = at(wr, p.B.MR, 0)
			wr.RemoteAddr = 0
			return wr
		},
		noRight: func(e *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
			return at(wr, e.part(p.B, 4096, everything&^right), 0)
		},
		"MR of another PD": func(e *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
			return at(wr, e.mr(e.pd(), p.B.Mem[4096:8192], everything), 0)
		},
		"deregistered MR": func(e *env, p *Pair, wr verbs.SendWR) verbs.SendWR {
			mr := inner(e, p)
			wr = at(wr, mr, 0)
			// It was of use once, so that a device that keeps keys is caught.
			warm := wr
			warm.WRID = 77
			if warm.Opcode == verbs.WRRDMAWriteWithImm {
				p.B.PostRecv(verbs.RecvWR{WRID: 78})
			}
			p.A.Post(warm)
			wc := p.A.Sent(1)[0]
			require.Equal(e.t, verbs.WCSuccess, wc.Status)
			if warm.Opcode == verbs.WRRDMAWriteWithImm {
				p.B.ReceivedOK(78, verbs.WCRecvRDMAWithImm)
			}
			require.NoError(e.t, mr.Close())
			return wr
		},
	}
}

func testRemoteProtection(t *testing.T, s *suite) {
	for _, op := range []struct {
		op    verbs.WROpcode
		need  verbs.DeviceCaps
		right verbs.AccessFlags
		size  int
	}{
		{verbs.WRRDMAWrite, 0, verbs.AccessRemoteWrite, 64},
		{verbs.WRRDMAWriteWithImm, verbs.CapWriteImm, verbs.AccessRemoteWrite, 64},
		{verbs.WRRDMARead, 0, verbs.AccessRemoteRead, 64},
		{verbs.WRAtomicFetchAndAdd, verbs.CapAtomics, verbs.AccessRemoteAtomic, 8},
		{verbs.WRAtomicCmpAndSwp, verbs.CapAtomics, verbs.AccessRemoteAtomic, 8},
		{verbs.WRAtomicWrite, verbs.CapAtomicWrite, verbs.AccessRemoteWrite, 8},
	} {
		plain := func(p *Pair) verbs.SendWR {
			wr := oneSided(op.op, 100, p.A.SGL(0, op.size), p.B, 4096)
			if op.op == verbs.WRAtomicWrite {
				wr.SGList = nil
			}
			wr.CompareAdd, wr.Swap = 0, 0x0102030405060708
			if op.op == verbs.WRAtomicFetchAndAdd {
				wr.CompareAdd = 1
			}
			return wr
		}
		var all []violation
		for name, spoil := range refusals(op.size, op.right) {
			all = append(all, violation{
				name: name,
				wr:   func(e *env, p *Pair) verbs.SendWR { return spoil(e, p, plain(p)) },
				want: verbs.WCRemAccessErr, event: verbs.EventQPAccessErr,
			})
		}
		// A right that the QP lacks makes the request an invalid one, not a
		// violation of memory (ibv_poll_cq: REM_INV_REQ_ERR).
		all = append(all, violation{
			name: "missing right of the QP", access: everything &^ op.right,
			wr:   func(_ *env, p *Pair) verbs.SendWR { return plain(p) },
			want: verbs.WCRemInvReqErr, event: verbs.EventQPReqErr,
		})
		slices.SortFunc(all, func(a, b violation) int {
			if a.name < b.name {
				return -1
			}
			return 1
		})
		for _, v := range all {
			s.needs(t, op.need, op.op.String()+"/"+v.name, func(e *env) {
				unseen := v.access != 0 || v.name == noRight && op.op == verbs.WRRDMARead
				if unseen && e.cfg.has(DeviatesRights) {
					e.t.Skip("the device does not look at this right")
				}
				// Before both ends know each other, and after.
				early, late := e.violate(v, false), e.violate(v, true)
				e.quiet(early.A.SendCQ, late.A.SendCQ)
			})
		}
	}

	s.run(t, "SecondPiece", func(e *env) {
		// A range that starts well and ends badly changes nothing that lies outside.
		p := e.pair(PairConfig{A: EndConfig{MemSize: 1 << 20}})
		inner := e.part(p.B, 8192, everything)
		fill(p.A.Mem, 1)
		outside := append([]byte(nil), p.B.Mem[4096+8192:]...)
		p.A.Post(at(writeWR(1, p.A.SGL(0, 1<<20), p.B, 0), inner, 0))
		if wc := p.A.Sent(1)[0]; !e.cfg.has(DeviatesEarlySuccess) {
			require.Equal(e.t, verbs.WCRemAccessErr, wc.Status)
		}
		e.inState(p.A.QP, verbs.QPErr)
		e.inState(p.B.QP, verbs.QPErr)
		sameBytes(e.t, outside, p.B.Mem[4096+8192:])
	})
}

// refusedLate is what the specification says of such a failure where a completion does not
// wait for the peer: the connection ends at both sides, with everything that waits flushed, and
// only a READ, which waits for its answer, fails itself. What is behind it does not wait.
func (e *env) refusedLate(p *Pair, op verbs.WROpcode) {
	e.t.Helper()
	e.inState(p.A.QP, verbs.QPErr)
	e.inState(p.B.QP, verbs.QPErr)
	requireFlushed(e.t, p.A.Received(2), 300, 301)
	got := p.B.Received(3)
	if op == verbs.WRRDMARead && got[0].Status == verbs.WCSuccess {
		requireOK(e.t, got[0], p.B.QP, 200, verbs.WCRecv)
		requireFlushed(e.t, got[1:], 201, 202)
	} else {
		requireFlushed(e.t, got, 200, 201, 202)
	}
	wcs, err := pollFor(p.A.SendCQ, 3, e.cfg.Quiet) // all but the READ may have gone well, one without a WC
	require.True(e.t, len(wcs) > 0 || err == nil)
	for _, wc := range wcs {
		if wc.WRID == 100 && op == verbs.WRRDMARead {
			require.NotEqual(e.t, verbs.WCSuccess, wc.Status, "a READ that was refused")
		}
	}
}

// violate posts the request with others behind it and looks at everything that
// the specification says of such a failure. Nothing more may complete.
func (e *env) violate(v violation, settled bool) *Pair {
	e.t.Helper()
	conn := DefaultConnAttr()
	if v.access != 0 {
		conn.Access = v.access
	}
	p := e.pair(PairConfig{B: EndConfig{Conn: &conn}})
	if settled {
		p.Settle()
	}
	fill(p.A.Mem, 1)
	bad := v.wr(e, p) // may use the pair before it fails
	fill(p.A.Mem, 2)
	clear(p.B.Mem[4096:8192])
	fill(p.B.Mem[:4096], 3)
	fill(p.B.Mem[8192:], 4)
	memA, memB := append([]byte(nil), p.A.Mem...), append([]byte(nil), p.B.Mem...)
	for i := range 3 {
		p.B.Recv(uint64(200+i), 0, 64)
	}
	p.A.Recv(300, 0, 64)
	p.A.Recv(301, 0, 64)

	// The request fails; the rest of the queue is flushed, signalled or not.
	p.A.Post(bad, unsignaled(sendWR(101, p.A.SGL(0, 64))), writeWR(102, p.A.SGL(0, 64), p.B, 0))
	if e.cfg.has(DeviatesEarlySuccess) {
		e.refusedLate(p, bad.Opcode)
		sameBytes(e.t, memB[64:], p.B.Mem[64:], "the responder's memory, but for what is allowed")
		sameBytes(e.t, memA, p.A.Mem, "the requester's memory")
		return p
	}
	wcs := p.A.Sent(3)
	require.Equal(e.t, v.want, wcs[0].Status, "status %v", wcs[0].Status)
	require.EqualValues(e.t, 100, wcs[0].WRID)
	require.Equal(e.t, p.A.QP.QPN(), wcs[0].QPN)
	requireFlushed(e.t, wcs[1:], 101, 102)
	requireFlushed(e.t, p.A.Received(2), 300, 301)
	e.inState(p.A.QP, verbs.QPErr)
	p.A.Post(sendWR(103, nil))
	requireFlushed(e.t, p.A.Sent(1), 103)

	// The responder's QP is in ERR, too (IBA 9.9.3, class C).
	e.inState(p.B.QP, verbs.QPErr)
	got := p.B.Received(3)
	for i, wc := range got {
		require.EqualValues(e.t, 200+i, wc.WRID)
		require.NotEqual(e.t, verbs.WCSuccess, wc.Status)
	}
	if bad.Opcode != verbs.WRRDMAWriteWithImm {
		requireFlushed(e.t, got, 200, 201, 202)
	}
	if !e.cfg.has(DeviatesNoErrorEvents) {
		e.event(v.event, ofQP(p.B.QP))
	}

	sameBytes(e.t, memB, p.B.Mem, "the responder's memory")
	sameBytes(e.t, memA, p.A.Mem, "the requester's memory")
	return p
}
