package link

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	// sendDepth is the number of send requests that may be outstanding: see defaultReceives.
	sendDepth = 127
	// controlRoom is how many of them data leaves to messages that are none.
	controlRoom = 16
	// maxInline is asked for on devices that look at the source after the post.
	maxInline = 192
	// bellLen is a doorbell that is a SEND: the immediate, big-endian.
	bellLen = 4
	// maxRetries bounds those of the QP, rnrRetries are those it has. No RNR happens, as each
	// message has a receive; the few tries are for a peer that is slow to post the first ones.
	maxRetries = 7
	rnrRetries = 3
)

// endpoint has the verbs objects of one end of a lane: a PD of its own, the ring of records,
// which is all the peer may write to beside the rings of streams, and local memory to send
// and to receive doorbells with.
type endpoint struct {
	ctx     verbs.Context
	pd      verbs.PD
	channel verbs.CompChannel
	recvCQ  verbs.CQ
	sendCQ  verbs.CQ
	qp      verbs.QP

	rings    *memory.Slab // of the lane: this only makes it
	remote   verbs.Memory // the ring of records
	remoteMR verbs.MR
	local    verbs.Memory // the first staging, and behind it the receives of doorbells
	localMR  verbs.MR

	inline      int
	receives    int
	records     int
	writeImm    bool
	sameHost    bool          // the peer is a process of this host
	confirm     *confirmation // by this, where it does not by itself
	synchronous bool          // the device is done with the source when PostSend returns
	// solicited reports that errors wake who has armed a queue for what is solicited, as the
	// specification has it. Those of soft-RoCE do not, so there everything wakes.
	solicited bool

	blank []verbs.RecvWR // receives without memory
	bells []verbs.RecvWR // bells[i] receives doorbell i, which is its WRID; without writeImm
	batch []verbs.RecvWR // of bells, those that are to be posted again
	due   int            // receives that are to be posted again
	lot   int            // how many together
}

// carries returns what the device can do, or an error if that is not what a lane needs.
func carries(ctx verbs.Context) (verbs.DeviceAttr, error) {
	attr, err := ctx.QueryDevice()
	if err == nil {
		err = suffices(ctx.Device().Transport(), &attr)
	}
	return attr, err
}

// suffices judges a device by what it says of itself.
func suffices(t verbs.Transport, attr *verbs.DeviceAttr) error {
	switch {
	case t == verbs.TransportIWARP && attr.Caps&verbs.CapSameHost == 0 && min(attr.MaxQPRdAtom, attr.MaxQPInitRdAtom) == 0:
		return fmt.Errorf("%w: no READs, which confirm what a lane sends over iWARP", verbs.ErrNotSupported)
	case min(attr.MaxQPWR, attr.MaxCQE) < sendDepth:
		return fmt.Errorf("%w: queues of %d requests and %d completions, a lane needs %d", verbs.ErrNotSupported, attr.MaxQPWR, attr.MaxCQE, sendDepth)
	case attr.MaxInlineData < lane.RecordLen:
		return inlineErr(attr.MaxInlineData)
	}
	return nil
}

func inlineErr(n int) error {
	return fmt.Errorf("%w: inline data of %d bytes, a record has %d", verbs.ErrNotSupported, n, lane.RecordLen)
}

