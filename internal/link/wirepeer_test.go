package link

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// What a wirePeer has and announces unless a test has it say something else.
const (
	wireReceives = 64
	wireRecords  = 16
	wireStreams  = 64
	wireRing     = 1 << 10 // of each of its streams
	wirePorts    = 40000   // of the places that it grants, as a listener
	wireReads    = 16
	wireSends    = 1024

	// Its memory has the ring of records, the rings of streams, the buffers of doorbells that
	// come as SENDs, and some that nobody else writes to.
	wireRings   = wireRecords * lane.RecordLen
	wireBells   = wireRings + (wireStreams+1)*wireRing
	wireScratch = wireBells + wireReceives*4
	wireMemory  = wireScratch + 4096
)

// A wirePeer speaks the protocol of docs/PROTOCOL.md by itself, through cm and verbs, as either
// end of a lane: it keeps none of the rules that a laneEnd keeps.
type wirePeer struct {
	t        testing.TB
	role     lane.Role
	ec       *cm.EventChannel
	id       *cm.ID
	listener *cm.ID // nil for a dialer
	writeImm bool
	iwarp    bool
	memory   verbs.Memory
	pd       verbs.PD
	mr       verbs.MR
	channel  verbs.CompChannel
	recvCQ   verbs.CQ
	sendCQ   verbs.CQ
	qp       verbs.QP
	cfg      wireConfig
	closed   bool

	// What the other end has said first, and what both reckon with.
	streams  uint16
	records  uint64
	rkey     uint32
	epoch    uint32
	places   uint32
	receives uint32 // own, that count
	link     uint64

	said   uint32 // records
	got    uint32
	free   int // receives of the other end
	owed   uint32
	opens  uint32
	queued []wireMessage // that came while the peer waited for slots
	store  []wireStream  // places that were granted and not taken
}

// A wireConfig says how a wirePeer behaves.
type wireConfig struct {
	device     string
	silent     bool                  // no receives are given back
	receives   int                   // posted; 0 is all, below 0 none
	rnr        uint8                 // RNR retries that it asks the other end for; 0 is for ever
	takesReads uint8                 // at once; 0 is wireReads
	hello      func(b []byte) []byte // changes the first word
	ring       func(r *lane.Ring)    // changes what is announced of each own ring
}

// A wireStream is what a wirePeer knows of a stream.
type wireStream struct {
	id       lane.ID
	port     uint16
	to       lane.Ring // of the other end
	own      lane.Ring
	offset   uint32 // of own in the peer's memory
	sent     uint64
	received uint64
	known    uint64 // bytes that the other end was told are consumed
}

// A wireMessage is one of the other end.
type wireMessage struct {
	lane.Doorbell
	record lane.Record
}

func newWirePeer(t testing.TB, role lane.Role, cfg wireConfig) *wirePeer {
	t.Helper()
	p := &wirePeer{t: t, role: role, cfg: cfg, ec: cm.NewEventChannel()}
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
	p.iwarp = ctx.Device().Transport() == verbs.TransportIWARP
	p.memory, err = ctx.AllocMemory(wireMemory, wireMemory)
	require.NoError(p.t, err)
	p.pd, err = ctx.AllocPD()
	require.NoError(p.t, err)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if p.iwarp {
		access |= verbs.AccessRemoteRead
	}
	p.mr, err = p.pd.RegMR(p.memory.Bytes()[:wireMemory], access)
	require.NoError(p.t, err)
	p.channel, err = ctx.CreateCompChannel()
	require.NoError(p.t, err)
	p.recvCQ, err = ctx.CreateCQ(wireReceives, p.channel)
	require.NoError(p.t, err)
	p.sendCQ, err = ctx.CreateCQ(wireSends, p.channel)
	require.NoError(p.t, err)
	p.qp, err = p.id.CreateQP(p.pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: p.sendCQ, RecvCQ: p.recvCQ,
		Cap: verbs.QPCap{MaxSendWR: wireSends, MaxRecvWR: wireReceives, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: min(256, attr.MaxInlineData)},
	})
	require.NoError(p.t, err)
	n := p.cfg.receives
	if n == 0 {
		n = wireReceives
	}
	for i := range n {
		p.postRecv(uint64(i))
	}
}

