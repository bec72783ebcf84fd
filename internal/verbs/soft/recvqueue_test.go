//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestRecvQueue(t *testing.T) {
	s := newSide(t, defaults())
	r := newRecvQueue(s.pd, 3, 2)
	in, err := shm.NewInbox(3)
	require.NoError(t, err)
	defer in.Close()
	r.share(&in.Mapping)
	require.Nil(t, r.peek())

	next := uint64(0)
	for i := uint64(0); i < 50; {
		wr := verbs.RecvWR{WRID: i, SGList: []verbs.SGE{s.sge(0, int(i)), s.sge(100, 1)}[:i%3]}
		if err := r.post(&wr); err == nil {
			i++
			continue
		}
		require.ErrorIs(t, r.post(&wr), verbs.ErrQueueFull)
		r.publish()
		require.EqualValues(t, i, *in.Posted)
		for w := r.peek(); w != nil; w = r.peek() {
			require.Equal(t, next, w.id)
			want := [3]uint32{0, uint32(next), uint32(next) + 1}[next%3]
			require.Len(t, r.sgesOf(w), int(next%3))
			require.Equal(t, want, w.len)
			require.Equal(t, want, *in.LenOf(uint32(next)))
			next++
			r.next++
		}
		r.release()
	}

	require.ErrorIs(t, r.post(&verbs.RecvWR{SGList: make([]verbs.SGE, 3)}), verbs.ErrInvalid)
	for _, bad := range []verbs.SGE{{Addr: s.mr.Addr(), Length: 8, LKey: s.mr.LKey() + 1}, s.sge(1<<20-1, 2)} {
		require.Equal(t, shm.LenRefused, r.capacity([]verbs.SGE{bad}))
	}
	require.Zero(t, r.capacity([]verbs.SGE{{}}), "nothing needs no key")
}

// Blank receives are only counted, also when others come between and after them.
func TestBlankReceives(t *testing.T) {
	s := newSide(t, defaults())
	r := newRecvQueue(s.pd, 8, 1)
	in, err := shm.NewInbox(8)
	require.NoError(t, err)
	defer in.Close()
	r.share(&in.Mapping)
	for range 20 {
		require.NoError(t, r.post(&verbs.RecvWR{}))
		r.publish()
		require.Equal(t, recvWR{}, *r.peek())
		r.next++
		r.release()
	}
	require.Nil(t, r.wrs.Load())
	posted := []verbs.RecvWR{{}, {WRID: 7}, {}, {SGList: []verbs.SGE{s.sge(0, 5)}}, {}}
	for round := range 5 {
		for i := range posted {
			require.NoError(t, r.post(&posted[i]))
		}
		r.publish()
		for i, want := range []recvWR{{}, {id: 7}, {}, {sge: 1, len: 5}, {}} {
			require.Equal(t, want, *r.peek(), "receive %d of round %d", i, round)
			r.next++
		}
		r.release()
	}
}

// TestRecvAfterReset: in ERR a QP takes receives, to flush them, if it has come there from where it takes them, and not
// from RESET, whatever it was before.
func TestRecvAfterReset(t *testing.T) {
	s := newSide(t, defaults())
	to := func(state verbs.QPState) {
		require.NoError(t, s.qp.Modify(&verbs.QPAttr{State: state}, verbs.QPMaskState))
	}
	to(verbs.QPErr)
	_, err := s.qp.PostRecv([]verbs.RecvWR{{WRID: 7}})
	require.NoError(t, err)
	require.Equal(t, verbs.WCWRFlushErr, s.next().Status)
	for range 2 {
		to(verbs.QPReset)
		to(verbs.QPErr)
		_, err = s.qp.PostRecv([]verbs.RecvWR{{}})
		require.ErrorIs(t, err, verbs.ErrState)
		s.none()
	}
}
