//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const ownQKey = 0x1234

// A udTarget is a UD QP with receives of 200 bytes.
type udTarget struct {
	t   *testing.T
	ctx *devContext
	qp  *qp
	cq  verbs.CQ
	mem []byte
	mr  verbs.MR
}

func newUDTarget(t *testing.T) *udTarget {
	t.Helper()
	v := &udTarget{t: t, ctx: soft0.open()}
	pd, err := v.ctx.AllocPD()
	require.NoError(t, err)
	v.cq, err = v.ctx.CreateCQ(64, nil)
	require.NoError(t, err)
	mem, err := v.ctx.AllocMemory(1<<16, 1<<16)
	require.NoError(t, err)
	v.mem = mem.Bytes()
	v.mr, err = pd.RegMR(v.mem, verbs.AccessLocalWrite)
	require.NoError(t, err)
	q, err := pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeUD, SendCQ: v.cq, RecvCQ: v.cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	require.NoError(t, err)
	v.qp = q.(*qp)
	require.NoError(t, verbs.BringUp(q, verbs.QPAttr{PortNum: 1, QKey: ownQKey}))
	t.Cleanup(func() {
		require.NoError(t, q.Close())
		require.NoError(t, v.mr.Close())
		require.NoError(t, mem.Close())
		require.NoError(t, v.cq.Close())
		require.NoError(t, pd.Close())
		require.NoError(t, v.ctx.Close())
	})
	return v
}

func (v *udTarget) recv(id uint64) {
	v.t.Helper()
	sge := verbs.SGE{Addr: v.mr.Addr() + id*200, Length: 200, LKey: v.mr.LKey()}
	_, err := v.qp.PostRecv([]verbs.RecvWR{{WRID: id, SGList: []verbs.SGE{sge}}})
	require.NoError(v.t, err)
}

func (v *udTarget) poll() (wc verbs.WC, ok bool) {
	v.t.Helper()
	var wcs [1]verbs.WC
	n, err := v.cq.Poll(wcs[:])
	require.NoError(v.t, err)
	return wcs[0], n == 1
}

func (v *udTarget) next() (wc verbs.WC) {
	v.t.Helper()
	eventually(v.t, func() (ok bool) { wc, ok = v.poll(); return ok })
	return wc
}

// datagram is a good one.
func (v *udTarget) datagram() datagram {
	gid := verbs.GIDFromAddr(netip.MustParseAddr("127.0.0.1"))
	return datagram{ah: verbs.AHAttr{DGID: gid, HopLimit: 64}, sgid: gid, from: 0x10001, to: v.qp.num, qkey: ownQKey}
}

// dial connects to the block of the QP, as a peer does that was never told its number.
func (v *udTarget) dial() *control.Socket {
	v.t.Helper()
	var s *control.Socket
	var err error
	until(func() bool { // the backlog may be full
		s, err = dialBlock(blockName("soft0", v.qp.num>>qpnBlockBits))
		return !errors.Is(err, unix.EAGAIN)
	})
	require.NoError(v.t, err)
	v.t.Cleanup(func() { s.Close() })
	hello := [helloHeader]byte{msgDatagrams, helloVersion}
	require.NoError(v.t, s.Send(hello[:], nil))
	return s
}

// awaitSenders returns the senders that the QP has, once there are any.
func (v *udTarget) awaitSenders() (list []*datagramFrom) {
	v.t.Helper()
	eventually(v.t, func() bool { return len(v.senders()) > 0 })
	return v.senders()
}

func (v *udTarget) senders() []*datagramFrom {
	in := &v.ctx.qpns.in
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.list)
}

func (d datagram) bytes() []byte { return append(d.append(nil), d.data...) }

// hungUp waits until the other end of s has hung up.
func hungUp(t *testing.T, s *control.Socket) {
	t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _, err := s.Recv(make([]byte, control.MaxMessage))
	require.ErrorIs(t, err, io.EOF)
}

