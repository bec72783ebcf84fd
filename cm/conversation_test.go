package cm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A talker is one end of a connection that is brought up by hand, and then holds the
// conversation that one reads of in every introduction: the ends tell each other their
// memory by SEND and RECV, one WRITEs into the other's with an immediate for a
// doorbell, the other gives each buffer back when it is done with it, and a last
// message ends it. It does without testing, for it runs in processes of its own, too.
type talker struct {
	ctx     verbs.Context
	pd      verbs.PD
	channel verbs.CompChannel
	cq      verbs.CQ
	mem     verbs.Memory
	mr      verbs.MR
	qp      verbs.QP
	at      Port
	local   QPAddr

	done []verbs.WC // completions that nobody has asked for
	free []span     // buffers of the peer
}

const (
	talkPatience = 30 * time.Second
	talkBuffers  = 4 // of each end
	talkSize     = 16 << 10
	talkRounds   = 13
	talkReceives = 8
	messageLen   = 24
)

// The memory of a talker: its buffers, what it sends, and a slot for each receive.
const (
	sendOffset = talkBuffers * talkSize
	recvOffset = sendOffset + messageLen
	talkMemory = recvOffset + talkReceives*messageLen
)

// The kinds of messages. MSG_MR offers a buffer, MSG_FREE gives one back.
const (
	msgMR = 1 + iota
	msgFree
	msgDone
)

// A span is a piece of an end's memory that its peer may write.
type span struct {
	addr uint64
	rkey uint32
	size uint32
}

// newTalker makes a QP at the port that a local address belongs to, in INIT.
func newTalker(device string, local netip.Addr, param *BringUpParam) (*talker, error) {
	at, err := PortFor(device, local)
	if err != nil {
		return nil, err
	}
	x := &talker{at: at}
	if err := x.make(param); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

func (x *talker) make(param *BringUpParam) (err error) {
	if x.ctx, err = x.at.Device.Open(); err != nil {
		return err
	}
	if x.pd, err = x.ctx.AllocPD(); err != nil {
		return err
	}
	if x.channel, err = x.ctx.CreateCompChannel(); err != nil {
		return err
	}
	if x.cq, err = x.ctx.CreateCQ(64, x.channel); err != nil {
		return err
	}
	if x.mem, err = x.ctx.AllocMemory(talkMemory, talkMemory); err != nil {
		return err
	}
	if x.mr, err = x.pd.RegMR(x.mem.Bytes()[:talkMemory], verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return err
	}
	if x.qp, err = x.pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: x.cq, RecvCQ: x.cq,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: talkReceives, MaxSendSGE: 1, MaxRecvSGE: 1},
	}); err != nil {
		return err
	}
	if err = InitQP(x.qp, &x.at, param); err != nil {
		return err
	}
	for slot := range uint64(talkReceives) {
		if err = x.receive(slot); err != nil {
			return err
		}
	}
	x.local, err = LocalQPAddr(x.qp, &x.at)
	return err
}

// close destroys what there is, in the order that verbs ask for.
func (x *talker) close() error {
	var errs []error
	for _, c := range []io.Closer{x.qp, x.mr, x.mem, x.cq, x.channel, x.pd, x.ctx} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// bringUp exchanges the addresses over rw and connects the QP.
func (x *talker) bringUp(rw io.ReadWriter, param *BringUpParam) error {
	remote, err := ExchangeQPAddr(rw, &x.local)
	if err != nil {
		return err
	}
	return BringUp(x.qp, &x.at, x.local, remote, param)
}

// receive posts a receive, whose WRID is its slot.
func (x *talker) receive(slot uint64) error {
	sge := verbs.SGE{Addr: x.mr.Addr() + recvOffset + slot*messageLen, Length: messageLen, LKey: x.mr.LKey()}
	_, err := x.qp.PostRecv([]verbs.RecvWR{{WRID: slot, SGList: []verbs.SGE{sge}}})
	return err
}

// wait returns the next completion that is a receive's, or is not.
func (x *talker) wait(receive bool) (verbs.WC, error) {
	var found verbs.WC
	var failure error
	try := func() bool {
		for {
			for i, wc := range x.done {
				if (wc.Opcode == verbs.WCRecv || wc.Opcode == verbs.WCRecvRDMAWithImm) == receive || wc.Status != verbs.WCSuccess {
					x.done = append(x.done[:i:i], x.done[i+1:]...)
					found = wc
					return true
				}
			}
			var wcs [16]verbs.WC
			n, err := x.cq.Poll(wcs[:])
			if err != nil {
				failure = err
				return true
			}
			if n == 0 {
				return false
			}
			x.done = append(x.done, wcs[:n]...)
		}
	}
	armed := func() bool {
		if try() {
			return true
		}
		if failure = x.cq.ReqNotify(false); failure != nil {
			return true
		}
		return try()
	}
	if err := x.channel.SetReadDeadline(time.Now().Add(talkPatience)); err != nil {
		return found, err
	}
	if err := x.channel.WaitRead(armed); err != nil {
		return found, err
	}
	if failure != nil {
		return found, failure
	}
	if found.Status != verbs.WCSuccess {
		return found, found.Status
	}
	return found, nil
}

// post posts a request and waits until it is done.
func (x *talker) post(wr verbs.SendWR) error {
	wr.Flags = verbs.SendSignaled
	if _, err := x.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return err
	}
	_, err := x.wait(false)
	return err
}

