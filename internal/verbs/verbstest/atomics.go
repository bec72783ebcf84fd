package verbstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func fetchAdd(id uint64, from *End, off int, to *End, toOff int, add uint64) verbs.SendWR {
	wr := oneSided(verbs.WRAtomicFetchAndAdd, id, from.SGL(off, 8), to, toOff)
	wr.CompareAdd = add
	return wr
}

func compareSwap(id uint64, from *End, off int, to *End, toOff int, compare, swap uint64) verbs.SendWR {
	wr := oneSided(verbs.WRAtomicCmpAndSwp, id, from.SGL(off, 8), to, toOff)
	wr.CompareAdd, wr.Swap = compare, swap
	return wr
}

func word(b []byte, off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }

func testAtomics(t *testing.T, s *suite) {
	s.run(t, "FETCH_ADD", func(e *env) {
		p := e.pair(PairConfig{})
		if !e.can(verbs.CapAtomics) {
			e.refused(p, fetchAdd(1, p.A, 0, p.B, 64, 1))
			return
		}
		binary.NativeEndian.PutUint64(p.B.Mem[64:], ^uint64(0)-1)
		for i, want := range []uint64{^uint64(0) - 1, 1, 4} { // wraps
			p.A.Post(fetchAdd(uint64(i), p.A, 8, p.B, 64, 3))
			wc := p.A.SentOK(uint64(i), verbs.WCFetchAdd)
			assert.EqualValues(e.t, 8, wc.ByteLen)
			assert.Equal(e.t, want, word(p.A.Mem, 8), "the value before")
		}
		assert.EqualValues(e.t, 7, word(p.B.Mem, 64))
		assert.Zero(e.t, word(p.B.Mem, 56))
		assert.Zero(e.t, word(p.B.Mem, 72))
	})

	s.run(t, "COMPARE_SWAP", func(e *env) {
		p := e.pair(PairConfig{})
		if !e.can(verbs.CapAtomics) {
			e.refused(p, compareSwap(1, p.A, 0, p.B, 64, 1, 2))
			return
		}
		binary.NativeEndian.PutUint64(p.B.Mem[64:], 10)
		p.A.Post(compareSwap(1, p.A, 8, p.B, 64, 10, 20))
		wc := p.A.SentOK(1, verbs.WCCompSwap)
		assert.EqualValues(e.t, 8, wc.ByteLen)
		assert.EqualValues(e.t, 10, word(p.A.Mem, 8))
		assert.EqualValues(e.t, 20, word(p.B.Mem, 64))
		p.A.Post(compareSwap(2, p.A, 8, p.B, 64, 10, 30))
		p.A.SentOK(2, verbs.WCCompSwap)
		assert.EqualValues(e.t, 20, word(p.A.Mem, 8), "no match: the value as it is")
		assert.EqualValues(e.t, 20, word(p.B.Mem, 64), "no match: untouched")
	})

	s.needs(t, verbs.CapAtomics, "Misaligned", func(e *env) {
		// Refused at the post, or by the responder.
		p := e.pair(PairConfig{})
		wr := fetchAdd(1, p.A, 0, p.B, 68, 1)
		if _, err := p.A.QP.PostSend([]verbs.SendWR{wr}); err != nil {
			require.ErrorIs(e.t, err, verbs.ErrInvalid)
			defer exchange(e.t, p)
		} else {
			require.Contains(e.t, []verbs.WCStatus{verbs.WCRemInvReqErr, verbs.WCRemAccessErr}, p.A.Sent(1)[0].Status)
			e.inState(p.A.QP, verbs.QPErr)
		}
		sameBytes(e.t, make([]byte, 128), p.B.Mem[:128])
	})

	s.needs(t, verbs.CapAtomics, "WrongLength", func(e *env) {
		// The result is eight bytes; a smaller place for it is an error at the
		// post or of the request, and nothing is added.
		p := e.pair(PairConfig{})
		wr := fetchAdd(1, p.A, 0, p.B, 64, 1)
		wr.SGList = p.A.SGL(0, 4)
		if _, err := p.A.QP.PostSend([]verbs.SendWR{wr}); err != nil {
			require.ErrorIs(e.t, err, verbs.ErrInvalid)
			assert.Zero(e.t, word(p.B.Mem, 64))
			defer exchange(e.t, p)
		} else {
			require.NotEqual(e.t, verbs.WCSuccess, p.A.Sent(1)[0].Status)
		}
		sameBytes(e.t, make([]byte, 60), p.A.Mem[4:64], "past the place for the result")
	})

	s.needs(t, verbs.CapAtomics, "Contended", func(e *env) {
		// Several QPs add to one word at once; every value is fetched once.
		const pairs, rounds, batch = 4, 400, 60
		first := e.pair(PairConfig{})
		b := first.B
		errs := make(chan error, pairs)
		seen := make([][]uint64, pairs)
		for i := range pairs {
			p := first
			if i > 0 {
				p = e.pair(PairConfig{B: EndConfig{PD: b.PD}})
			}
			p.Settle()
			go func() { errs <- addUp(e, p.A, b, rounds, batch, &seen[i]) }()
		}
		finish(e.t, errs, pairs, 4*e.cfg.Timeout)
		total := 0
		for _, vs := range seen {
			total += len(vs)
		}
		require.EqualValues(e.t, total, word(b.Mem, 0))
		once := map[uint64]bool{}
		for _, vs := range seen {
			last := int64(-1)
			for _, v := range vs {
				require.False(e.t, once[v], "value %d was fetched twice", v)
				once[v] = true
				require.Greater(e.t, int64(v), last)
				last = int64(v)
			}
		}
	})

	s.needs(t, verbs.CapAtomics, "Lock", func(e *env) {
		// A spin lock by compare-swap guards a counter kept by READ and WRITE.
		const each = 50
		p := e.pair(PairConfig{})
		q := e.pair(PairConfig{B: EndConfig{PD: p.B.PD}})
		errs := make(chan error, 2)
		for i, a := range []*End{p.A, q.A} {
			go func() { errs <- countUnderLock(a, p.B, uint64(i+1), each, e) }()
		}
		finish(e.t, errs, 2, 4*e.cfg.Timeout)
		require.EqualValues(e.t, 2*each, word(p.B.Mem, 8))
	})
}

