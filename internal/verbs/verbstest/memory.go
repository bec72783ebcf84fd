package verbstest

import (
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testMemory(t *testing.T, s *suite) {
	s.run(t, "Aligned", func(e *env) {
		page := os.Getpagesize()
		m, err := e.ctx.AllocMemory(page+1, page+1)
		require.NoError(e.t, err)
		closeAtEnd(e.t, "Memory", m)
		b := m.Bytes()
		assert.Len(e.t, b, 2*page)
		assert.Zero(e.t, uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(page))
		assert.GreaterOrEqual(e.t, m.Committed(), page+1)
		sameBytes(e.t, make([]byte, page+1), b[:page+1], "fresh memory is zero")
	})

	s.run(t, "Commit", func(e *env) {
		page := os.Getpagesize()
		m, err := e.ctx.AllocMemory(64*page, page)
		require.NoError(e.t, err)
		closeAtEnd(e.t, "Memory", m)
		first := m.Bytes()
		first[0] = 1
		require.NoError(e.t, m.Commit(64*page))
		require.Equal(e.t, 64*page, m.Committed())
		assert.Same(e.t, unsafe.SliceData(first), unsafe.SliceData(m.Bytes()), "committing moves nothing")
		m.Bytes()[64*page-1] = 2
		assert.EqualValues(e.t, 1, m.Bytes()[0])
		assert.ErrorIs(e.t, m.Commit(64*page+1), verbs.ErrInvalid)
	})

	s.run(t, "CommitAfterRegistration", func(e *env) {
		// What was registered before it was committed can be written by the peer after.
		page := os.Getpagesize()
		p := e.pair(PairConfig{})
		m, err := e.ctx.AllocMemory(8*page, page)
		require.NoError(e.t, err)
		closeAtEnd(e.t, "Memory", m)
		mr := e.mr(p.B.PD, m.Bytes(), everything)
		for _, n := range []int{page, 8 * page} {
			require.NoError(e.t, m.Commit(n))
			fill(p.A.Mem[:page], n)
			wr := writeWR(uint64(n), p.A.SGL(0, page), p.B, 0)
			wr.RemoteAddr, wr.RKey = mr.Addr()+uint64(n-page), mr.RKey()
			p.A.Post(wr)
			p.A.SentOK(uint64(n), verbs.WCRDMAWrite)
			sameBytes(e.t, p.A.Mem[:page], m.Bytes()[n-page:n])
		}
	})

	s.needs(t, verbs.CapODP, "OnDemand", func(e *env) {
		// The peer may write where nothing was committed, in any order, and over and over.
		page := os.Getpagesize()
		p := e.pair(PairConfig{})
		m, err := e.ctx.AllocMemory(200*page, page)
		require.NoError(e.t, err)
		closeAtEnd(e.t, "Memory", m)
		mr := e.mr(p.B.PD, m.Bytes()[100:], everything)
		for i, off := range []int{190*page - 8, 150*page - 100, 5 * page, 5*page + 8, 199*page - 100, 64*page - 101, 0} {
			fill(p.A.Mem[:page], i)
			wr := writeWR(uint64(i), p.A.SGL(0, page), p.B, 0)
			wr.RemoteAddr, wr.RKey = mr.Addr()+uint64(off), mr.RKey()
			p.A.Post(wr)
			p.A.SentOK(uint64(i), verbs.WCRDMAWrite)
			sameBytes(e.t, p.A.Mem[:page], m.Bytes()[100+off:][:page])
		}
		require.Equal(e.t, page, m.Committed())
	})

	s.run(t, "KeptByItsMRs", func(e *env) {
		page := os.Getpagesize()
		pd := e.pd()
		m, err := e.ctx.AllocMemory(3*page, 3*page)
		require.NoError(e.t, err)
		whole, err := pd.RegMR(m.Bytes(), everything)
		require.NoError(e.t, err)
		part, err := pd.RegMR(m.Bytes()[page+8:page+16], verbs.AccessLocalWrite)
		require.NoError(e.t, err)
		require.ErrorIs(e.t, m.Close(), verbs.ErrBusy)
		require.NoError(e.t, whole.Close())
		require.ErrorIs(e.t, m.Close(), verbs.ErrBusy)
		m.Bytes()[page] = 1 // it is mapped still
		require.NoError(e.t, m.Commit(3*page))
		require.NoError(e.t, part.Close())
		require.NoError(e.t, m.Close())
		require.ErrorIs(e.t, m.Close(), verbs.ErrClosed)
		require.ErrorIs(e.t, m.Commit(page), verbs.ErrClosed)
	})

	s.run(t, "Invalid", func(e *env) {
		for _, c := range [][2]int{{0, 0}, {-1, 0}, {4096, -1}, {4096, 1 << 20}} {
			_, err := e.ctx.AllocMemory(c[0], c[1])
			assert.ErrorIs(e.t, err, verbs.ErrInvalid, "size %d committed %d", c[0], c[1])
		}
	})
}
