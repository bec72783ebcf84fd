//go:build linux && (amd64 || arm64)

package faulty_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A reuser is a pair on an asynchronous device, and what that has told of its memory.
type reuser struct {
	*verbstest.Pair
	told []error
}

func newReuser(t *testing.T) *reuser {
	d := newDriver(faulty.Plan{Asynchronous: true})
	r := &reuser{}
	d.OnReuse(func(err error) { r.told = append(r.told, err) })
	ctx, err := d.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.Close()) })
	r.Pair = verbstest.NewPair(t, ctx, verbstest.PairConfig{})
	return r
}

// write is a WRITE of n bytes at off.
func (r *reuser) write(id uint64, off, n int, flags verbs.SendFlags) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.WRRDMAWrite, Flags: flags, SGList: r.A.SGL(off, n),
		RemoteAddr: r.B.MR.Addr(), RKey: r.B.MR.RKey(),
	}
}

// TestReuse: memory that changes before the request that reads it has completed is found, and what changes
// afterwards, or is not read, is not.
func TestReuse(t *testing.T) {
	const signaled = verbs.SendSignaled
	for _, c := range []struct {
		name string
		do   func(r *reuser)
		told bool
	}{
		{"waits", func(r *reuser) {
			for i := range 100 {
				r.A.Mem[0], r.A.Mem[99] = byte(i), byte(i)
				r.A.Post(r.write(1, 0, 100, signaled))
				r.A.Sent(1)
			}
		}, false},
		{"first byte", func(r *reuser) {
			r.A.Post(r.write(1, 100, 100, signaled))
			r.A.Mem[100]++
			r.A.Sent(1)
		}, true},
		{"last byte", func(r *reuser) {
			r.A.Post(r.write(1, 100, 100, signaled))
			r.A.Mem[199]++
			r.A.Sent(1)
		}, true},
		{"beside it", func(r *reuser) {
			r.A.Post(r.write(1, 100, 100, signaled))
			r.A.Mem[99]++
			r.A.Mem[200]++
			r.A.Sent(1)
		}, false},
		{"second SGE", func(r *reuser) {
			wr := r.write(1, 0, 100, signaled)
			wr.SGList = append(wr.SGList, r.A.SGE(200, 100))
			r.A.Post(wr)
			r.A.Mem[200]++
			r.A.Sent(1)
		}, true},
		{"unsignaled", func(r *reuser) {
			r.A.Post(r.write(1, 0, 100, 0), r.write(2, 100, 100, signaled))
			r.A.Mem[0]++
			r.A.Sent(1)
		}, true},
		{"of the next one", func(r *reuser) {
			r.A.Post(r.write(1, 0, 100, signaled), r.write(2, 100, 100, signaled))
			r.A.Sent(1)
			r.A.Mem[0]++
			r.A.Sent(1)
		}, false},
		{"one too early", func(r *reuser) {
			r.A.Post(r.write(1, 0, 100, signaled), r.write(2, 100, 100, signaled))
			r.A.Sent(1)
			r.A.Mem[100]++
			r.A.Sent(1)
		}, true},
		{"inline", func(r *reuser) {
			wr := r.write(1, 0, 0, signaled|verbs.SendInline)
			wr.SGList, wr.Inline = nil, r.A.Mem[:10]
			r.A.Post(wr)
			r.A.Mem[0]++
			r.A.Sent(1)
		}, false},
		{"a READ", func(r *reuser) {
			r.B.Mem[0] = 1
			wr := r.write(1, 0, 100, signaled)
			wr.Opcode = verbs.WRRDMARead
			r.A.Post(wr)
			r.A.Sent(1)
		}, false},
		{"in ERR", func(r *reuser) {
			r.A.Post(r.write(1, 0, 100, signaled))
			require.NoError(t, r.A.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
			r.A.Mem[0]++
			r.A.Sent(1)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReuser(t)
			c.do(r)
			require.Equal(t, c.told, len(r.told) == 1, "%v", r.told)
			require.LessOrEqual(t, len(r.told), 1)
		})
	}
}

// TestReusePanics where nobody asks for it: the run is to fail.
func TestReusePanics(t *testing.T) {
	d := newDriver(faulty.Plan{Asynchronous: true})
	ctx, err := d.Open()
	require.NoError(t, err)
	defer ctx.Close()
	r := reuser{Pair: verbstest.NewPair(t, ctx, verbstest.PairConfig{})}
	r.A.Post(r.write(0x17, 0, 100, verbs.SendSignaled))
	r.A.Mem[0]++
	require.Panics(t, func() { r.A.Sent(1) })
}

// TestReuseOfClosedMR: an MR is not closed before the requests that read it have completed. Its memory, which
// may be gone then, is looked at no more.
func TestReuseOfClosedMR(t *testing.T) {
	for _, early := range []bool{true, false} {
		r := newReuser(t)
		mem, err := r.A.Context.AllocMemory(4096, 4096)
		require.NoError(t, err)
		mr, err := r.A.PD.RegMR(mem.Bytes(), 0)
		require.NoError(t, err)
		r.A.Post(r.write(0, 0, 8, verbs.SendSignaled)) // so that the next one need not ask for the peer's MR, and fail meanwhile
		r.A.Sent(1)
		wr := r.write(1, 0, 0, verbs.SendSignaled)
		wr.SGList = []verbs.SGE{{Addr: mr.Addr(), Length: 4096, LKey: mr.LKey()}}
		r.A.Post(wr)
		if !early {
			r.A.Sent(1)
		}
		require.NoError(t, mr.Close())
		require.NoError(t, mem.Close())
		if early {
			r.A.Sent(1)
		}
		require.Equal(t, early, len(r.told) == 1, "%v", r.told)
	}
}