// addUp adds one to the word at offset 0 in batches, and collects what it fetches.
// A slow device does fewer rounds.
func addUp(e *env, a, b *End, rounds, batch int, seen *[]uint64) error {
	wrs := make([]verbs.SendWR, batch)
	for i := range wrs {
		wrs[i] = fetchAdd(uint64(i), a, 8*i, b, 0, 1)
	}
	for begin := time.Now(); rounds > 0 && time.Since(begin) < time.Second; rounds-- {
		if _, err := a.QP.PostSend(wrs); err != nil {
			return err
		}
		for i := range wrs {
			if err := expect(e, a.SendCQ, uint64(i), verbs.WCFetchAdd); err != nil {
				return err
			}
			*seen = append(*seen, word(a.Mem, 8*i))
		}
	}
	return nil
}

// countUnderLock takes the lock at offset 0 and adds one to the word at 8.
func countUnderLock(a, b *End, who uint64, times int, e *env) error {
	do := func(wr verbs.SendWR) error {
		if _, err := a.QP.PostSend([]verbs.SendWR{wr}); err != nil {
			return err
		}
		wc, err := pollFor(a.SendCQ, 1, e.cfg.Timeout)
		if err != nil {
			return err
		}
		if wc[0].Status != verbs.WCSuccess {
			return wc[0].Status
		}
		return nil
	}
	for range times {
		for turn := 0; ; turn++ {
			if err := do(compareSwap(1, a, 0, b, 0, 0, who)); err != nil {
				return err
			}
			if word(a.Mem, 0) == 0 {
				break
			}
			if turn > 1_000_000 {
				return errors.New("the lock is never free")
			}
			pause(turn)
		}
		if err := do(readWR(2, a.SGL(8, 8), b, 8)); err != nil {
			return err
		}
		binary.NativeEndian.PutUint64(a.Mem[8:], word(a.Mem, 8)+1)
		if err := do(writeWR(3, a.SGL(8, 8), b, 8)); err != nil {
			return err
		}
		if err := do(compareSwap(4, a, 0, b, 0, who, 0)); err != nil {
			return err
		}
		if got := word(a.Mem, 0); got != who {
			return fmt.Errorf("the lock was taken by %d from %d", got, who)
		}
	}
	return nil
}
