//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// side is one end of a connection under test, with everything it needs.
type side struct {
	t    testing.TB
	ctx  *devContext
	pd   *pd
	ch   *compChannel
	cq   *cq
	mem  *memory
	mr   *mr
	qp   *qp
	gone chan hangup // what onHangup was told
}

type hangup struct {
	orderly bool
	err     error
}

type sideConfig struct {
	dev      *device
	depth    int
	cqe      int
	memory   int
	access   verbs.AccessFlags // of the MR and the QP
	srq      int               // receives of an SRQ, 0 for none
	rnrRetry uint8
	rnrTimer uint8
}

func defaults() sideConfig {
	return sideConfig{dev: soft0, depth: 64, cqe: 256, memory: 1 << 20,
		access: verbs.AccessLocalWrite | verbs.AccessRemote, rnrRetry: 7, rnrTimer: 1}
}

func newSide(t testing.TB, c sideConfig) *side {
	t.Helper()
	s := &side{t: t, ctx: c.dev.open(), gone: make(chan hangup, 1)}
	p, err := s.ctx.AllocPD()
	require.NoError(t, err)
	s.pd = p.(*pd)
	ch, err := s.ctx.CreateCompChannel()
	require.NoError(t, err)
	s.ch = ch.(*compChannel)
	q, err := s.ctx.CreateCQ(c.cqe, ch)
	require.NoError(t, err)
	s.cq = q.(*cq)
	m, err := s.ctx.AllocMemory(c.memory, c.memory)
	require.NoError(t, err)
	s.mem = m.(*memory)
	r, err := p.RegMR(m.Bytes()[:c.memory], c.access)
	require.NoError(t, err)
	s.mr = r.(*mr)
	attr := &verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: q, RecvCQ: q,
		Cap: verbs.QPCap{MaxSendWR: c.depth, MaxRecvWR: c.depth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 1 << 20}}
	if c.srq > 0 {
		attr.SRQ, err = p.CreateSRQ(&verbs.SRQInitAttr{MaxWR: c.srq, MaxSGE: 4})
		require.NoError(t, err)
	}
	qq, err := p.CreateQP(attr)
	require.NoError(t, err)
	s.qp = qq.(*qp)
	require.NoError(t, s.qp.Modify(&verbs.QPAttr{State: verbs.QPInit, PortNum: 1, AccessFlags: c.access}, verbs.RCMaskInit))
	t.Cleanup(s.close)
	return s
}

// close destroys everything in order and sees that nothing is in use any more.
func (s *side) close() {
	if err := s.qp.Close(); err != nil {
		require.ErrorIs(s.t, err, verbs.ErrClosed)
	}
	if s.qp.srq != nil {
		require.NoError(s.t, s.qp.srq.Close())
	}
	if err := s.mr.Close(); err != nil {
		require.ErrorIs(s.t, err, verbs.ErrClosed)
	}
	if err := s.mem.Close(); err != nil {
		require.ErrorIs(s.t, err, verbs.ErrClosed)
	}
	require.NoError(s.t, s.cq.Close())
	require.NoError(s.t, s.ch.Close())
	require.NoError(s.t, s.pd.Close())
	require.NoError(s.t, s.ctx.Close())
}

func (s *side) onHangup(err error) { s.gone <- hangup{err == nil, err} }

// ownOffer is the offer of a QP, whose descriptors are valid until it is attached, reset or closed.
func ownOffer(q *qp) (blob []byte, fds []int, err error) {
	err = q.withOffer(func(b []byte, f []int) error {
		blob, fds = b, f
		return nil
	})
	return blob, fds, err
}

// offerTo sends the offer of s over sock as the connection manager does.
func (s *side) offerTo(sock *control.Socket) {
	blob, fds, err := ownOffer(s.qp)
	require.NoError(s.t, err)
	require.NoError(s.t, sock.Send(append([]byte{1}, blob...), fds))
}