// send sends a message.
func (x *talker) send(kind uint64, s span) error {
	b := x.mem.Bytes()[sendOffset:]
	binary.LittleEndian.PutUint64(b, kind)
	binary.LittleEndian.PutUint64(b[8:], s.addr)
	binary.LittleEndian.PutUint32(b[16:], s.rkey)
	binary.LittleEndian.PutUint32(b[20:], s.size)
	return x.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{{Addr: x.mr.Addr() + sendOffset, Length: messageLen, LKey: x.mr.LKey()}}})
}

// next takes the next message, or the doorbell of a WRITE, which has no kind.
func (x *talker) next() (kind uint64, s span, imm uint32, err error) {
	wc, err := x.wait(true)
	if err != nil {
		return 0, s, 0, err
	}
	if wc.Opcode == verbs.WCRecv {
		if wc.ByteLen != messageLen {
			return 0, s, 0, fmt.Errorf("a message of %d bytes", wc.ByteLen)
		}
		b := x.mem.Bytes()[recvOffset+wc.WRID*messageLen:]
		kind = binary.LittleEndian.Uint64(b)
		s = span{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:])}
	}
	return kind, s, wc.ImmData, x.receive(wc.WRID)
}

// talk holds the conversation: one end writes, the other is written to.
func (x *talker) talk(rw io.ReadWriter, writer bool) error {
	var err error
	if writer {
		err = x.write()
	} else {
		err = x.offer()
	}
	if err != nil {
		return err
	}
	// The last acknowledgement goes out before either end destroys its QP.
	var b [1]byte
	if _, err := rw.Write(b[:]); err != nil {
		return err
	}
	_, err = io.ReadFull(rw, b[:])
	return err
}

// write writes into each buffer that the peer offers or gives back.
func (x *talker) write() error {
	for round := range talkRounds {
		for len(x.free) == 0 {
			kind, s, _, err := x.next()
			if err != nil {
				return err
			}
			if kind != msgMR && kind != msgFree {
				return fmt.Errorf("message of kind %d instead of a buffer", kind)
			}
			x.free = append(x.free, s)
		}
		to := x.free[0]
		x.free = x.free[1:]
		data := x.mem.Bytes()[:talkLength(round)]
		copy(data, talkData(round))
		if err := x.post(verbs.SendWR{
			Opcode: verbs.WRRDMAWriteWithImm, ImmData: uint32(round), RemoteAddr: to.addr, RKey: to.rkey,
			SGList: []verbs.SGE{{Addr: x.mr.Addr(), Length: uint32(len(data)), LKey: x.mr.LKey()}},
		}); err != nil {
			return fmt.Errorf("WRITE %d: %w", round, err)
		}
	}
	return x.send(msgDone, span{})
}

// offer offers its buffers and looks at what is written there.
func (x *talker) offer() error {
	buffers := make([]span, talkBuffers)
	for i := range buffers {
		buffers[i] = span{x.mr.Addr() + uint64(i*talkSize), x.mr.RKey(), talkSize}
		if err := x.send(msgMR, buffers[i]); err != nil {
			return fmt.Errorf("the first SEND: %w", err)
		}
	}
	for round := 0; ; round++ {
		kind, _, imm, err := x.next()
		if err != nil {
			return err
		}
		if kind == msgDone && round == talkRounds {
			return nil
		}
		if kind != 0 || imm != uint32(round) {
			return fmt.Errorf("message of kind %d with immediate %d in round %d", kind, imm, round)
		}
		i := round % talkBuffers // buffers come back in the order they were given
		at := i * talkSize
		if !bytes.Equal(talkData(round), x.mem.Bytes()[at:at+talkLength(round)]) {
			return fmt.Errorf("the bytes of round %d have changed", round)
		}
		if err := x.send(msgFree, buffers[i]); err != nil {
			return err
		}
	}
}

// talkLength has short writes and long ones, of many packets.
func talkLength(round int) int { return 1 + round*(talkSize-1)/(talkRounds-1) }

func talkData(round int) []byte {
	b := make([]byte, talkLength(round))
	for i := range b {
		b[i] = byte(i*7 + round*31)
	}
	return b
}

// converse is all of it, over rw. The ends check that they are at the right ports.
func converse(rw io.ReadWriter, device string, local netip.Addr, writer bool) (err error) {
	x, err := newTalker(device, local, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.bringUp(rw, nil); err != nil {
		return err
	}
	return x.talk(rw, writer)
}
