package rdmanet

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// sendDepth is the number of send requests that may be outstanding.
const sendDepth = 128

// minInline is the inline data that control messages need.
const minInline = sentLen

// maxInline is asked for on devices that look at the source after the post:
// more costs memory in every work request, and what is longer goes from a send block.
const maxInline = 192

// An identifier is what an endpoint asks of its *cm.ID.
type identifier interface {
	Verbs() verbs.Context
	CreateQP(verbs.PD, *verbs.QPInitAttr) (verbs.QP, error)
	Connect(*cm.ConnParam, time.Duration) error
	Accept(*cm.ConnParam) error
	Disconnect() error
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	Close() error
}

// An endpoint is the verbs half of a Conn: a PD of its own with one MR, the
// receive ring, so that a leaked key opens nothing else.
type endpoint struct {
	id       identifier
	device   string
	logger   *slog.Logger
	pd       verbs.PD
	channel  verbs.CompChannel
	recvCQ   verbs.CQ
	sendCQ   verbs.CQ
	qp       verbs.QP
	pinned   *pinnedMemory
	memory   verbs.Memory // credit block and ring
	mr       verbs.MR
	grown    verbs.MR        // mr of the larger ring, until the peer has changed over; or nil
	retiring *sync.WaitGroup // of smaller rings that are being deregistered; or nil
	data     []byte          // the ring in memory, as large as it may grow

	firstRing   uint32
	maxRing     uint32
	granted     int    // bytes of memory in use: the credit block and the ring as granted
	looked      uint64 // bytes of the stream whose place this end may look at, if onDemand
	inline      int    // the largest inline data
	sameHost    bool   // the device reaches this host only, and knows of a peer's death
	synchronous bool   // the device is done with the source when PostSend returns
	rekeys      bool   // both ends know of growth with a new rkey
	onDemand    bool   // the peer's writes back the ring; otherwise it is committed when granted
	writeImm    bool   // doorbells ride on the WRITE; otherwise a SEND follows it
	checksum    bool   // what is sent are frames with checksums
	acknowledge bool   // the listening end says when it has taken the confirmation

	sends   *sendDoorbells // only without writeImm
	confirm *confirmation  // only on iWARP

	peerAddr uint64
	peerRKey uint32
	nextRKey uint32 // of the peer's ring once its growth is taken up
}

// newEndpoint makes the verbs objects of a connection on the device of id, with
// all receives posted.
func newEndpoint(id identifier, s sizes, logger *slog.Logger) (_ *endpoint, err error) {
	ctx := id.Verbs()
	if ctx == nil {
		return nil, fmt.Errorf("%w: the connection is bound to no device", ErrNoDevice)
	}
	attr, err := ctx.QueryDevice()
	if err != nil {
		return nil, err
	}
	e := &endpoint{
		id: id, device: ctx.Device().Name(), logger: logger, pinned: newPinnedMemory(),
		firstRing: s.host.first, maxRing: s.host.most,
		synchronous: attr.Caps&verbs.CapSynchronous != 0 && !s.asynchronous,
		sameHost:    attr.Caps&verbs.CapSameHost != 0,
		writeImm:    attr.Caps&verbs.CapWriteImm != 0,
	}
	e.confirm = newConfirmation(ctx.Device().Transport(), &attr, s.confirming)
	e.onDemand = e.synchronous && attr.Caps&verbs.CapODP != 0
	if !e.sameHost {
		e.firstRing, e.maxRing = s.net.first, s.net.most
	}
	defer func() {
		if err != nil {
			e.destroyVerbs(nil)
			_ = e.pinned.release()
		}
	}()
	e.granted = ring.DataOffset + int(e.firstRing)
	committed := e.granted
	if e.onDemand {
		committed = ring.DataOffset // the credit block is read before the peer has written it
	}
	if e.memory, err = e.pinned.allocQueue(ctx, ring.DataOffset+int(e.maxRing), e.granted, committed, int(s.depth)); err != nil {
		return nil, err
	}
	e.data = e.memory.Bytes()[ring.DataOffset : ring.DataOffset+int(e.maxRing)]
	if e.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	registered := e.firstRing
	if e.synchronous {
		registered = e.maxRing // it costs nothing until it is backed
	}
	if e.mr, err = e.registerRing(registered); err != nil {
		return nil, err
	}
	if e.confirm != nil {
		e.confirm.mr = e.mr
	}
	if e.channel, err = ctx.CreateCompChannel(); err != nil {
		return nil, err
	}
	if e.recvCQ, err = ctx.CreateCQ(int(s.depth), e.channel); err != nil {
		return nil, err
	}
	if e.sendCQ, err = ctx.CreateCQ(sendDepth, e.channel); err != nil {
		return nil, err
	}
	wantInline := maxInline
	if e.synchronous {
		wantInline = attr.MaxInlineData
	}
	init := verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: e.sendCQ, RecvCQ: e.recvCQ, SendOps: e.operations(),
		Cap: verbs.QPCap{
			MaxSendWR: sendDepth, MaxRecvWR: int(s.depth), MaxSendSGE: 1, MaxRecvSGE: 1,
			MaxInlineData: min(wantInline, attr.MaxInlineData),
		},
	}
	if e.qp, err = id.CreateQP(e.pd, &init); err != nil {
		return nil, err
	}
	if e.inline = init.Cap.MaxInlineData; e.inline < minInline {
		return nil, fmt.Errorf("%w: inline data of %d bytes, %d are needed", verbs.ErrNotSupported, e.inline, minInline)
	}
	if !e.writeImm {
		e.sends = new(sendDoorbells)
		if err = e.sends.init(e, ctx, int(s.depth)); err != nil {
			return nil, err
		}
	}
	return e, e.postAll(int(s.depth))
}

