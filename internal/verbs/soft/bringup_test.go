//go:build linux && (amd64 || arm64)

package soft

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// bringUpTo takes a QP from INIT to RTS by hand.
func (s *side) bringUpTo(peer uint32) {
	s.t.Helper()
	require.NoError(s.t, verbs.BringUp(s.qp, verbs.QPAttr{
		PathMTU: verbs.MTU4096, DestQPN: peer, MinRNRTimer: 1, MaxDestRdAtomic: 1, MaxRdAtomic: 1,
		AH:      verbs.AHAttr{IsGlobal: true, DGID: verbs.GIDFromAddr(netip.MustParseAddr("127.0.0.1")), PortNum: 1},
		Timeout: 18, RetryCnt: 7, RNRRetry: 7, // 8 s
	}))
}

// TestBringUpIsDone: when the second of two QPs is up, they are connected.
// TestTimingBringUpIsDone says that this is before its Modify returns.
func TestBringUpIsDone(t *testing.T) {
	for range 50 {
		a, b := newSide(t, defaults()), newSide(t, defaults())
		a.bringUpTo(b.qp.QPN())
		b.bringUpTo(a.qp.QPN())
		eventually(t, func() bool { return linkOf(b) != nil })
		eventually(t, func() bool { return linkOf(a) != nil }) // without a word of b's more
		b.postRecv(1, 0)
		a.post(writeImm(b, 0, []byte("x"), 1))
		require.EqualValues(t, 1, b.next().ImmData)
	}
}

// TestBringUpAtOnce lets both go at the same time.
func TestBringUpAtOnce(t *testing.T) {
	for range 50 {
		a, b := newSide(t, defaults()), newSide(t, defaults())
		b.postRecv(1, 0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.bringUpTo(b.qp.QPN())
		}()
		b.bringUpTo(a.qp.QPN())
		<-done
		a.post(writeImm(b, 0, []byte("x"), 1))
		require.EqualValues(t, 1, b.next().ImmData)
	}
}

// TestConnectedToItself: a QP may have itself for a peer.
func TestConnectedToItself(t *testing.T) {
	s := newSide(t, defaults())
	s.bringUpTo(s.qp.QPN())
	s.postRecv(2, 5)
	s.post(writeImm(s, 0, []byte("self"), 8))
	wc := s.next()
	require.EqualValues(t, 5, wc.WRID)
	require.Equal(t, s.qp.QPN(), wc.SrcQP)
	require.Equal(t, "self", string(s.bytes(0, 4)))
	_, err := s.qp.PostRecv([]verbs.RecvWR{{WRID: 7, SGList: []verbs.SGE{s.sge(1000, 100)}}})
	require.NoError(t, err)
	s.post(writeImm(s, 0, nil, 9))
	require.EqualValues(t, 6, s.next().WRID)
	s.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{s.sge(0, 100)}})
	require.EqualValues(t, 7, s.next().WRID)
	require.Equal(t, "self", string(s.bytes(1000, 4)))
}

// TestConnectedToItselfWithoutDescriptors: it is tried again until there are some.
func TestConnectedToItselfWithoutDescriptors(t *testing.T) {
	s := newSide(t, defaults())
	s.bringUpTo(s.qp.QPN() | 0xfff000 | 1) // nobody
	s.postRecv(1, 5)
	q := s.qp
	q.mu.Lock()
	q.endDial()
	q.attr.DestQPN = q.num
	d := q.startDial()
	q.mu.Unlock()
	restore, err := leaktest.LimitDescriptors(0)
	require.NoError(t, err)
	defer restore()
	q.dial(d, q.num)
	require.Nil(t, linkOf(s))
	restore()
	s.post(writeImm(s, 0, []byte("self"), 8))
	require.EqualValues(t, 5, s.next().WRID)
	control.KeepSpare()
}

// TestUnknownPeersAtTheBlock say all kinds of things and get nothing.
func TestUnknownPeersAtTheBlock(t *testing.T) {
	a := newSide(t, defaults())
	a.bringUpTo(a.qp.QPN() | 0xfff000 | 1) // a peer with a higher number
	event := eventfd(t, 0)
	defer unix.Close(event)
	before := leaktest.Take()
	hello := a.qp.helloMessage(msgHello, a.qp.QPN())
	for _, msg := range [][]byte{{0}, {msgHello}, hello, append(hello, 1, 2, 3), a.qp.helloMessage(msgNudge, a.qp.QPN()), make([]byte, control.MaxMessage)} {
		s, err := dialBlock(blockName("soft0", a.qp.QPN()>>qpnBlockBits))
		require.NoError(t, err)
		reply, fds, err := exchange(s, helloTimeout, func() error { return s.Send(msg, []int{event, event, event}) })
		require.NoError(t, err)
		require.Equal(t, []byte{msgNotYet}, reply)
		require.Empty(t, fds)
		s.Close()
	}
	require.Empty(t, before.Wait(nil))
	require.Nil(t, linkOf(a))
}

