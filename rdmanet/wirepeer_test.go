package rdmanet

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// What a wirePeer announces unless a test has it say something else.
const (
	wireRing    = 2 * ring.MinSize // a ring half as large is one too
	wireMaxRing = 4 * wireRing
	wireDepth   = ring.MinDepth

	// After the ring its memory has the buffers of doorbells that come as SENDs,
	// and some that nobody else writes to.
	wireBells   = ring.DataOffset + wireMaxRing
	wireScratch = wireBells + wireDepth*sentLen
	wireMemory  = wireScratch + 4096
)

// A wirePeer speaks the protocol of docs/PROTOCOL.md by itself, through cm and
// verbs: it keeps none of the rules that a Conn keeps.
type wirePeer struct {
	t        testing.TB
	ec       *cm.EventChannel
	id       *cm.ID
	listener *cm.ID // nil for a peer that dialled
	writeImm bool
	iwarp    bool // of a network: see docs/PROTOCOL.md, section 13
	memory   verbs.Memory
	pd       verbs.PD
	mr       verbs.MR
	channel  verbs.CompChannel
	recvCQ   verbs.CQ
	sendCQ   verbs.CQ
	qp       verbs.QP
	cfg      wireConfig
	closed   bool

	victim cm.Handshake // what the other end said
	warmed uint32       // doorbells that warm has rung
	sent   ring.Credit  // that came last, where credits are sent
}

// A wireConfig says how a wirePeer shakes hands.
type wireConfig struct {
	device string
	recvs  int                         // receives posted; 0 means all that are announced, below 0 none
	reads  bool                        // the other end's READs are answered
	rnr    uint8                       // RNR retries that it asks the other end for; 0 means for ever
	hello  func(h cm.Handshake) []byte // makes the private data; nil is an honest handshake
}

// newWirePeer makes a peer with an id that is neither connected nor bound.
func newWirePeer(t testing.TB, cfg wireConfig) *wirePeer {
	t.Helper()
	if cfg.device == "" {
		cfg.device = cm.DefaultDevice()
	}
	p := &wirePeer{t: t, cfg: cfg, ec: cm.NewEventChannel()}
	var err error
	p.id, err = p.ec.CreateID(cm.Options{Device: cfg.device})
	require.NoError(t, err)
	t.Cleanup(p.close)
	return p
}

// makeQP makes the verbs objects on the device of the id and posts the receives.
func (p *wirePeer) makeQP() {
	p.t.Helper()
	ctx := p.id.Verbs()
	require.NotNil(p.t, ctx)
	attr, err := ctx.QueryDevice()
	require.NoError(p.t, err)
	p.writeImm = attr.Caps&verbs.CapWriteImm != 0
	p.iwarp = ctx.Device().Transport() == verbs.TransportIWARP && attr.Caps&verbs.CapSameHost == 0
	p.memory, err = ctx.AllocMemory(wireMemory, wireMemory)
	require.NoError(p.t, err)
	p.pd, err = ctx.AllocPD()
	require.NoError(p.t, err)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if p.cfg.reads || p.iwarp {
		access |= verbs.AccessRemoteRead
	}
	p.mr, err = p.pd.RegMR(p.memory.Bytes()[:wireMemory], access)
	require.NoError(p.t, err)
	p.channel, err = ctx.CreateCompChannel()
	require.NoError(p.t, err)
	p.recvCQ, err = ctx.CreateCQ(wireDepth, p.channel)
	require.NoError(p.t, err)
	p.sendCQ, err = ctx.CreateCQ(1024, p.channel)
	require.NoError(p.t, err)
	p.qp, err = p.id.CreateQP(p.pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: p.sendCQ, RecvCQ: p.recvCQ,
		Cap: verbs.QPCap{MaxSendWR: 1024, MaxRecvWR: wireDepth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: min(1<<20, attr.MaxInlineData)},
	})
	require.NoError(p.t, err)
	n := p.cfg.recvs
	if n == 0 {
		n = wireDepth
	}
	for i := range n {
		p.postRecv(uint64(i))
	}
}

// postRecv posts the receive of slot i.
func (p *wirePeer) postRecv(i uint64) {
	p.t.Helper()
	_, err := p.qp.PostRecv([]verbs.RecvWR{p.recvWR(i)})
	require.NoError(p.t, err)
}

func (p *wirePeer) recvWR(i uint64) verbs.RecvWR {
	wr := verbs.RecvWR{WRID: i}
	if !p.writeImm {
		wr.SGList = []verbs.SGE{{Addr: p.mr.Addr() + wireBells + i*sentLen, Length: sentLen, LKey: p.mr.LKey()}}
	}
	return wr
}

