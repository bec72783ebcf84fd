package verbstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testConcurrent uses objects from several goroutines at once; it means most
// under the race detector.
func testConcurrent(t *testing.T, s *suite) {
	s.run(t, "Posters", testPosters)
	s.run(t, "Writers", testWriters)
	s.run(t, "Pollers", testPollers)
	s.run(t, "Receivers", testReceivers)
	s.run(t, "CloseUnderUse", testCloseUnderUse)
	s.run(t, "OtherConnections", testOtherConnections)
}

// Several goroutines post to one send queue: each one's messages arrive in its
// order, and completions come in the order the queue took the requests.
func testPosters(e *env) {
	const posters, each = 4, 300
	p := e.pair(PairConfig{})
	errs := make(chan error, posters+1)
	var taken, posted, reaped, ready atomic.Int64
	for i := range 32 {
		p.B.Recv(uint64(i), i*16, 16)
	}
	for g := range posters {
		go func() {
			deadline := time.Now().Add(4 * e.cfg.Timeout)
			for i := range each {
				// A place of its own for every message: it may be read late.
				off := (g*each + i) * 16
				binary.NativeEndian.PutUint64(p.A.Mem[off:], uint64(g))
				binary.NativeEndian.PutUint64(p.A.Mem[off+8:], uint64(i))
				wr := sendWR(uint64(g)<<32|uint64(i), p.A.SGL(off, 16))
				sent := int(posted.Add(1) - 1)
				if err := e.ahead(sent, 32, &ready); err != nil {
					errs <- err
					return
				}
				if err := e.behind(sent, p.A.SendCQ.Cap(), &reaped); err != nil {
					errs <- err
					return
				}
				for turn := 0; ; turn++ {
					n, err := p.A.QP.PostSend([]verbs.SendWR{wr})
					if n == 1 {
						break
					}
					if !errors.Is(err, verbs.ErrQueueFull) || time.Now().After(deadline) {
						errs <- fmt.Errorf("poster %d at %d: %w", g, i, err)
						return
					}
					pause(turn)
				}
				taken.Add(1)
			}
			errs <- nil
		}()
	}
	go func() {
		var next [posters]uint64
		for range posters * each {
			wcs, err := pollFor(p.A.SendCQ, 1, e.cfg.Timeout)
			if err != nil {
				errs <- err
				return
			}
			reaped.Add(1)
			g := wcs[0].WRID >> 32
			if err := check(wcs[0], g<<32|next[g], verbs.WCSend); err != nil {
				errs <- err
				return
			}
			next[g]++
		}
		errs <- nil
	}()
	var next [posters]uint64
	for i := range posters * each {
		p.B.ReceivedOK(uint64(i), verbs.WCRecv)
		off := i % 32 * 16
		g, seq := word(p.B.Mem, off), word(p.B.Mem, off+8)
		require.Equal(e.t, next[g], seq, "message of poster %d", g)
		next[g]++
		p.B.Recv(uint64(i+32), off, 16)
		ready.Add(1)
	}
	finish(e.t, errs, posters+1, e.cfg.Timeout)
	require.EqualValues(e.t, posters*each, taken.Load())
}

// Several goroutines post WRITEs of which nobody is told, as large as may be inline: a completion of a
// later request says that they are all there.
func testWriters(e *env) {
	const writers, each = 4, 2
	size := min(8<<10, e.attr.MaxInlineData)
	if size == 0 {
		e.t.Skip("MaxInlineData is 0")
	}
	p := e.pair(PairConfig{A: EndConfig{Cap: verbs.QPCap{MaxInlineData: size}}, B: EndConfig{MemSize: writers*each*size + 8}})
	place := func(g, i int) int { return (g*each + i) * size }
	want := make([]byte, size)
	for round := range e.rounds(50) {
		errs := make(chan error, writers)
		for g := range writers {
			go func() {
				for i := range each {
					data := make([]byte, size)
					fill(data, round*writers*each+g*each+i)
					wr := unsignaled(inlineWR(verbs.WRRDMAWrite, 1, data, p.B, place(g, i)))
					if _, err := p.A.QP.PostSend([]verbs.SendWR{wr}); err != nil {
						errs <- err
						return
					}
					clear(data)
				}
				errs <- nil
			}()
		}
		finish(e.t, errs, writers, e.cfg.Timeout)
		p.A.Post(writeWR(2, p.A.SGL(0, 8), p.B, len(p.B.Mem)-8))
		p.A.SentOK(2, verbs.WCRDMAWrite)
		e.delivered(p)
		for g := range writers {
			for i := range each {
				fill(want, round*writers*each+g*each+i)
				sameBytes(e.t, want, p.B.Mem[place(g, i):][:size], "WRITE %d of goroutine %d", i, g)
			}
		}
	}
}