func (p *wirePeer) postRecv(i uint64) {
	p.t.Helper()
	wr := verbs.RecvWR{WRID: i}
	if !p.writeImm {
		wr.SGList = []verbs.SGE{{Addr: p.mr.Addr() + wireBells + 4*i, Length: 4, LKey: p.mr.LKey()}}
	}
	_, err := p.qp.PostRecv([]verbs.RecvWR{wr})
	require.NoError(p.t, err)
}

// hello is the first word, written as the table of docs/PROTOCOL.md has it.
func (p *wirePeer) hello() []byte {
	b := make([]byte, 48)
	copy(b, "RDML")
	b[4], b[5] = 1, 48
	le := binary.LittleEndian
	streams := uint16(wireStreams)
	if p.role == lane.RoleListener {
		streams = min(streams, p.streams)
	} else {
		p.epoch, p.link = 0x77, 0x1122334455667788
	}
	le.PutUint16(b[6:], streams)
	if p.writeImm {
		b[8] = 1
	}
	le.PutUint32(b[12:], wireReceives)
	le.PutUint64(b[16:], p.mr.Addr())
	le.PutUint32(b[24:], p.mr.RKey())
	le.PutUint32(b[28:], wireRecords)
	le.PutUint32(b[32:], p.epoch)
	le.PutUint16(b[36:], 1)
	le.PutUint64(b[40:], p.link)
	if p.cfg.hello != nil {
		b = p.cfg.hello(b)
	}
	return b
}

func (p *wirePeer) param() *cm.ConnParam {
	c := &cm.ConnParam{PrivateData: p.hello(), RetryCount: 7, RNRRetryCount: p.cfg.rnr}
	if c.RNRRetryCount == 0 {
		c.RNRRetryCount = 7
	}
	if p.iwarp {
		c.ResponderResources, c.InitiatorDepth = cmp.Or(p.cfg.takesReads, wireReads), wireReads
	}
	return c
}

// takeHello takes in the other end's first word.
func (p *wirePeer) takeHello(b []byte) {
	p.t.Helper()
	require.GreaterOrEqual(p.t, len(b), 48)
	require.Equal(p.t, "RDML\x01\x30", string(b[:6]))
	le := binary.LittleEndian
	p.streams = le.Uint16(b[6:])
	p.records, p.rkey = le.Uint64(b[16:]), le.Uint32(b[24:])
	p.places = min(wireRecords, le.Uint32(b[28:]))
	p.free = int(min(le.Uint32(b[12:]), 4*p.places))
	p.receives = min(wireReceives, 4*p.places)
	if p.role == lane.RoleListener {
		p.epoch, p.link = le.Uint32(b[32:]), le.Uint64(b[40:])
	} else {
		require.Equal(p.t, p.epoch, le.Uint32(b[32:]))
		require.Equal(p.t, p.link, le.Uint64(b[40:]))
		require.LessOrEqual(p.t, p.streams, uint16(wireStreams))
	}
}

// event waits for the next event of the peer's ids.
func (p *wirePeer) event() *cm.Event {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ev, err := p.ec.GetEvent(ctx)
	require.NoError(p.t, err, "the connection manager says nothing")
	return ev
}

// connect asks a listener for a lane.
func (p *wirePeer) connect(addr netip.AddrPort) {
	p.t.Helper()
	require.NoError(p.t, p.id.Resolve(context.Background(), netip.AddrPort{}, addr))
	p.makeQP()
	require.NoError(p.t, p.id.Connect(p.param(), 0))
}

// ask is connect that returns what came of it.
func (p *wirePeer) ask(addr netip.AddrPort) *cm.Event {
	p.t.Helper()
	p.connect(addr)
	return p.event()
}

// dial has a lane to a Listener. Nothing was said on it.
func (p *wirePeer) dial(addr netip.AddrPort) {
	p.t.Helper()
	ev := p.ask(addr)
	require.Equal(p.t, cm.Established, ev.Type, "%v", ev)
	p.takeHello(ev.Param.PrivateData)
}

// listen begins to listen and returns the address.
func (p *wirePeer) listen() netip.AddrPort {
	p.t.Helper()
	require.NoError(p.t, p.id.BindAddr(testAddr()))
	require.NoError(p.t, p.id.Listen(8))
	p.listener = p.id
	return p.listener.LocalAddr()
}

// request waits for a dialer, whose id becomes the peer's.
func (p *wirePeer) request() {
	p.t.Helper()
	ev := p.event()
	require.Equal(p.t, cm.ConnectRequest, ev.Type, "%v", ev)
	p.id = ev.ID
	p.takeHello(ev.Param.PrivateData)
}

