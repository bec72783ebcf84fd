package verbstest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// EndConfig says how one side of a Pair is made. The zero value is complete.
type EndConfig struct {
	Type    verbs.QPType  // RC if 0
	Context verbs.Context // of the pair if nil
	PD      verbs.PD      // a new one if nil
	SendCQ  verbs.CQ      // a new one if nil
	RecvCQ  verbs.CQ      // a new one if nil
	Channel verbs.CompChannel
	SRQ     verbs.SRQ
	Cap     verbs.QPCap // 64 requests of 4 SGEs each way where zero
	SendOps verbs.SendOps
	SigAll  bool
	MemSize int               // 64 KiB if 0
	Access  verbs.AccessFlags // of the MR; everything if 0
	Conn    *ConnAttr         // DefaultConnAttr if nil

	withChannel bool // make a Channel
}

// End is one side of a Pair: a QP, and memory registered for it.
type End struct {
	Context verbs.Context
	PD      verbs.PD
	SendCQ  verbs.CQ
	RecvCQ  verbs.CQ
	QP      verbs.QP
	Cap     verbs.QPCap // as granted
	Mem     []byte
	MR      verbs.MR
	At      Location
	Conn    ConnAttr
	PSN     uint32

	channel verbs.CompChannel // of its CQs, may be nil
	t       testing.TB
	timeout time.Duration
}

const everything = verbs.AccessLocalWrite | verbs.AccessRemote

// newEnd makes an End with its QP in RESET.
func newEnd(t testing.TB, ctx verbs.Context, cfg EndConfig, timeout time.Duration) *End {
	t.Helper()
	return newEndWith(t, ctx, cfg, timeout, func(pd verbs.PD, attr *verbs.QPInitAttr) (verbs.QP, error) {
		return pd.CreateQP(attr)
	})
}

func newEndWith(t testing.TB, ctx verbs.Context, cfg EndConfig, timeout time.Duration,
	create func(verbs.PD, *verbs.QPInitAttr) (verbs.QP, error),
) *End {
	t.Helper()
	if cfg.Context != nil {
		ctx = cfg.Context
	}
	dev, err := ctx.QueryDevice()
	require.NoError(t, err)
	e := &End{Context: ctx, PD: cfg.PD, SendCQ: cfg.SendCQ, RecvCQ: cfg.RecvCQ, t: t, timeout: timeout, PSN: 0x1234}
	if e.At, err = Locate(ctx); err != nil {
		t.Fatal(err)
	}
	e.Conn = DefaultConnAttr()
	if cfg.Conn != nil {
		e.Conn = *cfg.Conn
	}
	if e.PD == nil {
		e.PD, err = ctx.AllocPD()
		require.NoError(t, err)
		closeAtEnd(t, "PD", e.PD)
	}

	e.channel = cfg.Channel
	if cfg.withChannel {
		e.channel, err = ctx.CreateCompChannel()
		require.NoError(t, err)
		closeAtEnd(t, "CompChannel", e.channel)
	}

	size := cfg.MemSize
	if size == 0 {
		size = 64 << 10
	}
	access := cfg.Access
	if access == 0 {
		access = everything
	}
	e.Mem = allocMemory(t, ctx, size)
	e.MR, err = e.PD.RegMR(e.Mem, access)
	require.NoError(t, err)
	closeAtEnd(t, "MR", e.MR)

	qpCap := cfg.Cap
	setDefault(&qpCap.MaxSendWR, 64)
	setDefault(&qpCap.MaxRecvWR, 64)
	setDefault(&qpCap.MaxSendSGE, min(4, dev.MaxSGE))
	setDefault(&qpCap.MaxRecvSGE, min(4, dev.MaxSGE))
	setDefault(&qpCap.MaxInlineData, min(64, dev.MaxInlineData))
	// A device may grant more than was asked for, so the CQs have room to spare.
	for _, cq := range []struct {
		cq *verbs.CQ
		n  int
	}{{&e.SendCQ, qpCap.MaxSendWR}, {&e.RecvCQ, qpCap.MaxRecvWR}} {
		if *cq.cq == nil {
			*cq.cq, err = ctx.CreateCQ(min(4*cq.n+16, dev.MaxCQE), e.channel)
			require.NoError(t, err)
			closeAtEnd(t, "CQ", *cq.cq)
		}
	}
	attr := verbs.QPInitAttr{
		Type: cfg.Type, SendCQ: e.SendCQ, RecvCQ: e.RecvCQ, SRQ: cfg.SRQ,
		Cap: qpCap, SendOps: cfg.SendOps, SigAll: cfg.SigAll, UserData: e,
	}
	if attr.Type == 0 {
		attr.Type = verbs.QPTypeRC
	}
	e.QP, err = create(e.PD, &attr)
	require.NoError(t, err)
	closeAtEnd(t, "QP", e.QP)
	e.Cap = attr.Cap
	return e
}