// Several goroutines poll one CQ: each completion is polled once.
func testPollers(e *env) {
	const pollers, total = 4, 2000
	p := e.pair(PairConfig{})
	var seen [total]atomic.Int32
	var count atomic.Int64
	errs := make(chan error, pollers)
	deadline := time.Now().Add(4 * e.cfg.Timeout)
	for range pollers {
		go func() {
			var wc [8]verbs.WC
			for turn := 0; count.Load() < total; turn++ {
				n, err := p.A.SendCQ.Poll(wc[:])
				if err != nil {
					errs <- err
					return
				}
				for _, w := range wc[:n] {
					if w.Status != verbs.WCSuccess {
						errs <- w.Status
						return
					}
					seen[w.WRID].Add(1)
				}
				count.Add(int64(n))
				if n == 0 {
					if time.Now().After(deadline) {
						errs <- fmt.Errorf("%d of %d completions", count.Load(), total)
						return
					}
					pause(turn)
				}
			}
			errs <- nil
		}()
	}
	for i := range total {
		if e.behind(i, p.A.SendCQ.Cap(), &count) != nil {
			break // the pollers say why
		}
		for turn := 0; ; turn++ {
			n, err := p.A.QP.PostSend([]verbs.SendWR{writeWR(uint64(i), p.A.SGL(0, 8), p.B, 0)})
			if n == 1 {
				break
			}
			require.ErrorIs(e.t, err, verbs.ErrQueueFull)
			require.True(e.t, time.Now().Before(deadline), "the queue stays full")
			pause(turn)
		}
	}
	finish(e.t, errs, pollers, 4*e.cfg.Timeout)
	for i := range seen {
		require.EqualValues(e.t, 1, seen[i].Load(), "completion %d", i)
	}
}

