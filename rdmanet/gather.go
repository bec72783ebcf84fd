package rdmanet

import "time"

// On a device that takes the bytes of a message after the post, a post is dear: a
// doorbell across a bus, or a system call. So a small Write that finds enough on its way
// leaves its bytes in the send block, and one message takes those of several: when the
// device has completed what was on its way, when there are maxGathered, when this end
// begins to wait for something to read, or at the latest at the second gatherTick without
// another Write. As with TCP's corking a Write on a quiet connection is sent at once.
const (
	// gatherBelow is the length of Writes that are gathered: above it the copy costs
	// as much as the post.
	gatherBelow = 2 << 10
	// gatherBehind is how many requests behind one that has not completed are enough on
	// their way.
	gatherBehind = 8
	// maxGathered is what makes up a message of its own.
	maxGathered = 16 << 10
	// gatherLooks is how many Writes are gathered between two looks at the send CQ,
	// each of which is as dear as a post.
	gatherLooks = 16
	// gatherTick is how long what was gathered waits when no Write follows.
	gatherTick = time.Millisecond
)

// gathered are bytes that were written and not yet posted. The Conn's tx lock guards it.
type gathered struct {
	n      int         // the last n used bytes of blocks.cur
	writes uint64      // gathered so far
	seen   uint64      // writes at the last tick
	timer  *time.Timer // made when first needed
	waits  bool        // the timer runs
	last   uint64      // sendQueue.posted after the last message of gathered bytes
}

// busySending says that the device is known to have enough to do: a message of gathered bytes, or
// many requests behind one that has not completed. The caller holds tx.
func (c *Conn) busySending() bool {
	q := &c.sq
	return q.sending() && (q.posted-q.signaled >= gatherBehind || c.gathered != nil && q.signaled == c.gathered.last)
}

// gather takes p whole, or nothing of it. The caller holds tx.
func (c *Conn) gather(p []byte) bool {
	if len(p) > gatherBelow || c.gatheredBytes() == 0 && !c.busySending() {
		return false
	}
	if c.gathered == nil {
		c.gathered = new(gathered)
	}
	g := c.gathered
	if g.n+len(p) > min(maxGathered, c.chunk) && !c.sendGathered() {
		return false
	}
	if g.n == 0 || g.writes%gatherLooks == 0 {
		if !c.reap() || g.n == 0 && !c.busySending() {
			return false
		}
	}
	if g.n+len(p) > c.send.Free() || c.send.Slots() < 2 || !c.room() {
		return false // where a ring has grown they may take two messages
	}
	b := c.blocks.cur
	if g.n == 0 {
		var err error
		if b, err = c.currentBlock(); b == nil || err != nil {
			return false
		}
	}
	if len(b.buf)-b.used < len(p) || len(p) > c.chunk {
		return false
	}
	copy(b.buf[b.used:], p)
	b.used += len(p)
	g.n += len(p)
	g.writes++
	c.txStats.copied += uint64(len(p))
	if !c.sq.sending() && c.sendGathered() {
		return true
	}
	c.startTick()
	return true
}

// gatheredBytes is how many bytes were written and not yet posted. The caller holds tx.
func (c *Conn) gatheredBytes() int {
	if c.gathered == nil {
		return 0
	}
	return c.gathered.n
}

// sendGathered posts what was gathered; false if some of it has to wait for room. The
// caller holds tx. Whatever is sent of the stream comes after it.
func (c *Conn) sendGathered() bool {
	for c.gatheredBytes() > 0 {
		g := c.gathered
		grant := c.send.Next(min(g.n, c.chunk))
		if grant.N == 0 || !c.term.mayFlush() || !c.room() {
			return false
		}
		b := c.blocks.cur
		off := b.used - g.n
		g.n -= grant.N
		// Signalled, so that what comes next is gathered until this has gone.
		if !c.postData(grant, b.source(off), true) {
			return false
		}
		b.last, g.last = c.sq.posted, c.sq.posted
	}
	return true
}

// startTick sees to it that what is gathered does not stay. The caller holds tx.
func (c *Conn) startTick() {
	g := c.gathered
	switch {
	case g.waits:
		return
	case g.timer == nil:
		g.timer = time.AfterFunc(gatherTick, c.tick)
	default:
		g.timer.Reset(gatherTick)
	}
	g.waits, g.seen = true, g.writes
}

// tick sends what was gathered, unless the device is busy and there are still Writes.
func (c *Conn) tick() {
	if !c.life.incref() {
		return // what closes the connection sends it
	}
	c.tx.Lock()
	g := c.gathered
	if g.seen != g.writes && c.reap() && c.sq.sending() {
		g.seen = g.writes
	} else {
		c.flushPending()
	}
	stuck := g.n > 0 && g.seen == g.writes
	c.tx.Unlock()
	if stuck {
		// It lacks room, which the peer may have given meanwhile.
		c.rx.Lock()
		c.progress()
		c.rx.Unlock()
	}
	c.tx.Lock()
	if g.waits = g.n > 0 && c.term.mayFlush(); g.waits {
		g.timer.Reset(gatherTick)
	}
	c.tx.Unlock()
	c.exit(c.life.decref())
}

// stopTick ends the timer of a connection that is closed.
func (c *Conn) stopTick() {
	c.tx.Lock()
	if c.gathered != nil && c.gathered.timer != nil {
		c.gathered.timer.Stop()
	}
	c.tx.Unlock()
}