// newEndpoint makes the objects on the device of id, with all receives posted.
func newEndpoint(id *cm.ID, c *Config) (_ *endpoint, err error) {
	ctx := id.Verbs()
	if ctx == nil {
		return nil, fmt.Errorf("%w: the lane is bound to no device", verbs.ErrNoDevice)
	}
	attr, err := carries(ctx)
	if err != nil {
		return nil, err
	}
	synchronous := attr.Caps&verbs.CapSynchronous != 0
	receives, records := c.depths(synchronous)
	p := &endpoint{
		ctx: ctx, receives: min(receives, attr.MaxQPWR, attr.MaxCQE), records: records,
		writeImm:    attr.Caps&verbs.CapWriteImm != 0,
		synchronous: synchronous,
		solicited:   attr.Caps&verbs.CapSameHost != 0,
		sameHost:    attr.Caps&verbs.CapSameHost != 0,
		confirm:     newConfirmation(ctx.Device().Transport(), &attr),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.destroy())
		}
	}()
	if p.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	if err = p.register(); err != nil {
		return nil, err
	}
	// A dial that has no memory for a stream asks nobody, and a listener answers nobody whom it
	// could not serve then: such lanes would hold what each other lacks.
	p.rings = memory.NewSlab(ctx, p.pd, c.Budget, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	chunk := memory.FirstChunk
	if p.synchronous { // where no memory is pinned, and each chunk more is one that the peer has to be asked for
		chunk = memory.ChunkSize
	}
	if err = p.rings.Prepare(c.FirstRing, chunk); err != nil {
		return nil, err
	}
	if p.channel, err = ctx.CreateCompChannel(); err != nil {
		return nil, err
	}
	if p.recvCQ, err = ctx.CreateCQ(p.receives, p.channel); err != nil {
		return nil, err
	}
	if p.sendCQ, err = ctx.CreateCQ(sendDepth, p.channel); err != nil {
		return nil, err
	}
	wantInline := maxInline
	if p.synchronous {
		wantInline = attr.MaxInlineData
	}
	init := verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: p.sendCQ, RecvCQ: p.recvCQ, SendOps: p.operations(),
		Cap: verbs.QPCap{
			MaxSendWR: sendDepth, MaxRecvWR: p.receives, MaxSendSGE: 1, MaxRecvSGE: 1,
			MaxInlineData: min(wantInline, attr.MaxInlineData),
		},
	}
	if p.qp, err = id.CreateQP(p.pd, &init); err != nil {
		return nil, err
	}
	if p.inline = init.Cap.MaxInlineData; p.inline < lane.RecordLen {
		return nil, inlineErr(p.inline)
	}
	return p, p.postAll()
}

// register makes the memory.
func (p *endpoint) register() (err error) {
	n := p.records * lane.RecordLen
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if p.confirm != nil { // what the peer may read, and behind the records what this end reads
		n += lane.RecordLen
		access |= verbs.AccessRemoteRead
	}
	if p.remote, err = p.ctx.AllocMemory(n, n); err != nil {
		return err
	}
	if p.remoteMR, err = p.pd.RegMR(p.remote.Bytes()[:n], access); err != nil {
		return err
	}
	if c := p.confirm; c != nil {
		c.sge[0] = verbs.SGE{Addr: p.remoteMR.Addr() + uint64(p.records*lane.RecordLen), Length: confirmLen, LKey: p.remoteMR.LKey()}
	}
	n = 0
	if !p.synchronous {
		n = firstStaging
	}
	if !p.writeImm {
		n += p.receives * bellLen
	}
	if n == 0 {
		return nil
	}
	if p.local, err = p.ctx.AllocMemory(n, n); err != nil {
		return err
	}
	p.localMR, err = p.pd.RegMR(p.local.Bytes()[:n], verbs.AccessLocalWrite)
	return err
}

// operations are what a lane posts, so that the device makes room for no other.
func (p *endpoint) operations() verbs.SendOps {
	switch {
	case p.writeImm:
		return verbs.NewSendOps(verbs.WRRDMAWriteWithImm, verbs.WRRDMAWrite)
	case p.confirm != nil:
		return verbs.NewSendOps(verbs.WRRDMAWrite, verbs.WRSend, verbs.WRRDMARead)
	}
	return verbs.NewSendOps(verbs.WRRDMAWrite, verbs.WRSend)
}