// Several goroutines post receives while messages arrive.
func testReceivers(e *env) {
	const receivers, each = 4, 250
	p := e.pair(PairConfig{})
	errs := make(chan error, receivers+1)
	var ready, reaped atomic.Int64 // receives that have been posted, and that are complete
	for g := range receivers {
		go func() {
			deadline := time.Now().Add(4 * e.cfg.Timeout)
			for i := range each {
				wr := verbs.RecvWR{WRID: uint64(g)<<32 | uint64(i), SGList: p.B.SGL(0, 0)}
				for turn := 0; ; turn++ {
					n, err := p.B.QP.PostRecv([]verbs.RecvWR{wr})
					if n == 1 {
						break
					}
					if !errors.Is(err, verbs.ErrQueueFull) || time.Now().After(deadline) {
						errs <- fmt.Errorf("receiver %d at %d: %w", g, i, err)
						return
					}
					pause(turn)
				}
				ready.Add(1)
			}
			errs <- nil
		}()
	}
	go func() {
		for i := range receivers * each {
			if err := e.ahead(i, 0, &ready); err != nil {
				errs <- err
				return
			}
			if err := e.behind(i, p.B.RecvCQ.Cap(), &reaped); err != nil {
				errs <- err
				return
			}
			if _, err := p.A.QP.PostSend([]verbs.SendWR{sendWR(uint64(i), nil)}); err != nil {
				errs <- err
				return
			}
			if err := expect(e, p.A.SendCQ, uint64(i), verbs.WCSend); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	var next [receivers]uint64
	for range receivers * each {
		wc := p.B.Received(1)[0]
		reaped.Add(1)
		require.Equal(e.t, verbs.WCSuccess, wc.Status)
		g := wc.WRID >> 32
		require.Equal(e.t, next[g], wc.WRID&0xffffffff)
		next[g]++
	}
	finish(e.t, errs, receivers+1, e.cfg.Timeout)
}

// A QP is closed while others post, poll, query and modify.
func testCloseUnderUse(e *env) {
	for range 10 {
		large := min(8<<10, e.attr.MaxInlineData)
		p := e.pair(PairConfig{A: EndConfig{Cap: verbs.QPCap{MaxInlineData: large}}})
		const users = 6
		errs := make(chan error, users)
		var stop atomic.Bool
		started := make(chan struct{}, users)
		use := func(f func() error) {
			started <- struct{}{}
			for !stop.Load() {
				err := f()
				if errors.Is(err, verbs.ErrCQOverrun) && e.cfg.has(DeviatesEarlySlots) {
					continue // nothing keeps the poster from overrunning the poller
				}
				if err != nil && !errors.Is(err, verbs.ErrClosed) && !errors.Is(err, verbs.ErrQueueFull) && !errors.Is(err, verbs.ErrState) {
					errs <- err
					return
				}
			}
			errs <- nil
		}
		wr := []verbs.SendWR{writeWR(1, p.A.SGL(0, 64), p.B, 0)}
		rwr := []verbs.RecvWR{{SGList: p.A.SGL(0, 64)}}
		give := verbs.QPAttr{State: verbs.QPRTS, AccessFlags: everything}
		go use(func() error { _, err := p.A.QP.PostSend(wr); return err })
		lwr := []verbs.SendWR{unsignaled(inlineWR(verbs.WRRDMAWrite, 2, make([]byte, large), p.B, 0))}
		go use(func() error { _, err := p.A.QP.PostSend(lwr); return err })
		go use(func() error { _, err := p.A.QP.PostRecv(rwr); return err })
		go use(func() error { var wc [4]verbs.WC; _, err := p.A.SendCQ.Poll(wc[:]); return err })
		go use(func() error { _, _, err := p.A.QP.Query(); _ = p.A.QP.State(); return err })
		go use(func() error {
			err := p.A.QP.Modify(&give, verbs.QPMaskState|verbs.QPMaskAccessFlags)
			if errors.Is(err, verbs.ErrInvalid) && p.A.QP.State() != verbs.QPRTS {
				return nil
			}
			return err
		})
		for range users {
			receive(e, started)
		}
		require.NoError(e.t, p.A.QP.Close())
		stop.Store(true)
		finish(e.t, errs, users, e.cfg.Timeout)
		require.NoError(e.t, p.B.QP.Close())
	}
}

// One connection breaks again and again; another does not notice.
func testOtherConnections(e *env) {
	p := e.pair(PairConfig{})
	errs := make(chan error, 1)
	go func() { errs <- streamErr(e, p.A, p.B, 3000) }()
	for range 20 {
		q := e.pair(PairConfig{A: EndConfig{MemSize: 4096}, B: EndConfig{MemSize: 4096, PD: p.B.PD}})
		bad := writeWR(1, q.A.SGL(0, 64), q.B, 4096)
		q.A.Post(bad)
		if wc := q.A.Sent(1)[0]; !e.cfg.has(DeviatesEarlySuccess) {
			require.Equal(e.t, verbs.WCRemAccessErr, wc.Status)
		}
		e.inState(q.B.QP, verbs.QPErr)
		require.NoError(e.t, q.A.QP.Close())
		require.NoError(e.t, q.B.QP.Close())
		require.NoError(e.t, q.B.MR.Close())
	}
	finish(e.t, errs, 1, 4*e.cfg.Timeout)
	require.Equal(e.t, verbs.QPRTS, p.A.QP.State())
	require.Equal(e.t, verbs.QPRTS, p.B.QP.State())
}