// TestForgedDatagrams: whatever is no datagram costs its sender the socket, and what the
// QP does not take is lost. Neither touches the datagrams of others.
func TestForgedDatagrams(t *testing.T) {
	v := newUDTarget(t)
	honest := v.dial()
	v.awaitSenders()
	v.recv(1)
	event := eventfd(t, 0)
	defer unix.Close(event)
	before := leaktest.Take()
	change := func(f func(*datagram)) []byte {
		d := v.datagram()
		f(&d)
		return d.bytes()
	}
	good := v.datagram().bytes()
	for name, c := range map[string]struct {
		msg []byte
		fds []int
	}{
		"short":          {good[:datagramHeader-1], nil},
		"one byte":       {good[:1], nil},
		"flags":          {change(func(d *datagram) { d.flags = 0x80 }), nil},
		"service level":  {change(func(d *datagram) { d.ah.SL = 16 }), nil},
		"flow label":     {change(func(d *datagram) { d.ah.FlowLabel = 1 << 20 }), nil},
		"sender QP 1":    {change(func(d *datagram) { d.from = 1 }), nil},
		"sender QP":      {change(func(d *datagram) { d.from = 1 << 24 }), nil},
		"foreign source": {change(func(d *datagram) { d.sgid = verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1")) }), nil},
		"foreign target": {change(func(d *datagram) { d.ah.DGID = verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1")) }), nil},
		"two versions":   {change(func(d *datagram) { d.sgid = verbs.GIDFromAddr(netip.IPv6Loopback()) }), nil},
		"no source":      {change(func(d *datagram) { d.sgid = verbs.GID{} }), nil},
		"a descriptor":   {good, []int{event}},
	} {
		t.Run(name, func(t *testing.T) {
			s := v.dial()
			require.NoError(t, s.Send(c.msg, c.fds))
			hungUp(t, s)
			s.Close()
		})
	}
	t.Run("too long", func(t *testing.T) {
		s := v.dial()
		long := append(v.datagram().bytes(), make([]byte, datagramMTU+1)...)
		require.NoError(t, s.Try(long))
		hungUp(t, s)
		s.Close()
	})
	s := v.dial()
	for _, f := range []func(*datagram){
		func(d *datagram) { d.qkey++ },
		func(d *datagram) { d.qkey |= 1 << 31 }, // the sender's own is put in by the sender
		func(d *datagram) { d.to++ },
		func(d *datagram) { d.data = make([]byte, 161) }, // with the header more than the receive holds
		func(d *datagram) { d.data = make([]byte, datagramMTU) },
	} {
		require.NoError(t, s.Try(change(f)))
	}
	_, ok := v.poll()
	require.False(t, ok)
	d := v.datagram()
	d.data, d.from = []byte("honest"), 0x20002
	require.NoError(t, honest.Try(d.bytes()))
	wc := v.next()
	require.Equal(t, verbs.WCSuccess, wc.Status)
	require.EqualValues(t, 0x20002, wc.SrcQP)
	require.Equal(t, "honest", string(v.mem[200+verbs.GRHSize:][:6]))
	s.Close()
	require.Empty(t, before.Wait(nil))
	require.Equal(t, verbs.QPRTS, v.qp.State())
}

// TestDatagramFlood: no more arrives than there are receives, and an honest sender is heard
// though unknown senders have taken every place there is.
func TestDatagramFlood(t *testing.T) {
	v := newUDTarget(t)
	honest := v.dial()
	d := v.datagram()
	require.NoError(t, honest.Try(d.bytes()))
	first := v.awaitSenders()[0]
	for list := v.senders(); slices.Contains(list, first); list = v.senders() {
		require.LessOrEqual(t, len(list), maxDatagramSockets)
		s := v.dial()
		for range 8 {
			if s.Try(d.bytes()) != nil {
				break
			}
		}
		time.Sleep(time.Millisecond) // each is heard
	}
	hungUp(t, honest) // it made room
	var out datagramOut
	t.Cleanup(out.close)
	_, ok := v.poll()
	require.False(t, ok, "there is no receive")
	for i := range uint64(3) {
		v.recv(i)
	}
	d.from, d.data = 0x30003, []byte("honest")
	eventually(t, func() bool {
		require.Equal(t, succeeded, out.send(soft0, v.qp.num, d.bytes()))
		wc, ok := v.poll()
		return ok && wc.SrcQP == 0x30003
	})
}

// TestDatagramsReconnect: who was hung up on for lack of room connects again with the next
// datagram, and so does who sends to a context that is new behind the same number.
func TestDatagramsReconnect(t *testing.T) {
	v := newUDTarget(t)
	var out datagramOut
	t.Cleanup(out.close)
	d := v.datagram()
	for i := range uint64(4) {
		v.recv(i)
		eventually(t, func() bool {
			require.Equal(t, succeeded, out.send(soft0, v.qp.num, d.bytes()))
			_, ok := v.poll()
			return ok
		})
		for _, f := range v.awaitSenders() {
			f.sock.Shutdown()
		}
	}
}

// TestDatagramToWhoDoesNotRead: what does not get through is given up, and costs no time then.
func TestDatagramToWhoDoesNotRead(t *testing.T) {
	fd, full := holdBlock(t)
	require.NoError(t, unix.Listen(fd, 4))
	_, silent := holdBlock(t)
	var out datagramOut
	defer out.close()
	msg := newDatagramOf(full)
	var o outcome
	for range 10_000 {
		if o = out.send(soft0, full, msg); o != succeeded {
			break
		}
	}
	require.Equal(t, waitSocket, o, "its socket is full")
	out.list[0].taken = time.Now().Add(-2 * datagramPatience)
	require.Equal(t, succeeded, out.send(soft0, full, msg))
	require.Equal(t, succeeded, out.send(soft0, silent, msg), "nobody is there")
}

// holdBlock takes a block of QPNs, which other processes take as well, until the test ends. It returns the
// socket of its name and its first QPN.
func holdBlock(t *testing.T) (fd int, first uint32) {
	for n := uint32(1); n <= qpnBlockCount; n++ {
		fd, err := control.HoldName(blockName("soft0", n))
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd, n << qpnBlockBits
	}
	t.Fatal("no block is free")
	return -1, 0
}

func newDatagramOf(to uint32) []byte {
	gid := verbs.GIDFromAddr(netip.MustParseAddr("127.0.0.1"))
	d := datagram{ah: verbs.AHAttr{DGID: gid}, sgid: gid, from: 0x10001, to: to, data: make([]byte, datagramMTU)}
	return d.bytes()
}

// FuzzDatagram gives a QP what an unknown sender may send. What is parsed is what its sender says,
// and what arrives has a header that leads back.
func FuzzDatagram(f *testing.F) {
	good := newDatagramOf(77)
	f.Add(good[:datagramHeader+10])
	f.Add(good[:datagramHeader-1])
	v6 := verbs.GIDFromAddr(netip.IPv6Loopback())
	six := datagram{ah: verbs.AHAttr{DGID: v6, TrafficClass: 3, FlowLabel: 9}, sgid: v6, from: 9, to: 77, flags: datagramImm, data: []byte("six")}
	f.Add(six.bytes())
	ctx := soft0.open()
	f.Fuzz(func(t *testing.T, b []byte) {
		d, ok := parseDatagram(b)
		if !ok {
			return
		}
		require.Equal(t, b, d.bytes())
		grh := verbs.AppendGRH(nil, &d.ah, d.sgid, len(d.data))
		require.Len(t, grh, verbs.GRHSize)
		a, err := verbs.AHFromWC(ctx, 1, &verbs.WC{Flags: verbs.WCGRH, SL: d.ah.SL}, grh)
		if err != nil {
			return // 127.0.0.2 is an address of this host and in no table
		}
		require.Equal(t, d.sgid, a.DGID)
		require.Equal(t, d.ah.SL, a.SL)
		require.Equal(t, d.ah.TrafficClass, a.TrafficClass)
	})
}