// accept answers the dialer that request has found.
func (p *wirePeer) accept() {
	p.t.Helper()
	p.makeQP()
	require.NoError(p.t, p.id.Accept(p.param()))
	ev := p.event()
	for ev.Type == cm.ConnectRequest { // a dialer that has given this lane up already asks anew
		require.NoError(p.t, ev.ID.Close())
		ev = p.event()
	}
	require.Equal(p.t, cm.Established, ev.Type, "%v", ev)
}

// vanish ends the lane without a word.
func (p *wirePeer) vanish() {
	p.t.Helper()
	require.NoError(p.t, p.id.Disconnect())
}

// cutOff waits until the lane has ended from the other end.
func (p *wirePeer) cutOff() {
	p.t.Helper()
	for {
		switch ev := p.event(); {
		case ev.Type == cm.Disconnected && ev.ID == p.id:
			return
		case ev.Type == cm.ConnectRequest: // of a dial that tries again
			p.t.Cleanup(func() { _ = ev.ID.Close() })
		}
	}
}

func (p *wirePeer) close() {
	if p.closed {
		return
	}
	p.closed = true
	var errs []error
	if p.qp != nil {
		errs = append(errs, p.qp.Close(), p.recvCQ.Close(), p.sendCQ.Close(), p.channel.Close(), p.mr.Close(), p.memory.Close(), p.pd.Close())
	}
	if p.id != p.listener {
		errs = append(errs, p.id.Close())
	}
	if p.listener != nil {
		errs = append(errs, p.listener.Close())
	}
	require.NoError(p.t, errors.Join(append(errs, p.ec.Close())...))
}

// post posts requests as they are, and drops what has completed.
func (p *wirePeer) post(wrs ...verbs.SendWR) {
	p.t.Helper()
	n, err := p.qp.PostSend(wrs)
	require.NoError(p.t, err)
	require.Len(p.t, wrs, n)
}

// bell sends a message: b to the address, if it is not nil, and an immediate that nobody has
// looked at.
func (p *wirePeer) bell(addr uint64, rkey uint32, b []byte, imm uint32) {
	p.t.Helper()
	p.free--
	p.post(p.bellWRs(addr, rkey, b, imm)...)
}

func (p *wirePeer) bellWRs(addr uint64, rkey uint32, b []byte, imm uint32) (wrs []verbs.SendWR) {
	if p.writeImm {
		wr := verbs.SendWR{
			Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendSolicited, ImmData: imm, RemoteAddr: addr, RKey: rkey,
		}
		if b != nil {
			wr.Flags, wr.Inline = wr.Flags|verbs.SendInline, b
		}
		return []verbs.SendWR{wr}
	}
	if b != nil {
		wrs = []verbs.SendWR{{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: b, RemoteAddr: addr, RKey: rkey}}
	}
	return append(wrs, verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSolicited, Inline: binary.BigEndian.AppendUint32(nil, imm),
	})
}

// try is bell that reports whether the QP took it.
func (p *wirePeer) try(addr uint64, b []byte, imm uint32) bool {
	_, err := p.qp.PostSend(p.bellWRs(addr, p.rkey, b, imm))
	return err == nil
}

// imm sends a message of an immediate alone.
func (p *wirePeer) imm(i uint32) { p.t.Helper(); p.bell(p.records, p.rkey, nil, i) }

// pace waits until the other end has receives enough for any message.
func (p *wirePeer) pace() {
	p.t.Helper()
	for p.free <= 8 {
		p.queued = append(p.queued, p.hear())
	}
}

// record says the next record; f, if it is not nil, changes its bytes.
func (p *wirePeer) record(r lane.Record, f func(b []byte)) {
	p.t.Helper()
	r.Epoch, r.Number = p.epoch, p.said
	b := make([]byte, lane.RecordLen)
	require.NoError(p.t, r.Put(b))
	if f != nil {
		f(b)
	}
	p.bell(p.records+uint64(p.said%p.places)*lane.RecordLen, p.rkey, b, lane.Doorbell{Type: lane.TypeControl}.Imm())
	p.said++
}

// say is record by an end that keeps to the protocol.
func (p *wirePeer) say(r lane.Record) { p.t.Helper(); p.pace(); p.record(r, nil) }

