package rdmanet

import (
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/rdmanet/go-rdmanet/ring"
)

// The invariants of docs/ARCHITECTURE.md, as far as the two ends can be seen from
// outside. What a completion queue, a send queue or a ring may hold is checked where
// something is put into it.

// check is made after every step.
func (m *model) check() {
	for _, e := range m.ends {
		m.seen.look(e)
		if e.killed || e.finished {
			continue
		}
		e.checkTrust()
		if e.owner != nil {
			continue // it is in the middle of something
		}
		e.checkReceives()
		e.checkSendQueue()
		e.checkSleepers()
		e.checkGathered()
	}
}

// checkGathered: somebody is going to send what was gathered.
func (e *modelEnd) checkGathered() {
	c := e.conn
	if c.send.gatheredBytes() > 0 && !c.send.gathered.waits && !e.closed && c.term.mayFlush() {
		e.m.fail("invariant 6: %d bytes that %v has gathered wait for nothing", c.send.gathered.n, e)
	}
}

// checkTrust: nobody has told a lie, so nobody is taken for a liar.
func (e *modelEnd) checkTrust() {
	if err := e.conn.term.err(); err != nil && errors.Is(err, ring.ErrProtocol) {
		e.m.fail("invariant 2: %v takes its peer for a liar: %v", e, err)
	}
}

// checkReceives: what was reaped is posted again, whether or not the application reads.
func (e *modelEnd) checkReceives() {
	c, d := e.conn, &e.dev
	if d.failed || c.term.broken() || c.recv.done {
		return
	}
	if n := d.recvs.len() + d.recvCQ.wcs.len() + int(c.recv.reaped); n != int(e.m.set.depth) {
		e.m.fail("invariant 3: of %d receives of %v %d are posted, %d have completed, and %d wait to be posted again",
			e.m.set.depth, e, d.recvs.len(), d.recvCQ.wcs.len(), c.recv.reaped)
	}
	if c.recv.reaped >= ring.MaxHeld {
		e.m.fail("invariant 3: %d receives of %v are held back", c.recv.reaped, e)
	}
}

// checkSendQueue: a queue without room holds a request that will complete.
func (e *modelEnd) checkSendQueue() {
	c, d := e.conn, &e.dev
	if d.failed {
		return // a failure is not counted as a completion
	}
	if c.send.sq.room() < messageRoom && d.signaled == 0 {
		e.m.fail("invariant 5: the send queue of %v is full and nothing in it is signalled", e)
	}
	if have := int(simDepth - (d.posted - d.freed)); c.send.sq.room() > have {
		e.m.fail("invariant 5: %v takes its send queue to have room for %d, it has %d", e, c.send.sq.room(), have)
	}
}

// checkSleepers: nobody sleeps who has something to do, unless an event is on its way.
// There is no timer that would wake them.
func (e *modelEnd) checkSleepers() {
	c, d := e.conn, &e.dev
	if d.ch.event || d.ch.closed {
		return
	}
	for act, t := range e.threads {
		if t == nil || !t.asleep() {
			continue
		}
		why, free := "", c.send.ring.Free() >= c.send.leastRoom() && c.send.ring.Slots() > 0
		switch {
		case d.recvCQ.wcs.len() > 0 && !c.recv.done:
			why = "completions of receives"
		case c.term.failed():
			why = "a failure"
		case act == actReader && c.recv.ring.Buffered() > 0:
			why = "bytes to read"
		case act == actReader && c.term.has(termPeerFIN|termReadShut):
			why = "the end of the stream"
		case act == actWriter && c.term.has(termPeerClosed|termWriteShut):
			why = "nobody to write to"
		case act == actWriter && !c.term.sendDone() && free && d.sendCQ.wcs.len() > 0:
			why = "completions of sends"
		case act == actWriter && !c.term.sendDone() && free && c.send.sq.room() >= messageRoom && c.ep.synchronous && !c.send.wantBlock:
			why = "room"
		case c.send.ring.ControlSlots() > 0 && (c.send.sq.room() >= maxMessageWRs || d.sendCQ.wcs.len() > 0) && !c.term.has(termSendDone|termPeerClosed):
			switch {
			case c.send.pending != 0:
				why = "the end of the stream to send"
			case c.recv.ring.CreditDue():
				why = "a credit to send"
			}
		}
		if why != "" {
			e.m.fail("invariant 4: the %s of %v sleeps and has %s", actNames[act], e, why)
		}
	}
}

// judgeRead says whether a Read may end so.
func (e *modelEnd) judgeRead(err error) {
	e.checkTrust()
	p := e.peer
	ok := false
	switch {
	case err == io.EOF:
		if ok = e.closedRead; !ok {
			ok = p.said[ring.KindFIN]+p.said[ring.KindClose] > 0 && e.read == p.conn.send.stats.bytes
		}
	case errors.Is(err, net.ErrClosed):
		ok = e.closed
	case errors.Is(err, syscall.ETIMEDOUT):
		ok = !e.conn.ep.sameHost && p.dev.failed
	case errors.Is(err, syscall.ECONNRESET):
		ok = p.said[ring.KindReset] > 0 || p.dev.disconnected
	case errors.Is(err, syscall.EPIPE):
		ok = p.said[ring.KindClose] > 0
	}
	if !ok {
		e.m.fail("Read of %v ends with %v after %d of %d bytes; the peer has said %v", e, err, e.read, p.conn.send.stats.bytes, p.said)
	}
}

