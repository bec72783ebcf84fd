package verbstest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

const guard = 64 // bytes before and after that must stay as they are

// testSizes moves messages of every size by every operation that carries any,
// each to an odd address, and looks at the bytes around.
func testSizes(t *testing.T, s *suite) {
	sizes := []int{0, 1, 7, 64, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20}
	const memory = 1<<20 + 2*guard + 1
	for _, op := range []struct {
		name string
		op   verbs.WROpcode
		need verbs.DeviceCaps
	}{
		{"SEND", verbs.WRSend, 0},
		{"RDMA_WRITE", verbs.WRRDMAWrite, 0},
		{"RDMA_WRITE_WITH_IMM", verbs.WRRDMAWriteWithImm, verbs.CapWriteImm},
		{"RDMA_READ", verbs.WRRDMARead, 0},
	} {
		s.needs(t, op.need, op.name, func(e *env) {
			p := e.pair(PairConfig{A: EndConfig{MemSize: memory}, B: EndConfig{MemSize: memory}})
			for i, n := range sizes {
				e.move(p, op.op, n, i)
			}
		})
	}
}

// move moves n bytes, from B to A if op is a READ, otherwise from A to B.
func (e *env) move(p *Pair, op verbs.WROpcode, n, seed int) {
	e.t.Helper()
	what := fmt.Sprintf("%v of %d bytes", op, n)
	src, dst := p.A, p.B
	if op == verbs.WRRDMARead {
		src, dst = p.B, p.A
	}
	const at = guard + 1
	fill(src.Mem, seed)
	fill(dst.Mem, seed+1000)
	want := append([]byte(nil), dst.Mem...)
	copy(want[at:], src.Mem[guard:guard+n])

	id := uint64(n)
	var wr verbs.SendWR
	switch op {
	case verbs.WRSend:
		p.B.Recv(id, at, n)
		wr = sendWR(id, p.A.SGL(guard, n))
	case verbs.WRRDMARead:
		wr = readWR(id, p.A.SGL(at, n), p.B, guard)
	default:
		if op == verbs.WRRDMAWriteWithImm {
			p.B.PostRecv(verbs.RecvWR{WRID: id})
		}
		wr = oneSided(op, id, p.A.SGL(guard, n), p.B, at)
	}
	p.A.Post(wr)
	wc := p.A.Sent(1)[0]
	require.Equal(e.t, verbs.WCSuccess, wc.Status, "%s: %v", what, wc.Status)
	require.Equal(e.t, id, wc.WRID, what)
	if op == verbs.WRRDMARead {
		require.EqualValues(e.t, n, wc.ByteLen, what)
	}
	if op == verbs.WRSend || op == verbs.WRRDMAWriteWithImm {
		wc := p.B.Received(1)[0]
		require.Equal(e.t, verbs.WCSuccess, wc.Status, "%s: %v", what, wc.Status)
		require.EqualValues(e.t, n, wc.ByteLen, what)
	}
	for i := range want {
		if want[i] != dst.Mem[i] {
			e.t.Fatalf("%s: byte %d of memory (data at %d to %d) is %#x, not %#x", what, i, at, at+n, dst.Mem[i], want[i])
		}
	}
}