// next waits for a completion.
func (p *wirePeer) next(cq verbs.CQ) verbs.WC {
	p.t.Helper()
	var wc [1]verbs.WC
	poll := func() bool {
		n, err := cq.Poll(wc[:])
		return n > 0 || err != nil
	}
	require.NoError(p.t, p.channel.SetReadDeadline(time.Now().Add(patience)))
	require.NoError(p.t, p.channel.WaitRead(func() bool {
		return poll() || cq.ReqNotify(false) != nil || poll()
	}), "nothing completes")
	return wc[0]
}

// hear waits for the other end's next message, as it comes.
func (p *wirePeer) hear() wireMessage {
	p.t.Helper()
	m, ok := p.hearUnlessEnded()
	require.True(p.t, ok, "the lane has ended")
	return m
}

// hearUnlessEnded is hear that reports whether the lane stands.
func (p *wirePeer) hearUnlessEnded() (_ wireMessage, ok bool) {
	p.t.Helper()
	wc := p.next(p.recvCQ)
	if wc.Status == verbs.WCWRFlushErr {
		return wireMessage{}, false
	}
	require.Equal(p.t, verbs.WCSuccess, wc.Status)
	imm := wc.ImmData
	if !p.writeImm {
		imm = binary.BigEndian.Uint32(p.memory.Bytes()[wireBells+4*wc.WRID:])
	}
	d, err := lane.ParseDoorbell(imm)
	require.NoError(p.t, err)
	m := wireMessage{Doorbell: d}
	switch d.Type {
	case lane.TypeSlots:
		p.free += int(d.N)
	case lane.TypeControl:
		at := p.got % p.places * lane.RecordLen
		m.record, err = lane.ParseRecord(append([]byte(nil), p.memory.Bytes()[at:at+lane.RecordLen]...))
		require.NoError(p.t, err)
		require.Equal(p.t, p.epoch, m.record.Epoch)
		require.Equal(p.t, p.got, m.record.Number)
		p.got++
	}
	p.postRecv(wc.WRID)
	if p.owed++; !p.cfg.silent && p.owed >= p.receives/4 {
		p.imm(lane.Doorbell{Type: lane.TypeSlots, N: p.owed}.Imm())
		p.owed = 0
	}
	return m, true
}

// heard returns the other end's next message that is about streams. What an honest peer has to
// answer at once is answered.
func (p *wirePeer) heard() wireMessage {
	p.t.Helper()
	for {
		var m wireMessage
		if len(p.queued) > 0 {
			m, p.queued = p.queued[0], p.queued[1:]
		} else {
			m = p.hear()
		}
		switch {
		case m.Type == lane.TypeSlots:
		case m.Type != lane.TypeControl:
			return m
		case m.record.Kind == lane.KindPlaces:
			p.granted(m.record)
		case m.record.Kind == lane.KindWant: // a test knows when to grant
		default:
			return m
		}
	}
}

// heardRecord returns the next record, which is of a kind, and passes over data and credits.
func (p *wirePeer) heardRecord(k lane.Kind) lane.Record {
	p.t.Helper()
	for {
		if m := p.heard(); m.Type == lane.TypeControl {
			require.Equal(p.t, k, m.record.Kind, "%+v", m.record)
			return m.record
		}
	}
}

// granted keeps places.
func (p *wirePeer) granted(r lane.Record) {
	for i := range lane.ID(r.Count) {
		to := r.Ring
		to.Addr += uint64(i) * uint64(to.Size)
		p.store = append(p.store, wireStream{id: r.Stream + i, port: r.Port + uint16(i), to: to})
	}
}

// ownRing is the memory of the peer for a stream.
func (p *wirePeer) ownRing(s *wireStream) {
	s.offset = wireRings + uint32(s.id)*wireRing
	s.own = lane.Ring{Addr: p.mr.Addr() + uint64(s.offset), RKey: p.mr.RKey(), Size: wireRing}
	if p.cfg.ring != nil {
		p.cfg.ring(&s.own)
	}
}

// place takes a place, as a dialer, and asks for one if it has none.
func (p *wirePeer) place() wireStream {
	p.t.Helper()
	if len(p.store) == 0 {
		p.say(lane.Record{Kind: lane.KindWant, Count: 1})
	}
	for len(p.store) == 0 {
		if m := p.hear(); m.Type == lane.TypeControl && m.record.Kind == lane.KindPlaces {
			p.granted(m.record)
		} else {
			p.queued = append(p.queued, m)
		}
	}
	s := p.store[0]
	p.store = p.store[1:]
	p.ownRing(&s)
	return s
}

