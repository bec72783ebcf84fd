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

// gathered are bytes that were written and not yet posted. The send half's lock guards it.
type gathered struct {
	n      int         // the last n used bytes of blocks.cur
	writes uint64      // gathered so far
	seen   uint64      // writes at the last tick
	timer  *time.Timer // made when first needed
	waits  bool        // the timer runs
	last   uint64      // sendQueue.posted after the last message of gathered bytes
}

// busySending says that the device is known to have enough to do: a message of gathered bytes, or
// many requests behind one that has not completed. The caller holds mu.
func (w *sendHalf) busySending() bool {
	q := &w.sq
	return q.sending() && (q.posted-q.signaled >= gatherBehind || w.gathered != nil && q.signaled == w.gathered.last)
}

// gather takes p whole, or nothing of it. The caller holds mu.
func (w *sendHalf) gather(p []byte) bool {
	if len(p) > gatherBelow || w.gatheredBytes() == 0 && !w.busySending() {
		return false
	}
	if w.gathered == nil {
		w.gathered = new(gathered)
	}
	g := w.gathered
	if g.n+len(p) > min(maxGathered, int(w.chunk)) && !w.sendGathered() {
		return false
	}
	if g.n == 0 || g.writes%gatherLooks == 0 {
		if !w.reap() || g.n == 0 && !w.busySending() {
			return false
		}
	}
	if g.n+len(p) > w.ring.Free() || w.ring.Slots() < 2 || !w.reserveRoom() {
		return false // where a ring has grown they may take two messages
	}
	b := w.blocks.cur
	if g.n == 0 {
		var err error
		if b, err = w.currentBlock(); b == nil || err != nil {
			return false
		}
	}
	if len(b.buf)-b.used < len(p) || len(p) > int(w.chunk) {
		return false
	}
	copy(b.buf[b.used:], p)
	b.used += len(p)
	g.n += len(p)
	g.writes++
	w.stats.copied += uint64(len(p))
	if !w.sq.sending() && w.sendGathered() {
		return true
	}
	w.startTick()
	return true
}

// gatheredBytes is how many bytes were written and not yet posted. The caller holds mu.
func (w *sendHalf) gatheredBytes() int {
	if w.gathered == nil {
		return 0
	}
	return w.gathered.n
}

// sendGathered posts what was gathered; false if some of it has to wait for room. The
// caller holds mu. Whatever is sent of the stream comes after it.
func (w *sendHalf) sendGathered() bool {
	for w.gatheredBytes() > 0 {
		g := w.gathered
		grant := w.ring.Next(min(g.n, int(w.chunk)))
		if grant.N == 0 || !w.s.term.mayFlush() || !w.reserveRoom() {
			return false
		}
		b := w.blocks.cur
		off := b.used - g.n
		g.n -= grant.N
		// Signalled, so that what comes next is gathered until this has gone.
		if !w.postData(grant, b.source(off), true) {
			return false
		}
		b.last, g.last = w.sq.posted, w.sq.posted
	}
	return true
}

// startTick sees to it that what is gathered does not stay. The caller holds mu.
func (w *sendHalf) startTick() {
	g := w.gathered
	switch {
	case g.waits:
		return
	case g.timer == nil:
		g.timer = time.AfterFunc(gatherTick, w.tick)
	default:
		g.timer.Reset(gatherTick)
	}
	g.waits, g.seen = true, g.writes
}

// tick sends what was gathered, unless the device is busy and there are still Writes.
func (w *sendHalf) tick() {
	if !w.s.owner.enter() {
		return // what closes the connection sends it
	}
	w.mu.Lock()
	g := w.gathered
	if g.seen != g.writes && w.reap() && w.sq.sending() {
		g.seen = g.writes
	} else {
		w.flushPending()
	}
	stuck := g.n > 0 && g.seen == g.writes
	w.mu.Unlock()
	if stuck {
		// It lacks room, which the peer may have given meanwhile.
		w.s.recv.takeIn()
	}
	w.mu.Lock()
	if g.waits = g.n > 0 && w.s.term.mayFlush(); g.waits {
		g.timer.Reset(gatherTick)
	}
	w.mu.Unlock()
	w.s.owner.leave()
}

// stopTick ends the timer of a connection that is closed.
func (w *sendHalf) stopTick() {
	w.mu.Lock()
	if w.gathered != nil && w.gathered.timer != nil {
		w.gathered.timer.Stop()
	}
	w.mu.Unlock()
}