// handshake is the private data that the peer sends.
func (p *wirePeer) handshake() []byte {
	p.t.Helper()
	h := cm.Handshake{
		Version: cm.Version, MinVersion: cm.MinVersion, Depth: wireDepth,
		Addr: p.mr.Addr(), RKey: p.mr.RKey(), Size: wireRing, MaxSize: wireMaxRing, Nonce: 1,
	}
	if p.writeImm {
		h.Features |= cm.FeatureWriteImm
	}
	if p.cfg.hello != nil {
		return p.cfg.hello(h)
	}
	b, err := h.MarshalBinary()
	require.NoError(p.t, err)
	return b
}

func (p *wirePeer) param() *cm.ConnParam {
	rnr := p.cfg.rnr
	if rnr == 0 {
		rnr = 7
	}
	c := &cm.ConnParam{PrivateData: p.handshake(), RetryCount: 7, RNRRetryCount: rnr, ResponderResources: maxReads}
	if p.iwarp {
		c.InitiatorDepth = maxReads
	}
	return c
}

// event waits for the next event of the peer's ids.
func (p *wirePeer) event() *cm.Event {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ev, err := p.ec.GetEvent(ctx)
	require.NoError(p.t, err)
	return ev
}

// ask resolves addr and asks for a connection.
func (p *wirePeer) ask(addr netip.AddrPort) {
	p.t.Helper()
	require.NoError(p.t, p.id.Resolve(context.Background(), netip.AddrPort{}, addr))
	p.makeQP()
	require.NoError(p.t, p.id.Connect(p.param(), patience))
}

// dial connects to a Listener and returns what came of it.
func (p *wirePeer) dial(addr netip.AddrPort) *cm.Event {
	p.t.Helper()
	p.ask(addr)
	ev := p.event()
	if ev.Type == cm.Established {
		p.meet(ev)
		p.speakFirst()
	}
	return ev
}

// listen begins to listen and returns the address.
func (p *wirePeer) listen() netip.AddrPort {
	p.t.Helper()
	require.NoError(p.t, p.id.BindAddr(netip.MustParseAddrPort(testAddr())))
	require.NoError(p.t, p.id.Listen(8))
	p.listener = p.id
	return p.listener.LocalAddr()
}

// request waits for a dialer, whose id becomes the peer's.
func (p *wirePeer) request() {
	p.t.Helper()
	p.take(p.event())
}

// take makes the id of a request the peer's, in place of that of the dialer before.
func (p *wirePeer) take(ev *cm.Event) {
	p.t.Helper()
	require.Equal(p.t, cm.ConnectRequest, ev.Type)
	if p.id != p.listener {
		_ = p.id.Close() // who asks for it may have done so
	}
	p.id = ev.ID
	p.meet(ev)
}

// answer does the same with each dialer that comes until done tells what became of them:
// who is hung up on, or refused by a listener that closes, dials again.
func (p *wirePeer) answer(done <-chan dialled, with func()) dialled {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	result := make(chan dialled, 1)
	go func() {
		result <- <-done
		cancel()
	}()
	for {
		ev, err := p.ec.GetEvent(ctx)
		if err != nil {
			return <-result
		}
		p.take(ev)
		with()
	}
}

// accept answers the dialer that request has found.
func (p *wirePeer) accept() {
	p.t.Helper()
	p.makeQP()
	require.NoError(p.t, p.id.Accept(p.param()))
	ev := p.event()
	for ev.Type == cm.ConnectRequest { // of the same dial, which took the first for lost
		other := ev.ID
		p.t.Cleanup(func() { _ = other.Close() })
		ev = p.event()
	}
	require.Equal(p.t, cm.Established, ev.Type)
}

// speakFirst is what a dialer says at once on iWARP, and hearFirst takes it.
func (p *wirePeer) speakFirst() {
	p.t.Helper()
	if p.iwarp {
		p.kind(ring.KindKeepAlive)
		p.warmed++
	}
}

func (p *wirePeer) hearFirst() {
	p.t.Helper()
	if p.iwarp {
		require.Equal(p.t, ring.KindKeepAlive, p.heard().Kind)
	}
}

func (p *wirePeer) meet(ev *cm.Event) {
	p.t.Helper()
	var err error
	p.victim, err = cm.ParseHandshake(ev.Param.PrivateData)
	require.NoError(p.t, err)
}

// close destroys what there is.
func (p *wirePeer) close() {
	if p.closed {
		return
	}
	p.closed = true
	var errs []error
	if p.qp != nil {
		errs = append(errs, p.qp.Close(), p.recvCQ.Close(), p.sendCQ.Close(), p.channel.Close(), p.mr.Close(), p.pd.Close(), p.memory.Close())
	}
	errs = append(errs, p.id.Close())
	if p.listener != nil {
		errs = append(errs, p.listener.Close())
	}
	errs = append(errs, p.ec.Close())
	require.NoError(p.t, errors.Join(errs...))
}

// vanish destroys the peer's connection without a word to the other end.
func (p *wirePeer) vanish() {
	p.t.Helper()
	require.NoError(p.t, p.id.Disconnect())
}

// cutOff waits until the connection has ended from the other end.
func (p *wirePeer) cutOff() {
	p.t.Helper()
	for p.event().Type != cm.Disconnected {
	}
}