func TestQPNs(t *testing.T) {
	ctx := soft0.open()
	seen := map[uint32]bool{}
	for i := range qpnBlockSize + 10 { // into a second block
		n, err := ctx.qpns.take(soft0, &qp{})
		require.NoError(t, err)
		require.False(t, seen[n])
		require.Less(t, n, uint32(1<<24))
		require.GreaterOrEqual(t, n, uint32(qpnBlockSize))
		seen[n] = true
		require.NotNil(t, ctx.qpns.find(n))
		if i%2 == 0 {
			ctx.qpns.give(n)
			require.Nil(t, ctx.qpns.find(n))
			delete(seen, n)
		}
	}
	// Another context never gets a number of ours.
	other := soft0.open()
	n, err := other.qpns.take(soft0, &qp{})
	require.NoError(t, err)
	require.Nil(t, ctx.qpns.find(n))
	require.NoError(t, other.Close())
	require.NoError(t, ctx.Close())
}

// TestSilentPeersAtTheBlock: peers that connect and say nothing keep nobody from being found.
func TestSilentPeersAtTheBlock(t *testing.T) {
	a, b := newSide(t, defaults()), newSide(t, defaults())
	if a.qp.QPN() > b.qp.QPN() {
		a, b = b, a
	}
	a.bringUpTo(b.qp.QPN())
	for range maxHellos {
		s, err := dialBlock(blockName("soft0", a.qp.QPN()>>qpnBlockBits))
		require.NoError(t, err)
		defer s.Close()
	}
	block := a.ctx.qpns.block(a.qp.QPN()).sock
	eventually(t, func() bool { return block.busy.Load() == maxHellos })
	began := time.Now()
	b.bringUpTo(a.qp.QPN())
	eventually(t, func() bool { return linkOf(b) != nil })
	require.Less(t, time.Since(began), helloTimeout)
}

// fakeBlock is the block of a peer that the test is in place of, with lower numbers than that of q.
func fakeBlock(t *testing.T, q *qp) (to uint32, hello func() (s *control.Socket, head []byte)) {
	t.Helper()
	for n := range q.num >> qpnBlockBits {
		fd, err := control.HoldName(blockName("soft0", n))
		if err != nil {
			continue
		}
		require.NoError(t, unix.Listen(fd, maxHellos))
		l, err := control.NewSocket(fd)
		require.NoError(t, err)
		t.Cleanup(func() { l.CloseListening() })
		return n << qpnBlockBits, func() (*control.Socket, []byte) {
			fd, _, err := l.Accept()
			require.NoError(t, err)
			s, err := control.NewSocket(fd)
			require.NoError(t, err)
			t.Cleanup(func() { s.Close() })
			buf := make([]byte, control.MaxMessage)
			n, fds, err := s.Recv(buf)
			require.NoError(t, err)
			control.CloseFDs(fds)
			return s, buf[:n]
		}
	}
	t.Fatal("no free block with a lower number")
	return 0, nil
}

// offerAs is the offer of s under another number.
func (s *side) offerAs(qpn uint32) (blob []byte, fds []int) {
	s.t.Helper()
	blob, fds, err := ownOffer(s.qp)
	require.NoError(s.t, err)
	blob = append([]byte(nil), blob...)
	shm.HostOrder.PutUint32(blob[4:], qpn)
	return blob, fds
}

// again takes the QP back to RESET, and up to RTS by hand with another peer.
func (s *side) again(peer uint32) {
	s.t.Helper()
	require.NoError(s.t, s.qp.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
	require.NoError(s.t, s.qp.Modify(&verbs.QPAttr{State: verbs.QPInit, PortNum: 1, AccessFlags: s.mr.access}, verbs.RCMaskInit))
	s.bringUpTo(peer)
}

// TestLateHelloAnswer: an answer to a hello that a QP has said before it was reset connects nobody.
func TestLateHelloAnswer(t *testing.T) {
	a, b := newSide(t, defaults()), newSide(t, defaults())
	to, hello := fakeBlock(t, a.qp)
	go func() {
		s, _ := hello() // that of Modify, which waits for a moment only
		s.Close()
	}()
	a.bringUpTo(to + 1)
	late, _ := hello()
	a.again(to + 2)
	offer, fds := b.offerAs(to + 1)
	require.NoError(t, late.Send(append([]byte{msgHelloAnswer}, offer...), fds))
	n, _, err := late.Recv(make([]byte, 16))
	require.ErrorIs(t, err, io.EOF, "%d bytes", n)
	require.Nil(t, linkOf(a))
}

// TestLateHelloUp: a dialer that was answered before a QP was reset is not connected to it after.
func TestLateHelloUp(t *testing.T) {
	a, b := newSide(t, defaults()), newSide(t, defaults())
	from := a.qp.num | 0xfff000
	a.bringUpTo(from)
	late, err := dialBlock(blockName("soft0", a.qp.num>>qpnBlockBits))
	require.NoError(t, err)
	defer late.Close()
	offer, fds := b.offerAs(from)
	msg := a.qp.helloMessage(msgHello, a.qp.num)
	shm.HostOrder.PutUint32(msg[4:], from)
	reply, got, err := exchange(late, patience, func() error { return late.Send(append(msg, offer...), fds) })
	require.NoError(t, err)
	control.CloseFDs(got)
	require.EqualValues(t, msgHelloAnswer, reply[0])
	a.again(from ^ 1)
	require.NoError(t, late.Signal(msgUp))
	n, _, err := late.Recv(make([]byte, 16))
	require.ErrorIs(t, err, io.EOF, "%d bytes", n)
	require.Nil(t, linkOf(a))
}