// judgeWrite says whether a Write may end so.
func (e *modelEnd) judgeWrite(err error) {
	e.checkTrust()
	p := e.peer
	ok := false
	switch {
	case errors.Is(err, net.ErrClosed):
		ok = e.closed
	case errors.Is(err, syscall.ETIMEDOUT):
		ok = !e.conn.ep.sameHost && p.dev.failed
	case errors.Is(err, syscall.ECONNRESET):
		// That the peer has closed arrives before it goes.
		ok = p.said[ring.KindReset] > 0 || p.dev.disconnected && (p.said[ring.KindClose] == 0 || p.killed || p.cut)
	case errors.Is(err, syscall.EPIPE):
		ok = p.said[ring.KindClose] > 0 || e.closedWrite
	}
	if !ok {
		e.m.fail("Write of %v ends with %v; the peer has said %v", e, err, p.said)
	}
}

// checkEnd is made when nothing can happen any more.
func (m *model) checkEnd() {
	if all := m.stuck(); len(all) > 0 {
		m.fail("invariant 4: nothing can happen any more, and there wait: %v", all)
	}
	for _, e := range m.ends {
		p := e.peer
		if e.killed {
			continue
		}
		sent := p.conn.send.stats.bytes
		if !p.killed && !p.dev.refused && p.conn.send.sums == nil && sent != p.sent {
			m.fail("%v has sent %d bytes and takes them for %d", p, p.sent, sent)
		}
		if rest := p.wrote - sent; !p.killed && !p.dev.refused && !p.unsure && rest != 0 {
			// What was gathered may be lost with the connection, and not before its end.
			if rest > maxGathered || p.said[ring.KindFIN]+p.said[ring.KindClose] > 0 {
				m.fail("%v has sent %d bytes, and its Writes say %d", p, sent, p.wrote)
			}
		}
		orderly := p.said[ring.KindFIN]+p.said[ring.KindClose] > 0 && p.said[ring.KindReset] == 0 && !p.plan.abort
		undisturbed := !p.killed && !e.cut && !e.plan.abort && e.said[ring.KindReset] == 0
		if orderly && undisturbed && !e.closedRead && !errors.Is(e.readEnd, net.ErrClosed) {
			if e.readEnd != io.EOF || e.read != sent {
				m.fail("%v ended in good order after %d bytes; %v has read %d, and then %v", p, sent, e, e.read, e.readEnd)
			}
		}
	}
}

// modelCoverage counts what has come about. A model that gets into no trouble tests
// nothing.
type modelCoverage struct {
	Models, Parks, Stalls, Grown, Resets, Ends, Kills, Cuts, Sums   uint64
	Wraps, NoSlots, NoRoom, TornCredits, Ahead, Coalesced, Gathered uint64
	fewestSlots                                                     int
}

// look counts, after a step, what an end is up against.
func (c *modelCoverage) look(e *modelEnd) {
	n := e.conn.send.ring.ControlSlots()
	if n < c.fewestSlots {
		c.fewestSlots = n
	}
	if n <= ring.ControlReserve {
		c.NoSlots++
	}
	if e.conn.send.sq.room() < messageRoom {
		c.NoRoom++
	}
	if e.dev.recvCQ.wcs.len() > 1 {
		c.Coalesced++
	}
}

// count counts what came about in a model that has come to its end.
func (c *modelCoverage) count(m *model) {
	c.Models++
	for _, e := range m.ends {
		conn := e.conn // a killed end holds its locks for ever
		c.Parks += conn.waiter(dirRead).parks.Load() + conn.waiter(dirWrite).parks.Load()
		c.Stalls += conn.send.stats.stalls
		c.Gathered += conn.send.gathered.writes
		c.Grown += conn.recv.stats.grown
		c.Resets += uint64(e.said[ring.KindReset])
		c.Ends += uint64(e.said[ring.KindFIN] + e.said[ring.KindClose])
		c.Kills += bit(e.killed)
		c.Cuts += bit(e.cut)
		c.Sums += bit(conn.recv.sums != nil)
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (c *modelCoverage) add(o *modelCoverage) {
	for _, n := range []struct{ to, from *uint64 }{
		{&c.Models, &o.Models}, {&c.Parks, &o.Parks}, {&c.Stalls, &o.Stalls}, {&c.Grown, &o.Grown}, {&c.Resets, &o.Resets},
		{&c.Ends, &o.Ends}, {&c.Kills, &o.Kills}, {&c.Cuts, &o.Cuts}, {&c.Sums, &o.Sums}, {&c.Wraps, &o.Wraps}, {&c.NoSlots, &o.NoSlots},
		{&c.NoRoom, &o.NoRoom}, {&c.TornCredits, &o.TornCredits}, {&c.Ahead, &o.Ahead}, {&c.Coalesced, &o.Coalesced}, {&c.Gathered, &o.Gathered},
	} {
		*n.to += *n.from
	}
	c.fewestSlots = min(c.fewestSlots, o.fewestSlots)
}