// open opens a stream, as a dialer, and waits until it was accepted.
func (p *wirePeer) open() *wireStream {
	p.t.Helper()
	s := p.beginOpen()
	require.Equal(p.t, s.id, p.heardRecord(lane.KindAccepted).Stream)
	return s
}

// beginOpen is open without waiting.
func (p *wirePeer) beginOpen() *wireStream {
	p.t.Helper()
	s := p.place()
	p.opens++
	p.say(lane.Record{Kind: lane.KindOpen, Stream: s.id, Ring: s.own, Opens: p.opens, Port: s.port})
	return &s
}

// serve grants a dialer one place, as a listener, and waits until it has opened a stream.
func (p *wirePeer) serve(id lane.ID) *wireStream {
	p.t.Helper()
	p.grant(id)
	return p.opened()
}

// grant grants a place. A listener says nothing before it has heard the dialer.
func (p *wirePeer) grant(id lane.ID) {
	p.t.Helper()
	if p.got == 0 {
		p.queued = append(p.queued, p.hear())
	}
	s := wireStream{id: id}
	p.ownRing(&s)
	p.say(lane.Record{Kind: lane.KindPlaces, Stream: id, Count: 1, Ring: s.own, Port: wirePorts + uint16(id)})
}

// opened waits for an OPEN and accepts.
func (p *wirePeer) opened() *wireStream {
	p.t.Helper()
	for {
		m := p.heard()
		if m.Type != lane.TypeControl {
			continue
		}
		require.Equal(p.t, lane.KindOpen, m.record.Kind, "%+v", m.record)
		s := wireStream{id: m.record.Stream, to: m.record.Ring, port: m.record.Port}
		p.ownRing(&s)
		p.say(lane.Record{Kind: lane.KindAccepted, Stream: s.id, Count: 1})
		return &s
	}
}

// write sends bytes of a stream, at most as many as go in one message.
func (p *wirePeer) write(s *wireStream, b []byte) {
	p.t.Helper()
	p.pace()
	p.bell(s.to.Addr+s.sent%uint64(s.to.Size), s.to.RKey, b, lane.Doorbell{Type: lane.TypeData, Stream: s.id, N: uint32(len(b))}.Imm())
	s.sent += uint64(len(b))
}

// read returns n bytes of a stream, and gives their room back.
func (p *wirePeer) read(s *wireStream, n int) (b []byte) {
	p.t.Helper()
	for len(b) < n {
		m := p.heard()
		if m.Type == lane.TypeCredit {
			continue
		}
		require.Equal(p.t, lane.TypeData, m.Type, "%+v", m)
		if m.Stream != s.id {
			continue
		}
		at := uint64(s.offset) + s.received%wireRing
		b = append(b, p.memory.Bytes()[at:at+uint64(m.N)]...)
		s.received += uint64(m.N)
		if g := (s.received - s.known) / lane.Granule; g >= wireRing/2/lane.Granule {
			p.pace()
			p.imm(lane.Doorbell{Type: lane.TypeCredit, Stream: s.id, N: uint32(g)}.Imm())
			s.known += g * lane.Granule
		}
	}
	return b
}

// mayRead has the QP send READs and atomics, and reports whether they are lies: on iWARP the ring
// of records may be read, and not every device has atomics. The connection manager has set how many
// to what the other end grants, and that is none.
func (p *wirePeer) mayRead(t *testing.T, op verbs.WROpcode) bool {
	t.Helper()
	attr, err := p.id.Verbs().QueryDevice()
	require.NoError(t, err)
	if op != verbs.WRRDMARead && attr.Caps&verbs.CapAtomics == 0 {
		return false
	}
	if p.iwarp {
		return true
	}
	sqd, rts := verbs.QPAttr{State: verbs.QPSQD, MaxRdAtomic: 1}, verbs.QPAttr{State: verbs.QPRTS}
	require.NoError(t, p.qp.Modify(&sqd, verbs.QPMaskState))
	drained := func(attr *verbs.QPAttr, mask verbs.QPAttrMask) {
		t.Helper()
		require.Eventually(t, func() bool { return p.qp.Modify(attr, mask) == nil }, patience, time.Millisecond)
	}
	drained(&sqd, verbs.QPMaskState|verbs.QPMaskMaxQPRdAtomic)
	drained(&rts, verbs.QPMaskState)
	return true
}