// postAll posts the first receives.
func (p *endpoint) postAll() error {
	p.blank = make([]verbs.RecvWR, 2*wcBatch)
	if !p.writeImm {
		p.bells = make([]verbs.RecvWR, p.receives)
		p.batch = make([]verbs.RecvWR, 0, 2*wcBatch)
		sges := make([]verbs.SGE, p.receives)
		for i := range p.bells {
			sges[i] = verbs.SGE{Addr: p.localMR.Addr() + uint64(p.bellOff(i)), Length: bellLen, LKey: p.localMR.LKey()}
			p.bells[i] = verbs.RecvWR{WRID: uint64(i), SGList: sges[i : i+1]}
		}
		_, err := p.qp.PostRecv(p.bells)
		return err
	}
	for left := p.receives; left > 0; {
		n, err := p.qp.PostRecv(p.blank[:min(left, len(p.blank))])
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// bellOff is where in the local memory doorbell i is received.
func (p *endpoint) bellOff(i int) int {
	return len(p.local.Bytes()[:p.localMR.Len()]) - (p.receives-i)*bellLen
}

// postpones is repost of n completions after which there is nothing to be posted yet, and reports whether that
// is so.
func (p *endpoint) postpones(n int) bool {
	if !p.writeImm || p.due+n >= p.lot {
		return false
	}
	p.due += n
	return true
}

// repost posts the receives of completions again, several together unless repostNow is true: as
// many as the lane's accounting allows are kept for the next time. It returns how many were posted.
func (p *endpoint) repost(wcs []verbs.WC, repostNow bool) (int, error) {
	if p.due += len(wcs); !p.writeImm {
		for i := range wcs {
			p.batch = append(p.batch, p.bells[wcs[i].WRID])
		}
	}
	if !repostNow && p.due < p.lot {
		return 0, nil
	}
	wrs := p.blank[:p.due]
	if !p.writeImm {
		wrs = p.batch
	}
	n, err := p.qp.PostRecv(wrs)
	p.due, p.batch = 0, p.batch[:0]
	return n, err
}

// sentDoorbell returns the doorbell that a receive has brought which is not the immediate of a WRITE.
func (p *endpoint) sentDoorbell(wc *verbs.WC) (uint32, error) {
	switch {
	case p.writeImm || wc.Opcode != verbs.WCRecv:
		return 0, fmt.Errorf("%w: %v is not how this lane rings", verbs.ErrProtocol, wc.Opcode)
	case wc.ByteLen != bellLen:
		return 0, fmt.Errorf("%w: a SEND of %d bytes, a doorbell has %d", verbs.ErrProtocol, wc.ByteLen, bellLen)
	}
	return binary.BigEndian.Uint32(p.local.Bytes()[p.bellOff(int(wc.WRID)):]), nil
}

// hello is what this end tells the other.
func (p *endpoint) hello(c *Config, streams lane.ID, epoch uint32, link hello.LinkID) hello.Word {
	return hello.Word{
		Checksums: c.checksums,
		Streams:   streams, WriteImm: p.writeImm, Receives: p.receives,
		Records: p.remoteMR.Addr(), RKey: p.remoteMR.RKey(), Places: p.records, Epoch: epoch,
		Lanes: c.lanes(p.sameHost), Link: link,
	}
}

// destroy destroys all, in the order that rdma-core asks for. MRs of others are
// closed by between, behind the QP and before the PD.
func (p *endpoint) destroy(between ...func() error) error {
	var errs []error
	if p.qp != nil {
		errs = append(errs, p.qp.Close())
	}
	for _, cq := range []verbs.CQ{p.recvCQ, p.sendCQ} {
		if cq != nil {
			errs = append(errs, cq.Close())
		}
	}
	if p.channel != nil {
		errs = append(errs, p.channel.Close())
	}
	for _, mr := range []verbs.MR{p.remoteMR, p.localMR} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	if p.rings != nil {
		errs = append(errs, p.rings.Close())
	}
	for _, f := range between {
		errs = append(errs, f())
	}
	for _, m := range []verbs.Memory{p.remote, p.local} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if p.pd != nil {
		errs = append(errs, p.pd.Close())
	}
	return errors.Join(errs...)
}
