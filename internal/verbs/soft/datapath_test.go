//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/racedetector"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestWriteWithImm(t *testing.T) {
	a, b := newConnected(t, defaults())
	b.postRecv(2, 100)
	wr := writeImm(b, 10, []byte("hello"), 77)
	wr.Flags |= verbs.SendSignaled
	wr.WRID = 5
	a.post(wr)

	require.Equal(t, verbs.WC{WRID: 5, Opcode: verbs.WCRDMAWrite, QPN: a.qp.QPN()}, a.next())
	require.Equal(t, verbs.WC{WRID: 100, Opcode: verbs.WCRecvRDMAWithImm, Flags: verbs.WCWithImm, ByteLen: 5, ImmData: 77,
		QPN: b.qp.QPN(), SrcQP: a.qp.QPN()}, b.next())
	require.Equal(t, "hello", string(b.bytes(10, 5)))

	// A plain WRITE, gathered, says nothing to the peer.
	copy(a.bytes(0, 6), "foobar")
	wr = verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{a.sge(0, 3), a.sge(0, 0), a.sge(3, 3)},
		RemoteAddr: b.mr.Addr() + 100, RKey: b.mr.RKey()}
	a.post(wr)
	require.Equal(t, "foobar", string(b.bytes(100, 6)))
	b.none()
	a.none()

	// Immediate without data.
	wr = writeImm(b, 0, nil, 1<<31)
	a.post(wr)
	wc := b.next()
	require.EqualValues(t, 101, wc.WRID)
	require.EqualValues(t, 1<<31, wc.ImmData)
	require.Zero(t, wc.ByteLen)
}

// TestStream sends more messages than the queue is long, both ways at once.
func TestStream(t *testing.T) {
	c := defaults()
	c.depth = 32
	a, b := newConnected(t, c)
	const total = 20000
	run := func(s, peer *side) error {
		var wc [16]verbs.WC
		sent, got, posted := 0, 0, 0
		credit := c.depth // receives the peer is known to have posted
		for i := 0; i < c.depth; i++ {
			if _, err := s.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(posted)}}); err != nil {
				return err
			}
			posted++
		}
		_ = credit
		for sent < total || got < total {
			if sent < total {
				wr := writeImm(peer, 0, []byte{byte(sent)}, uint32(sent))
				if sent%8 == 7 {
					wr.Flags |= verbs.SendSignaled
				}
				switch _, err := s.qp.PostSend([]verbs.SendWR{wr}); {
				case err == nil:
					sent++
				case !errors.Is(err, verbs.ErrQueueFull):
					return err
				}
			}
			n, err := s.cq.Poll(wc[:])
			if err != nil {
				return err
			}
			if n == 0 {
				runtime.Gosched()
			}
			for _, w := range wc[:n] {
				if w.Status != verbs.WCSuccess {
					return w.Status
				}
				if !w.Opcode.IsRecv() {
					continue
				}
				if w.ImmData != uint32(got) || w.WRID != uint64(got) {
					return fmt.Errorf("message %d has immediate %d and receive %d", got, w.ImmData, w.WRID)
				}
				got++
				if _, err := s.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(posted)}}); err != nil {
					return err
				}
				posted++
			}
		}
		return nil
	}
	done := make(chan error, 2)
	go func() { done <- run(a, b) }()
	go func() { done <- run(b, a) }()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
}

// TestSleep has each end sleep for every message of the other.
func TestSleep(t *testing.T) {
	a, b := newConnected(t, defaults())
	const rounds = 2000
	echo := make(chan struct{})
	go func() {
		defer close(echo)
		for i := range rounds {
			wc := b.next()
			b.postRecv(1, 0)
			b.post(writeImm(a, 0, nil, wc.ImmData))
			if i%16 == 15 {
				wr := write(a, 0, nil)
				wr.Flags |= verbs.SendSignaled
				b.post(wr)
				b.next()
			}
		}
	}()
	a.postRecv(4, 0)
	b.postRecv(4, 0)
	for i := range rounds {
		wr := writeImm(b, 0, nil, uint32(i))
		wr.Flags |= verbs.SendSignaled
		a.post(wr)
		for seen := 0; seen < 2; seen++ {
			if wc := a.next(); wc.Opcode.IsRecv() {
				require.EqualValues(t, i, wc.ImmData)
			}
		}
		a.postRecv(1, 0)
	}
	<-echo
	require.NotZero(t, a.qp.QPStats().WakeupsSent)
}

