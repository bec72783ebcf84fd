package verbstest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// reach takes a fresh QP, whose peer is in INIT or above, to a state.
func (e *env) reach(a *End, remote Address, want verbs.QPState) {
	e.t.Helper()
	step := func(attr verbs.QPAttr, mask verbs.QPAttrMask) {
		e.t.Helper()
		require.NoError(e.t, a.QP.Modify(&attr, mask), "to %v", attr.State)
		require.Equal(e.t, attr.State, a.QP.State())
	}
	if want == verbs.QPReset {
		return
	}
	step(a.At.InitAttr(a.Conn), verbs.UpMask(a.QP.Type(), verbs.QPInit))
	if want == verbs.QPInit {
		return
	}
	if want == verbs.QPErr {
		step(verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState)
		return
	}
	step(a.At.RTRAttr(remote, a.Conn), verbs.UpMask(a.QP.Type(), verbs.QPRTR))
	if want == verbs.QPRTR {
		return
	}
	step(a.At.RTSAttr(a.Address(), a.Conn), verbs.UpMask(a.QP.Type(), verbs.QPRTS))
	if want == verbs.QPSQD {
		step(verbs.QPAttr{State: verbs.QPSQD}, verbs.QPMaskState)
		e.event(verbs.EventSQDrained, ofQP(a.QP))
	}
}

// transition is the attributes and mask that lead to a state if it may be entered.
func transition(a *End, remote Address, from, to verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask) {
	switch to {
	case verbs.QPInit:
		return a.At.InitAttr(a.Conn), verbs.UpMask(a.QP.Type(), to)
	case verbs.QPRTR:
		return a.At.RTRAttr(remote, a.Conn), verbs.UpMask(a.QP.Type(), to)
	case verbs.QPRTS:
		if from == verbs.QPRTS || from == verbs.QPSQD {
			return verbs.QPAttr{State: to}, verbs.QPMaskState
		}
		return a.At.RTSAttr(a.Address(), a.Conn), verbs.UpMask(a.QP.Type(), to)
	default:
		return verbs.QPAttr{State: to}, verbs.QPMaskState
	}
}

var qpStates = []verbs.QPState{verbs.QPReset, verbs.QPInit, verbs.QPRTR, verbs.QPRTS, verbs.QPSQD, verbs.QPErr}

// legal are the transitions of IBA figure 124, but for those from SQE. RESET to ERR is left
// out: the specification has it, the kernel does not.
var legal = map[verbs.QPState][]verbs.QPState{
	verbs.QPReset: {verbs.QPReset, verbs.QPInit},
	verbs.QPInit:  {verbs.QPReset, verbs.QPInit, verbs.QPRTR, verbs.QPErr},
	verbs.QPRTR:   {verbs.QPReset, verbs.QPRTS, verbs.QPErr},
	verbs.QPRTS:   {verbs.QPReset, verbs.QPRTS, verbs.QPSQD, verbs.QPErr},
	verbs.QPSQD:   {verbs.QPReset, verbs.QPRTS, verbs.QPSQD, verbs.QPErr},
	verbs.QPErr:   {verbs.QPReset, verbs.QPErr},
}

func testState(t *testing.T, s *suite) {
	testTransitions(t, s, verbs.QPTypeRC)
	s.run(t, "BadAttributes", testBadAttributes)
	s.run(t, "ChangeAccess", testChangeAccess)
	s.run(t, "BackToReset", testBackToReset)
	s.run(t, "ResetDiscards", testResetDiscards)
}

// testTransitions tries every change of state, and those of the way up without each of
// their attributes.
func testTransitions(t *testing.T, s *suite, typ verbs.QPType) {
	for _, from := range qpStates {
		allowed := map[verbs.QPState]bool{}
		for _, to := range legal[from] {
			allowed[to] = true
		}
		for _, to := range qpStates {
			if from == verbs.QPReset && to == verbs.QPErr {
				continue
			}
			s.run(t, fmt.Sprintf("%v-%v", from, to), func(e *env) {
				a, remote := e.unconnected(typ)
				e.reach(a, remote, from)
				attr, mask := transition(a, remote, from, to)
				err := a.QP.Modify(&attr, mask)
				if allowed[to] {
					require.NoError(e.t, err)
					require.Equal(e.t, to, a.QP.State())
					return
				}
				require.ErrorIs(e.t, err, verbs.ErrInvalid)
				require.Equal(e.t, from, a.QP.State(), "a refused transition changes nothing")
			})
		}
	}

	for from, to := range map[verbs.QPState]verbs.QPState{
		verbs.QPReset: verbs.QPInit, verbs.QPInit: verbs.QPRTR, verbs.QPRTR: verbs.QPRTS,
	} {
		s.run(t, fmt.Sprintf("Required-%v-%v", from, to), func(e *env) {
			a, remote := e.unconnected(typ)
			e.reach(a, remote, from)
			attr, mask := transition(a, remote, from, to)
			for bit := verbs.QPAttrMask(2); bit <= verbs.QPMaskDestQPN; bit <<= 1 {
				if mask&bit == 0 {
					continue
				}
				assert.ErrorIs(e.t, a.QP.Modify(&attr, mask&^bit), verbs.ErrInvalid, "without attribute %#x", bit)
				require.Equal(e.t, from, a.QP.State())
			}
			require.NoError(e.t, a.QP.Modify(&attr, mask), "with all of them")
		})
	}
}

// unconnected makes a QP of a type in RESET, and another in INIT that it can name.
func (e *env) unconnected(typ verbs.QPType) (*End, Address) {
	e.t.Helper()
	b := e.end(EndConfig{Type: typ, MemSize: 4096})
	b.Init()
	return e.end(EndConfig{Type: typ, MemSize: 4096}), b.Address()
}