// operations are what a connection posts, so that the device makes room for no other.
func (e *endpoint) operations() verbs.SendOps {
	if e.writeImm {
		return verbs.NewSendOps(verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm)
	}
	if e.confirm != nil {
		return verbs.NewSendOps(verbs.WRRDMAWrite, verbs.WRSend, verbs.WRRDMARead)
	}
	return verbs.NewSendOps(verbs.WRRDMAWrite, verbs.WRSend)
}

// handshake is what this end tells the other. asks says that it is the first to speak.
func (e *endpoint) handshake(s sizes, asks bool) cm.Handshake {
	h := cm.Handshake{
		Version: cm.Version, MinVersion: cm.MinVersion, Features: cm.FeatureRekey | checksumFeatures(s.checksum),
		Depth: s.depth, Addr: e.mr.Addr(), RKey: e.mr.RKey(), Size: e.firstRing, MaxSize: e.maxRing,
		Nonce: rand.Uint64(),
	}
	if e.writeImm {
		h.Features |= cm.FeatureWriteImm
	}
	if e.acknowledge || asks && !e.sameHost {
		h.Features |= cm.FeatureAcknowledge
	}
	return h
}

// meet takes in what the peer told.
func (e *endpoint) meet(s sizes, peer cm.Handshake) (err error) {
	if err := checkDoorbells(e.writeImm, peer); err != nil {
		return err
	}
	if e.checksum, err = cm.Checksums(checksumFeatures(s.checksum), peer.Features); err != nil {
		return err
	}
	e.peerAddr, e.peerRKey = peer.Addr, peer.RKey
	if e.confirm != nil {
		e.confirm.peerAddr, e.confirm.peerRKey = peer.Addr, peer.RKey
	}
	e.rekeys = peer.Features&cm.FeatureRekey != 0
	e.acknowledge = peer.Features&cm.FeatureAcknowledge != 0
	return nil
}

// checkDoorbells checks that both ends ring in the same way.
func checkDoorbells(writeImm bool, peer cm.Handshake) error {
	if (peer.Features&cm.FeatureWriteImm != 0) != writeImm {
		return fmt.Errorf("%w: one end rings doorbells with WRITE_WITH_IMM and the other with SEND", ErrProtocol)
	}
	return nil
}

func (e *endpoint) setDeadline(d direction, t time.Time) {
	// The only failure is that the channel is closed, and then nobody waits.
	if d == dirRead {
		_ = e.channel.SetReadDeadline(t)
	} else {
		_ = e.channel.SetWriteDeadline(t)
	}
}

func (e *endpoint) wait(d direction, try func() bool) error {
	if d == dirRead {
		return e.channel.WaitRead(try)
	}
	return e.channel.WaitWrite(try)
}

// up says that the QP is connected.
func (e *endpoint) up() bool { return e.qp.State() == verbs.QPRTS }

// abort tears the connection down without a word to the peer's application.
func (e *endpoint) abort() {
	if err := e.id.Disconnect(); err != nil {
		e.log(slog.LevelDebug, "rdmanet: disconnect", "err", err)
	}
}

// destroyVerbs destroys the verbs objects but for the id, in the order that
// rdma-core asks for: QP, CQs, channel, MRs.
func (e *endpoint) destroyVerbs(blocks *sendBlocks) error {
	errs := make([]error, 0, 16) // of each object one, nil as a rule
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	if e.retiring != nil {
		e.retiring.Wait() // for no peer: there is no connection any more
	}
	for _, cq := range []verbs.CQ{e.recvCQ, e.sendCQ} {
		if cq != nil {
			errs = append(errs, cq.Close())
		}
	}
	if e.channel != nil {
		errs = append(errs, e.channel.Close())
	}
	mrs := []verbs.MR{e.grown, e.mr}
	if e.confirm != nil && e.confirm.mr != e.mr {
		mrs = append(mrs, e.confirm.mr)
	}
	for _, mr := range mrs {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	if blocks != nil {
		errs = append(errs, blocks.close()...)
	}
	errs = append(errs, e.sends.destroy())
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	return errors.Join(errs...)
}

// destroy destroys all; the memory goes when the application holds none of it. The id
// comes last: a device may keep what the two ends share for their next connection.
func (e *endpoint) destroy(blocks *sendBlocks) {
	if err := errors.Join(e.destroyVerbs(blocks), e.pinned.release(), e.id.Close()); err != nil {
		e.log(slog.LevelWarn, "rdmanet: destroying a connection's RDMA objects", "err", err)
	}
	shortage.Freed()
}