func TestHangup(t *testing.T) {
	a, b := newConnected(t, defaults())
	b.postRecv(3, 0)
	a.post(writeImm(b, 0, []byte("last"), 1))
	a.qp.disconnect()
	require.Equal(t, hangup{orderly: true}, <-a.gone)
	require.Equal(t, hangup{orderly: true}, <-b.gone)
	require.Equal(t, verbs.QPErr, b.qp.State())
	// What was sent comes before the flush.
	require.Equal(t, verbs.WCSuccess, b.next().Status)
	require.Equal(t, verbs.WCWRFlushErr, b.next().Status)
	require.Equal(t, verbs.WCWRFlushErr, b.next().Status)
	b.none()
	// Both queues take requests and flush them.
	b.post(writeImm(a, 0, nil, 1))
	require.Equal(t, verbs.WCWRFlushErr, b.next().Status)
	b.postRecv(1, 9)
	require.EqualValues(t, 9, b.next().WRID)
}

// TestHangupWakes: a sleeper with nothing posted looks at the QP when it fails.
func TestHangupWakes(t *testing.T) {
	a, b := newConnected(t, defaults())
	done := make(chan error)
	go func() {
		done <- b.ch.WaitWrite(func() bool { return b.qp.State() == verbs.QPErr })
	}()
	a.qp.disconnect()
	require.NoError(t, <-done)
}

// TestPeerDies closes the socket as the death of a process does.
func TestPeerDies(t *testing.T) {
	a, b := newConnected(t, defaults())
	a.qp.mu.Lock()
	l := a.qp.link
	a.qp.mu.Unlock()
	l.tx.Shutdown()
	h := <-b.gone
	require.False(t, h.orderly)
	require.ErrorIs(t, h.err, verbs.ErrPeerGone)
	require.Equal(t, verbs.QPErr, b.qp.State())
}

func TestNoAllocation(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("the race detector allocates")
	}
	a, b := newConnected(t, defaults())
	b.postRecv(60, 0)
	send := make([]verbs.SendWR, 2)
	copy(a.bytes(0, 64), "data")
	send[0] = writeImm(b, 0, make([]byte, 64), 1)
	send[0].Flags |= verbs.SendSignaled
	send[1] = verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.sge(0, 64)},
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	recv := make([]verbs.RecvWR, 2)
	wc := make([]verbs.WC, 4)
	var qa, qb verbs.QP = a.qp, b.qp
	var ca, cb verbs.CQ = a.cq, b.cq
	try := func() bool { return true }
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if n, err := qa.PostSend(send); n != 2 || err != nil {
			panic(err)
		}
		if n, _ := ca.Poll(wc); n != 2 {
			panic(n)
		}
		if n, _ := cb.Poll(wc); n != 2 {
			panic(n)
		}
		if _, err := qb.PostRecv(recv); err != nil {
			panic(err)
		}
		_ = cb.ReqNotify(false)
		_ = b.ch.WaitRead(try)
		_ = b.ch.SetReadDeadline(time.Time{})
	}))
}

func BenchmarkWriteImm(b *testing.B) {
	c := defaults()
	c.depth, c.cqe = 1024, 4096
	x, y := newConnected(b, c)
	y.postRecv(1024, 0)
	data := make([]byte, 64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wc [32]verbs.WC
		var wr [32]verbs.RecvWR
		for got := 0; got < b.N; {
			n, err := y.cq.Poll(wc[:])
			if err != nil {
				panic(err)
			}
			if n == 0 {
				runtime.Gosched()
				continue
			}
			got += n
			if _, err := y.qp.PostRecv(wr[:n]); err != nil {
				panic(err)
			}
		}
	}()
	var wc [8]verbs.WC
	wr := []verbs.SendWR{writeImm(y, 0, data, 1)}
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		wr[0].Flags = verbs.SendInline
		if i%256 == 255 {
			wr[0].Flags |= verbs.SendSignaled
		}
		for {
			_, err := x.qp.PostSend(wr)
			if err == nil {
				break
			}
			runtime.Gosched()
			x.cq.Poll(wc[:])
		}
	}
	<-done
}

// BenchmarkPost measures the two ends on one processor.
func BenchmarkPost(b *testing.B) {
	x, y := newConnected(b, defaults())
	y.postRecv(64, 0)
	wr := []verbs.SendWR{writeImm(y, 0, make([]byte, 64), 1)}
	recv := make([]verbs.RecvWR, 32)
	wc := make([]verbs.WC, 32)
	for i := 0; i < b.N; i += 32 {
		for j := range 32 {
			wr[0].Flags = verbs.SendInline
			if j == 31 {
				wr[0].Flags |= verbs.SendSignaled
			}
			x.qp.PostSend(wr)
		}
		x.cq.Poll(wc)
		for n := 0; n < 32; {
			m, _ := y.cq.Poll(wc)
			n += m
		}
		y.qp.PostRecv(recv)
	}
}
