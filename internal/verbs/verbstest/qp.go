package verbstest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testQP(t *testing.T, s *suite) {
	s.run(t, "Create", func(e *env) {
		pd := e.pd()
		scq, rcq := e.cq(16, nil), e.cq(16, nil)
		asked := verbs.QPCap{MaxSendWR: 5, MaxRecvWR: 6, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInlineData: min(16, e.attr.MaxInlineData)}
		attr := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: scq, RecvCQ: rcq, Cap: asked, UserData: "mine"}
		qp, err := pd.CreateQP(&attr)
		require.NoError(e.t, err)
		closeAtEnd(e.t, "QP", qp)
		assert.Equal(e.t, verbs.QPTypeRC, qp.Type())
		assert.Equal(e.t, verbs.QPReset, qp.State())
		assert.Equal(e.t, "mine", qp.UserData())
		assert.Equal(e.t, pd, qp.PD())
		assert.Less(e.t, qp.QPN(), uint32(1<<24))
		if !e.cfg.has(DeviatesOnlyCM) {
			assert.Greater(e.t, qp.QPN(), uint32(1), "QP 0 and 1 are the subnet's")
		}
		assert.GreaterOrEqual(e.t, attr.Cap.MaxSendWR, asked.MaxSendWR)
		assert.GreaterOrEqual(e.t, attr.Cap.MaxRecvWR, asked.MaxRecvWR)
		assert.GreaterOrEqual(e.t, attr.Cap.MaxSendSGE, asked.MaxSendSGE)
		assert.GreaterOrEqual(e.t, attr.Cap.MaxRecvSGE, asked.MaxRecvSGE)
		assert.GreaterOrEqual(e.t, attr.Cap.MaxInlineData, asked.MaxInlineData)
	})

	s.run(t, "Limits", func(e *env) {
		pd, cq := e.pd(), e.cq(16, nil)
		good := verbs.QPInitAttr{
			Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
			Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
		}
		for name, change := range map[string]func(*verbs.QPInitAttr){
			"no send CQ":      func(a *verbs.QPInitAttr) { a.SendCQ = nil },
			"no recv CQ":      func(a *verbs.QPInitAttr) { a.RecvCQ = nil },
			"MaxSendWR":       func(a *verbs.QPInitAttr) { a.Cap.MaxSendWR = e.attr.MaxQPWR + 1 },
			"MaxRecvWR":       func(a *verbs.QPInitAttr) { a.Cap.MaxRecvWR = e.attr.MaxQPWR + 1 },
			"MaxSendSGE":      func(a *verbs.QPInitAttr) { a.Cap.MaxSendSGE = e.attr.MaxSGE + 1 },
			"MaxRecvSGE":      func(a *verbs.QPInitAttr) { a.Cap.MaxRecvSGE = e.attr.MaxSGE + 1 },
			"MaxInlineData":   func(a *verbs.QPInitAttr) { a.Cap.MaxInlineData = e.attr.MaxInlineData + 1 },
			"negative":        func(a *verbs.QPInitAttr) { a.Cap.MaxSendWR = -1 },
			"negative recv":   func(a *verbs.QPInitAttr) { a.Cap.MaxRecvWR = -1 },
			"negative SGE":    func(a *verbs.QPInitAttr) { a.Cap.MaxSendSGE = -1 },
			"negative inline": func(a *verbs.QPInitAttr) { a.Cap.MaxInlineData = -1 },
		} {
			attr := good
			change(&attr)
			_, err := pd.CreateQP(&attr)
			assert.ErrorIs(e.t, err, verbs.ErrInvalid, name)
		}
		attr := good
		attr.Type = 99
		_, err := pd.CreateQP(&attr)
		assert.Error(e.t, err, "unknown type")
	})

	s.run(t, "NumbersDiffer", func(e *env) {
		seen := map[uint32]bool{}
		for range 20 {
			qpn := e.end(EndConfig{MemSize: 4096}).QP.QPN()
			require.False(e.t, seen[qpn], "QPN %#x is used twice", qpn)
			seen[qpn] = true
		}
	})

	s.run(t, "Query", func(e *env) {
		c := DefaultConnAttr()
		c.Access = verbs.AccessRemoteWrite
		c.MinRNRTimer, c.Timeout, c.RetryCnt, c.RNRRetry = 12, 16, 5, 6
		p := e.pair(PairConfig{A: EndConfig{Conn: &c, SigAll: true}})
		a, init, err := p.A.QP.Query()
		require.NoError(e.t, err)
		assert.Equal(e.t, verbs.QPRTS, a.State)
		assert.Equal(e.t, p.A.Cap, a.Cap)
		if !e.cfg.has(DeviatesOnlyCM) { // what was given by hand
			assert.Equal(e.t, p.B.QP.QPN(), a.DestQPN)
			assert.Equal(e.t, p.B.PSN, a.RQPSN)
			assert.Equal(e.t, p.A.PSN, a.SQPSN)
			assert.Equal(e.t, p.A.At.ActiveMTU, a.PathMTU)
			assert.Equal(e.t, p.A.At.Port, a.PortNum)
			assert.Equal(e.t, verbs.AccessRemoteWrite, a.AccessFlags&verbs.AccessRemote)
			assert.EqualValues(e.t, 12, a.MinRNRTimer)
			assert.EqualValues(e.t, 16, a.Timeout)
			assert.EqualValues(e.t, 5, a.RetryCnt)
			assert.EqualValues(e.t, 6, a.RNRRetry)
			assert.Equal(e.t, p.B.At.GID, a.AH.DGID)
		}
		assert.Equal(e.t, verbs.QPTypeRC, init.Type)
		assert.Equal(e.t, p.A.SendCQ, init.SendCQ)
		assert.Equal(e.t, p.A.RecvCQ, init.RecvCQ)
		assert.True(e.t, init.SigAll)
		assert.Equal(e.t, p.A.Cap, init.Cap)
	})

	s.run(t, "LoopbackToItself", func(e *env) {
		// A QP may be connected to itself.
		e.byHand()
		a := e.end(EndConfig{})
		a.Connect(a.Address())
		exchange(e.t, &Pair{A: a, B: a})
		a.Post(writeWR(1, a.SGL(0, 50), a, 2000))
		a.SentOK(1, verbs.WCRDMAWrite)
		sameBytes(e.t, a.Mem[:50], a.Mem[2000:2050])
	})
}
