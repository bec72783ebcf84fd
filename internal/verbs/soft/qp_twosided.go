//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

var sendEntries = [...]uint64{
	verbs.WRSend:        shm.EntrySend,
	verbs.WRSendWithImm: shm.EntrySendImm,
	verbs.WRSendWithInv: shm.EntrySendInv,
}

// sendTwoSided is SEND in its three forms. Four bytes go in the entry; more goes
// through the bounce area of the peer's inbox, in parts if it is larger than that.
func (q *qp) sendTwoSided(wr *verbs.SendWR) outcome {
	p, _, o := q.reach()
	if o != succeeded {
		return o
	}
	if q.sq.wait.sent > 0 {
		return q.sendRest(wr)
	}
	if p.srq != nil || uint32(p.out.Next) == p.out.Credit {
		if o := q.takeCredit(p); o != succeeded {
			return o
		}
	}
	size := uint64(len(wr.Inline)) + sgeLength(wr.SGList)
	if size > maxMsg {
		return failed(verbs.WCLocLenErr)
	}
	if !q.pd.allows(wr.SGList, 0) {
		return failed(verbs.WCLocProtErr)
	}
	if p.srq == nil && size > 0 {
		switch room := atomic.LoadUint32(p.out.LenOf(uint32(p.out.Next))); {
		case room == shm.LenRefused:
			q.sq.wait.badRecv = true
			return failed(verbs.WCRemOpErr)
		case size > uint64(room):
			q.sq.wait.tooLong = true
			return failed(verbs.WCRemInvReqErr)
		}
	}
	op := sendEntries[wr.Opcode]
	if wr.Flags&verbs.SendSolicited != 0 {
		op |= shm.EntrySolicited
	}
	if wr.Opcode == verbs.WRSendWithInv {
		p.drop(wr.ImmData)
	}
	if size <= 4 {
		var b [4]byte
		if !q.collect(b[:size], wr, 0) {
			return failed(verbs.WCLocProtErr)
		}
		p.out.Publish(op|shm.EntryData, wr.ImmData, size|uint64(shm.HostOrder.Uint32(b[:]))<<32)
		q.published(p, op)
		return succeeded
	}
	if !p.bounced {
		if !p.asked {
			p.asked = true
			q.link.tell(msgBounce)
		}
		return waitBounce
	}
	n, o := q.fill(p, wr, size)
	if o != succeeded {
		return o
	}
	p.out.Publish(op, wr.ImmData, size)
	q.published(p, op)
	if uint64(n) < size {
		// From here on the message must be finished.
		q.sq.wait.sent = n
		q.kick(p)
		return waitBounce
	}
	return succeeded
}

// sendRest goes on with a message of which a part has been sent.
func (q *qp) sendRest(wr *verbs.SendWR) outcome {
	p := q.peer
	size := uint64(len(wr.Inline)) + sgeLength(wr.SGList)
	n, o := q.fill(p, wr, size)
	q.sq.wait.sent += n
	if !o.waits() && o != succeeded {
		return o
	}
	if n > 0 {
		q.kick(p) // the receiver may sleep, and no entry tells it of this part
	}
	if uint64(q.sq.wait.sent) < size {
		return waitBounce
	}
	return succeeded
}

// fill puts as much of a message as there is room for into the bounce area.
func (q *qp) fill(p *peer, wr *verbs.SendWR, size uint64) (uint32, outcome) {
	area := uint64(p.out.BounceSize())
	emptied := atomic.LoadUint64(p.out.Long(shm.OffEmptied))
	used := p.out.Filled - emptied
	if used > area {
		q.link.close(fmt.Errorf("%w: more taken from the bounce area than was there", verbs.ErrProtocol))
		return 0, failed(verbs.WCFatalErr)
	}
	sent := uint64(q.sq.wait.sent)
	n := min(area-used, size-sent)
	if n == 0 || sent == 0 && n < size && used > 0 {
		// A message starts whole, or in an empty area. Asking the same peer again
		// is left to the timer.
		if p.stalled != emptied+1 {
			p.stalled = emptied + 1
			q.kick(p)
		}
		return 0, waitBounce
	}
	at := p.out.Filled & (area - 1)
	first := min(n, area-at)
	b := p.out.Bounce()
	if !q.collect(b[at:at+first], wr, uint32(sent)) || !q.collect(b[:n-first], wr, uint32(sent+first)) {
		return 0, failed(verbs.WCLocProtErr)
	}
	p.out.Filled += n
	atomic.StoreUint64(p.out.Long(shm.OffFilled), p.out.Filled)
	return uint32(n), succeeded
}

// kick has the peer look into its inbox even if its application does not.
func (q *qp) kick(p *peer) {
	if p.kicked {
		p.again = true
		return
	}
	p.kicked = true
	q.link.tell(msgKick)
}

// collect fills dst with the message of wr from byte skip on.
func (q *qp) collect(dst []byte, wr *verbs.SendWR, skip uint32) bool {
	if wr.Flags&verbs.SendInline != 0 {
		copy(dst, wr.Inline[skip:])
		return true
	}
	return q.pd.gather(dst, wr.SGList, skip)
}
