//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// SGEs of no bytes go to no soft-iWARP, but for the one that a READ has in any case.
func TestEmptySGEs(t *testing.T) {
	some, none := verbs.SGE{Addr: 64, Length: 40, LKey: 3}, verbs.SGE{Addr: 128, LKey: 4}
	c := cSGE{64, 40, 3}
	for name, test := range map[string]struct {
		op   verbs.WROpcode
		list []verbs.SGE
		want []cSGE
	}{
		"none":            {verbs.WRSend, nil, nil},
		"all":             {verbs.WRSend, []verbs.SGE{some, some}, []cSGE{c, c}},
		"first":           {verbs.WRSend, []verbs.SGE{none, some, some}, []cSGE{c, c}},
		"in between":      {verbs.WRRDMAWrite, []verbs.SGE{some, none, some}, []cSGE{c, c}},
		"last":            {verbs.WRRDMAWrite, []verbs.SGE{some, none, none}, []cSGE{c}},
		"nothing else":    {verbs.WRSend, []verbs.SGE{none, none}, nil},
		"READ":            {verbs.WRRDMARead, []verbs.SGE{some}, []cSGE{c}},
		"READ of nothing": {verbs.WRRDMARead, nil, []cSGE{{}}},
		"empty READ":      {verbs.WRRDMARead, []verbs.SGE{none}, []cSGE{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newSendList(verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 3}, verbs.QPTypeRC, everyCap)
			l.siw = true
			for i := range 2 { // the second finds what the first has left
				w := mustAdd(t, l, verbs.SendWR{Opcode: test.op, SGList: test.list})
				assert.Equal(t, test.want, l.sgl(i))
				if test.want == nil {
					assert.Zero(t, w.sgList)
				}
			}
			l.siw = false
			mustAdd(t, l, verbs.SendWR{Opcode: test.op, SGList: test.list})
			assert.Len(t, l.sgl(2), len(test.list), "other devices get what was given")
		})
	}
}

// What is small goes to soft-iWARP in two SGEs, cut between the pages if it lies in two.
func TestSmallSGEs(t *testing.T) {
	page := uint64(pageSize)
	sge := func(addr uint64, n uint32) cSGE { return cSGE{addr, n, 3} }
	for name, test := range map[string]struct {
		op   verbs.WROpcode
		list []cSGE
		want []cSGE
	}{
		"across":          {verbs.WRRDMAWrite, []cSGE{sge(2*page-3, 20)}, []cSGE{sge(2*page-3, 3), sge(2*page, 17)}},
		"the largest":     {verbs.WRSend, []cSGE{sge(page-31, 32)}, []cSGE{sge(page-31, 31), sge(page, 1)}},
		"the smallest":    {verbs.WRSend, []cSGE{sge(page-1, 2)}, []cSGE{sge(page-1, 1), sge(page, 1)}},
		"larger":          {verbs.WRRDMAWrite, []cSGE{sge(page-3, 33)}, nil},
		"up to the end":   {verbs.WRRDMAWrite, []cSGE{sge(page-20, 20)}, []cSGE{sge(page-20, 10), sge(page-10, 10)}},
		"from the begin":  {verbs.WRRDMAWrite, []cSGE{sge(page, 5)}, []cSGE{sge(page, 2), sge(page+2, 3)}},
		"one byte":        {verbs.WRSend, []cSGE{sge(page, 1)}, nil},
		"two already":     {verbs.WRRDMAWrite, []cSGE{sge(page-3, 6), sge(page-3, 6)}, nil},
		"one and nothing": {verbs.WRSend, []cSGE{sge(page-3, 6), sge(7, 0)}, []cSGE{sge(page-3, 3), sge(page, 3)}},
		"READ":            {verbs.WRRDMARead, []cSGE{sge(page-3, 6)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newSendList(verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 2}, verbs.QPTypeRC, everyCap)
			l.siw = true
			var list []verbs.SGE
			for _, g := range test.list {
				list = append(list, verbs.SGE{Addr: g.addr, Length: g.length, LKey: g.lkey})
			}
			if test.want == nil {
				test.want = test.list
			}
			for i := range 2 {
				w := mustAdd(t, l, verbs.SendWR{Opcode: test.op, SGList: list})
				assert.Equal(t, test.want, l.sgl(i))
				assert.EqualValues(t, len(test.want), w.numSGE)
			}
			l.siw = false
			mustAdd(t, l, verbs.SendWR{Opcode: test.op, SGList: list})
			assert.Equal(t, test.list, l.sgl(2), "other devices get what was given")
		})
	}
}

// A chain takes in no more requests than there is room for with the SGEs that are added.
func TestEmptySGEsFillTheList(t *testing.T) {
	l := newSendList(verbs.QPCap{MaxSendWR: 64, MaxSendSGE: 1}, verbs.QPTypeRC, everyCap)
	l.siw = true
	n := 0
	for ; ; n++ {
		ok, err := l.add(&verbs.SendWR{Opcode: verbs.WRRDMARead})
		require.NoError(t, err)
		if !ok {
			break
		}
	}
	assert.Equal(t, sendBatch, n)

	r := new(recvList)
	r.init(goArena(recvListSize(1)), 1)
	r.siw = true
	for n = 0; ; n++ {
		ok, err := r.add(&verbs.RecvWR{WRID: uint64(n)})
		require.NoError(t, err)
		if !ok {
			break
		}
		assert.EqualValues(t, 1, r.wrs[n].numSGE)
		assert.Equal(t, cSGE{}, *at[cSGE](r.wrs[n].sgList))
	}
	assert.Equal(t, recvBatch, n)
}

// A READ into more SGEs than the device has for one is refused, and nothing else is.
func TestReadSGEs(t *testing.T) {
	l := newSendList(verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 3}, verbs.QPTypeRC, everyCap)
	l.maxRd = 1
	two := []verbs.SGE{{Addr: 64, Length: 8}, {Addr: 72, Length: 8}}
	ok, err := l.add(&verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: two})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.False(t, ok)
	mustAdd(t, l, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: two})
	mustAdd(t, l, verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: two[:1]})
}