func testBadAttributes(e *env) {
	b := e.end(EndConfig{MemSize: 4096})
	b.Init()
	a := e.end(EndConfig{MemSize: 4096})
	refused := func(name string, attr verbs.QPAttr, mask verbs.QPAttrMask, change func(*verbs.QPAttr)) {
		before := a.QP.State()
		change(&attr)
		assert.ErrorIs(e.t, a.QP.Modify(&attr, mask), verbs.ErrInvalid, name)
		require.Equal(e.t, before, a.QP.State(), name)
	}
	init := a.At.InitAttr(a.Conn)
	refused("port 0", init, verbs.RCMaskInit, func(q *verbs.QPAttr) { q.PortNum = 0 })
	refused("port past the last", init, verbs.RCMaskInit, func(q *verbs.QPAttr) { q.PortNum = uint8(e.attr.PhysPortCnt) + 1 })
	a.Init()

	port, err := e.ctx.QueryPort(e.at.Port)
	require.NoError(e.t, err)
	rtr := a.At.RTRAttr(b.Address(), a.Conn)
	refused("MTU 0", rtr, verbs.RCMaskRTR, func(q *verbs.QPAttr) { q.PathMTU = 0 })
	refused("MTU too large", rtr, verbs.RCMaskRTR, func(q *verbs.QPAttr) { q.PathMTU = port.MaxMTU + 1 })
	refused("GID index", rtr, verbs.RCMaskRTR, func(q *verbs.QPAttr) { q.AH.SGIDIndex = port.GIDTblLen })
	if e.attr.MaxQPRdAtom < 255 {
		refused("MaxDestRdAtomic", rtr, verbs.RCMaskRTR, func(q *verbs.QPAttr) { q.MaxDestRdAtomic = uint8(e.attr.MaxQPRdAtom) + 1 })
	}
	require.NoError(e.t, a.QP.Modify(&rtr, verbs.RCMaskRTR))

	rts := a.At.RTSAttr(a.Address(), a.Conn)
	refused("timeout", rts, verbs.RCMaskRTS, func(q *verbs.QPAttr) { q.Timeout = 32 })
	if e.attr.MaxQPInitRdAtom < 255 {
		refused("MaxRdAtomic", rts, verbs.RCMaskRTS, func(q *verbs.QPAttr) { q.MaxRdAtomic = uint8(e.attr.MaxQPInitRdAtom) + 1 })
	}
	require.NoError(e.t, a.QP.Modify(&rts, verbs.RCMaskRTS))
}

// Rights may be given and taken while the QP is connected.
func testChangeAccess(e *env) {
	none := DefaultConnAttr()
	none.Access = verbs.AccessLocalWrite
	p := e.pair(PairConfig{B: EndConfig{Conn: &none}})
	give := verbs.QPAttr{State: verbs.QPRTS, AccessFlags: everything}
	require.NoError(e.t, p.B.QP.Modify(&give, verbs.QPMaskState|verbs.QPMaskAccessFlags))
	fill(p.A.Mem[:64], 1)
	p.A.Post(writeWR(1, p.A.SGL(0, 64), p.B, 0))
	p.A.SentOK(1, verbs.WCRDMAWrite)
	sameBytes(e.t, p.A.Mem[:64], p.B.Mem[:64])

	take := verbs.QPAttr{State: verbs.QPRTS, AccessFlags: verbs.AccessLocalWrite}
	require.NoError(e.t, p.B.QP.Modify(&take, verbs.QPMaskState|verbs.QPMaskAccessFlags))
	before := append([]byte(nil), p.B.Mem[:64]...)
	fill(p.A.Mem[:64], 2)
	p.A.Post(writeWR(2, p.A.SGL(0, 64), p.B, 0))
	wc := p.A.Sent(1)[0]
	require.Equal(e.t, verbs.WCRemInvReqErr, wc.Status)
	sameBytes(e.t, before, p.B.Mem[:64])
}

// Both QPs go through ERR and RESET and connect again, several times.
func testBackToReset(e *env) {
	p := e.pair(PairConfig{})
	for round := range 4 {
		exchange(e.t, p)
		for _, x := range []*End{p.A, p.B} {
			x.Recv(uint64(round), 0, 64)
			if round%2 == 0 {
				require.NoError(e.t, x.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
				wc := x.Received(1)[0]
				require.Equal(e.t, verbs.WCWRFlushErr, wc.Status)
				require.EqualValues(e.t, round, wc.WRID)
			}
		}
		for _, x := range []*End{p.A, p.B} {
			require.NoError(e.t, x.QP.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
			require.Equal(e.t, verbs.QPReset, x.QP.State())
			drain(e, x.RecvCQ)
			x.PSN = (x.PSN + 77) & 0xffffff
		}
		p.Connect()
	}
	exchange(e.t, p)
}

func drain(e *env, cq verbs.CQ) {
	e.t.Helper()
	var wc [16]verbs.WC
	for {
		n, err := cq.Poll(wc[:])
		require.NoError(e.t, err)
		if n == 0 {
			return
		}
	}
}

// RESET forgets what was queued, without completions (IBA 10.3.1.1).
func testResetDiscards(e *env) {
	a := e.end(EndConfig{})
	for range 3 {
		a.Init()
		for i := range a.Cap.MaxRecvWR {
			a.Recv(uint64(i), 0, 64)
		}
		require.NoError(e.t, a.QP.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
	}
	e.quiet(a.RecvCQ)
}