// attachFrom takes an offer from sock.
func (s *side) attachFrom(sock *control.Socket) error {
	buf := make([]byte, control.MaxMessage)
	n, fds, err := sock.Recv(buf)
	require.NoError(s.t, err)
	return s.qp.attach(newLink(s.qp, sock, sock, noCM, s.onHangup), buf[1:n], fds, nil)
}

// noCM takes the messages of a connection manager that the test is in place of.
func noCM([]byte) error { return nil }

// connect connects two sides as the connection manager does and takes them to RTS.
func connect(t testing.TB, a, b *side, c sideConfig) {
	t.Helper()
	sa, sb, err := control.SocketPair()
	require.NoError(t, err)
	a.offerTo(sa)
	b.offerTo(sb)
	require.NoError(t, a.attachFrom(sa))
	require.NoError(t, b.attachFrom(sb))
	attr := verbs.QPAttr{AccessFlags: c.access, PathMTU: verbs.MTU4096, RNRRetry: c.rnrRetry, RetryCnt: 7, Timeout: 14, MinRNRTimer: c.rnrTimer}
	require.NoError(t, a.qp.toRTS(attr))
	require.NoError(t, b.qp.toRTS(attr))
}

func newConnected(t testing.TB, c sideConfig) (a, b *side) {
	t.Helper()
	a, b = newSide(t, c), newSide(t, c)
	connect(t, a, b, c)
	return a, b
}

// sge is n bytes at off of the side's memory.
func (s *side) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mr.Addr() + uint64(off), Length: uint32(n), LKey: s.mr.LKey()}
}

func (s *side) bytes(off, n int) []byte { return s.mem.Bytes()[off : off+n] }

// postRecv posts n receives without memory, numbered from id.
func (s *side) postRecv(n int, id uint64) {
	s.t.Helper()
	for i := range n {
		_, err := s.qp.PostRecv([]verbs.RecvWR{{WRID: id + uint64(i)}})
		require.NoError(s.t, err)
	}
}

func (s *side) post(wr verbs.SendWR) {
	s.t.Helper()
	n, err := s.qp.PostSend([]verbs.SendWR{wr})
	require.NoError(s.t, err)
	require.Equal(s.t, 1, n)
}

// next waits for the next completion.
func (s *side) next() verbs.WC {
	s.t.Helper()
	var wc [1]verbs.WC
	require.NoError(s.t, s.ch.SetReadDeadline(time.Now().Add(patience)))
	err := s.ch.WaitRead(func() bool {
		for range 2 {
			n, err := s.cq.Poll(wc[:])
			if n == 1 || err != nil {
				return true
			}
			_ = s.cq.ReqNotify(false)
		}
		return false
	})
	require.NoError(s.t, err, "no completion")
	return wc[0]
}

// none sees that there is no completion.
func (s *side) none() {
	s.t.Helper()
	var wc [4]verbs.WC
	n, err := s.cq.Poll(wc[:])
	require.NoError(s.t, err)
	require.Zero(s.t, n, "%+v", wc[:n])
}

// eventually waits for what another goroutine brings about without telling.
func eventually(t testing.TB, cond func() bool) {
	t.Helper()
	require.True(t, until(cond), "it never came to be")
}

// write is a WRITE of data to the start of to's memory.
func write(to *side, off int, data []byte) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: data,
		RemoteAddr: to.mr.Addr() + uint64(off), RKey: to.mr.RKey()}
}

func writeImm(to *side, off int, data []byte, imm uint32) verbs.SendWR {
	wr := write(to, off, data)
	wr.Opcode, wr.ImmData = verbs.WRRDMAWriteWithImm, imm
	return wr
}

// socketsOf makes the two sockets of a connection.
func socketsOf(t *testing.T) (a, b *control.Socket) {
	t.Helper()
	a, b, err := control.SocketPair()
	require.NoError(t, err)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}
