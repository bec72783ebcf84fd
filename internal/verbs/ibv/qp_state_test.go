//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Every attribute arrives in the C struct and comes back from it.
func TestAttributes(t *testing.T) {
	in := verbs.QPAttr{
		State: verbs.QPRTS, PathMTU: verbs.MTU2048, QKey: 1, RQPSN: 2, SQPSN: 3, DestQPN: 4, AccessFlags: verbs.AccessRemoteWrite,
		Cap: verbs.QPCap{MaxSendWR: 5, MaxRecvWR: 6, MaxSendSGE: 7, MaxRecvSGE: 8, MaxInlineData: 9},
		AH: verbs.AHAttr{
			DGID: verbs.GID{1, 15: 2}, SGIDIndex: 200, DLID: 10, SL: 11, PortNum: 12, HopLimit: 13, TrafficClass: 14, FlowLabel: 15, IsGlobal: true,
		},
		PKeyIndex: 16, PortNum: 17, MaxRdAtomic: 18, MaxDestRdAtomic: 19, MinRNRTimer: 20, Timeout: 21, RetryCnt: 22, RNRRetry: 23,
	}
	var c cQPAttr
	fillAttr(&c, &in, queried)
	assert.Equal(t, in, c.attr())

	in.AH.IsGlobal = false
	fillAttr(&c, &in, queried)
	assert.Equal(t, verbs.AHAttr{DLID: 10, SL: 11, PortNum: 12}, c.attr().AH, "without a GRH none of it is filled")
}

func TestBadAttributes(t *testing.T) {
	q := &qp{ctx: &devContext{limits: limits{attr: verbs.DeviceAttr{PhysPortCnt: 1, MaxQPRdAtom: 4, MaxQPInitRdAtom: 4}}}}
	for name, c := range map[string]struct {
		a    verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		"state":       {verbs.QPAttr{State: 7}, verbs.QPMaskState},
		"port 0":      {verbs.QPAttr{}, verbs.QPMaskPort},
		"port 2":      {verbs.QPAttr{PortNum: 2}, verbs.QPMaskPort},
		"MTU 0":       {verbs.QPAttr{}, verbs.QPMaskPathMTU},
		"MTU 6":       {verbs.QPAttr{PathMTU: 6}, verbs.QPMaskPathMTU},
		"QPN":         {verbs.QPAttr{DestQPN: 1 << 24}, verbs.QPMaskDestQPN},
		"PSN":         {verbs.QPAttr{RQPSN: 1 << 24}, verbs.QPMaskRQPSN},
		"own PSN":     {verbs.QPAttr{SQPSN: 1 << 24}, verbs.QPMaskSQPSN},
		"RNR timer":   {verbs.QPAttr{MinRNRTimer: 32}, verbs.QPMaskMinRNRTimer},
		"timeout":     {verbs.QPAttr{Timeout: 32}, verbs.QPMaskTimeout},
		"retries":     {verbs.QPAttr{RetryCnt: 8}, verbs.QPMaskRetryCnt},
		"RNR retries": {verbs.QPAttr{RNRRetry: 8}, verbs.QPMaskRNRRetry},
		"READs":       {verbs.QPAttr{MaxRdAtomic: 5}, verbs.QPMaskMaxQPRdAtomic},
		"dest READs":  {verbs.QPAttr{MaxDestRdAtomic: 5}, verbs.QPMaskMaxDestRdAtomic},
		"access":      {verbs.QPAttr{AccessFlags: 1 << 10}, verbs.QPMaskAccessFlags},
	} {
		assert.ErrorIs(t, q.checkAttr(&c.a, c.mask), verbs.ErrInvalid, name)
		assert.NoError(t, q.checkAttr(&c.a, 0), "%s does not count without its bit", name)
		// An attribute that is good does not hide one that is bad.
		c.a.QKey = 1
		assert.ErrorIs(t, q.checkAttr(&c.a, c.mask|verbs.QPMaskQKey|verbs.QPMaskPKeyIndex), verbs.ErrInvalid, name)
	}
}

func TestFiniteRetries(t *testing.T) {
	rxe, hca := limits{sevenIsForever: true}, limits{}
	assert.EqualValues(t, 6, rxe.finiteRetries(7))
	assert.EqualValues(t, 5, rxe.finiteRetries(5))
	assert.EqualValues(t, 7, hca.finiteRetries(7))
}

// The library never sees an iWARP QP in RTS; that it is connected counts instead, until
// the library sees it move.
func TestKnownState(t *testing.T) {
	q := &qp{c: &cQP{state: uint32(verbs.QPInit)}}
	assert.Equal(t, verbs.QPInit, q.known())
	q.established()
	assert.Equal(t, verbs.QPRTS, q.known())
	q.c.state = uint32(verbs.QPErr)
	assert.Equal(t, verbs.QPErr, q.known(), "the library knows of a failure")
	(*qp)(nil).established() // an id without a QP of its own
}