func setDefault(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

// Address is what the peer must know of the End.
func (e *End) Address() Address {
	return Address{QPN: e.QP.QPN(), PSN: e.PSN, GID: e.At.GID, LID: e.At.LID}
}

// Init takes the QP from RESET to INIT, where it takes receives.
func (e *End) Init() {
	e.t.Helper()
	attr := e.At.InitAttr(e.Conn)
	require.NoError(e.t, e.QP.Modify(&attr, verbs.UpMask(e.QP.Type(), verbs.QPInit)))
}

// Connect brings the QP up to RTS.
func (e *End) Connect(remote Address) {
	e.t.Helper()
	require.NoError(e.t, BringUp(e.QP, e.At, e.Address(), remote, e.Conn))
}

// SGE is a piece of the End's memory.
func (e *End) SGE(off, n int) verbs.SGE {
	return verbs.SGE{Addr: e.MR.Addr() + uint64(off), Length: uint32(n), LKey: e.MR.LKey()}
}

// SGL is a list of one SGE.
func (e *End) SGL(off, n int) []verbs.SGE { return []verbs.SGE{e.SGE(off, n)} }

// Post posts send requests, all of which must be taken.
func (e *End) Post(wrs ...verbs.SendWR) {
	e.t.Helper()
	n, err := e.QP.PostSend(wrs)
	require.NoError(e.t, err)
	require.Equal(e.t, len(wrs), n)
}

// Recv posts a receive of a piece of the End's memory.
func (e *End) Recv(id uint64, off, n int) {
	e.t.Helper()
	e.PostRecv(verbs.RecvWR{WRID: id, SGList: e.SGL(off, n)})
}

// PostRecv posts receives, all of which must be taken.
func (e *End) PostRecv(wrs ...verbs.RecvWR) {
	e.t.Helper()
	n, err := e.QP.PostRecv(wrs)
	require.NoError(e.t, err)
	require.Equal(e.t, len(wrs), n)
}

// Sent waits for n completions of the send CQ.
func (e *End) Sent(n int) []verbs.WC {
	e.t.Helper()
	return collect(e.t, e.SendCQ, n, e.timeout)
}

// Received waits for n completions of the receive CQ.
func (e *End) Received(n int) []verbs.WC {
	e.t.Helper()
	return collect(e.t, e.RecvCQ, n, e.timeout)
}

// SentOK waits for the successful completion of one send request.
func (e *End) SentOK(id uint64, op verbs.WCOpcode) verbs.WC {
	e.t.Helper()
	return requireOK(e.t, e.Sent(1)[0], e.QP, id, op)
}

// ReceivedOK waits for the successful completion of one receive.
func (e *End) ReceivedOK(id uint64, op verbs.WCOpcode) verbs.WC {
	e.t.Helper()
	return requireOK(e.t, e.Received(1)[0], e.QP, id, op)
}

func requireOK(t testing.TB, wc verbs.WC, qp verbs.QP, id uint64, op verbs.WCOpcode) verbs.WC {
	t.Helper()
	require.Equal(t, verbs.WCSuccess, wc.Status, "status %v of %+v", wc.Status, wc)
	require.Equal(t, id, wc.WRID, "WRID of %+v", wc)
	require.Equal(t, op, wc.Opcode, "opcode %v of %+v", wc.Opcode, wc)
	require.Equal(t, qp.QPN(), wc.QPN, "QPN of %+v", wc)
	return wc
}
