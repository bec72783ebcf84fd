package verbstest

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testMR(t *testing.T, s *suite) {
	s.run(t, "Attributes", func(e *env) {
		pd, buf := e.pd(), e.memory(3*4096)
		for _, part := range [][]byte{buf, buf[100:5000], buf[:1]} {
			mr := e.mr(pd, part, everything)
			assert.EqualValues(e.t, uintptr(unsafe.Pointer(unsafe.SliceData(part))), mr.Addr())
			assert.Equal(e.t, len(part), mr.Len())
			assert.Equal(e.t, everything, mr.Access())
			assert.Equal(e.t, pd, mr.PD())
		}
	})

	s.run(t, "Access", func(e *env) {
		pd, buf := e.pd(), e.memory(4096)
		for access := range everything + 1 {
			needsWrite := access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0
			if access&verbs.AccessRemoteAtomic != 0 && !e.can(verbs.CapAtomics) {
				continue
			}
			mr, err := pd.RegMR(buf, access)
			if needsWrite && access&verbs.AccessLocalWrite == 0 {
				assert.ErrorIs(e.t, err, verbs.ErrInvalid, "access %#x: remote write or atomic without local write", access)
				continue
			}
			if assert.NoError(e.t, err, "access %#x", access) {
				assert.Equal(e.t, access, mr.Access())
				assert.NoError(e.t, mr.Close())
			}
		}
		_, err := pd.RegMR(buf, verbs.AccessLocalWrite|1<<10)
		assert.ErrorIs(e.t, err, verbs.ErrInvalid, "unknown access right")
	})

	s.run(t, "Empty", func(e *env) {
		pd := e.pd()
		for _, buf := range [][]byte{nil, {}, e.memory(4096)[:0]} {
			_, err := pd.RegMR(buf, verbs.AccessLocalWrite)
			assert.ErrorIs(e.t, err, verbs.ErrInvalid)
		}
	})

	s.run(t, "TwiceTheSameMemory", func(e *env) {
		// Each MR has keys of its own, and one outlives the other.
		p := e.pair(PairConfig{})
		again := e.mr(p.B.PD, p.B.Mem, everything)
		require.NotEqual(e.t, p.B.MR.RKey(), again.RKey())
		require.NotEqual(e.t, p.B.MR.LKey(), again.LKey())
		for i, rkey := range []uint32{p.B.MR.RKey(), again.RKey()} {
			fill(p.A.Mem[:64], i+1)
			wr := writeWR(1, p.A.SGL(0, 64), p.B, 0)
			wr.RKey = rkey
			p.A.Post(wr)
			p.A.SentOK(1, verbs.WCRDMAWrite)
			sameBytes(e.t, p.A.Mem[:64], p.B.Mem[:64])
		}
		require.NoError(e.t, p.B.MR.Close())
		fill(p.A.Mem[:64], 3)
		wr := writeWR(2, p.A.SGL(0, 64), p.B, 0)
		wr.RKey = again.RKey()
		p.A.Post(wr)
		p.A.SentOK(2, verbs.WCRDMAWrite)
		sameBytes(e.t, p.A.Mem[:64], p.B.Mem[:64])
	})

	s.run(t, "HeapMemory", func(e *env) {
		// Any memory may be registered for local access.
		p := e.pair(PairConfig{})
		src, dst := make([]byte, 5000), make([]byte, 5000)
		fill(src, 1)
		from := e.mr(p.A.PD, src, 0)
		to := e.mr(p.B.PD, dst, verbs.AccessLocalWrite)
		p.B.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{{Addr: to.Addr(), Length: 5000, LKey: to.LKey()}}})
		p.A.Post(sendWR(2, []verbs.SGE{{Addr: from.Addr(), Length: 5000, LKey: from.LKey()}}))
		p.B.ReceivedOK(1, verbs.WCRecv)
		p.A.SentOK(2, verbs.WCSend)
		sameBytes(e.t, src, dst)
	})

	s.run(t, "Many", func(e *env) {
		// More MRs than a device would keep in a small cache, all reachable.
		p := e.pair(PairConfig{})
		buf := e.memory(40 * 4096)
		for i := range 40 {
			mr := e.mr(p.B.PD, buf[i*4096:(i+1)*4096], everything)
			fill(p.A.Mem[:4096], i)
			wr := writeWR(uint64(i), p.A.SGL(0, 4096), p.B, 0)
			wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
			p.A.Post(wr)
			p.A.SentOK(uint64(i), verbs.WCRDMAWrite)
			sameBytes(e.t, p.A.Mem[:4096], buf[i*4096:(i+1)*4096], fmt.Sprint("MR ", i))
		}
	})
}
