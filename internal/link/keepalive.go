package link

import (
	"fmt"
	"net"
	"time"
)

// Keepalive of a lane over a network, where Config.KeepAlive leaves the times open.
const (
	DefaultKeepAliveIdle     = 5 * time.Second
	DefaultKeepAliveInterval = time.Second
	DefaultKeepAliveCount    = 4
)

// withDefaultTimes returns c with the times that are zero, or negative, set.
func withDefaultTimes(c net.KeepAliveConfig) net.KeepAliveConfig {
	if c.Idle <= 0 {
		c.Idle = DefaultKeepAliveIdle
	}
	if c.Interval <= 0 {
		c.Interval = DefaultKeepAliveInterval
	}
	if c.Count <= 0 {
		c.Count = DefaultKeepAliveCount
	}
	return c
}

const (
	// minBeat bounds how often a lane looks after itself.
	minBeat = time.Millisecond
	// beatSteps is how often it looks in an interval at least: a step in which the process did not run
	// counts as one, however long it took.
	beatSteps = 4
)

// A heartbeat decides when a silent peer is asked for a sign of life and when it is given up.
// It is a state machine without a clock: tick is called when the time that it asked for has
// passed.
type heartbeat struct {
	heard   uint64 // signs of life at the last tick
	asked   bool   // and then the peer was asked for one
	silence int    // steps since
	late    bool   // the last tick came much later than it was asked for
}

type beat uint8

const (
	beatRest beat = iota // nothing to do
	beatAsk              // ask for a sign of life
	beatDead             // the peer is gone
)

// tick is told how many signs of life there were so far, and whether it comes much later than
// it was to. It says what to do and when to come again. A tick that sees a sign cannot know how
// long ago it came, so no two are further apart than half of Idle: silence is noticed after Idle
// at the latest. A peer is not given
// up at a tick that is late, unless the one before it was as well: what it has said while this
// process did not run may not be taken in yet.
func (h *heartbeat) tick(heard uint64, late bool, c *net.KeepAliveConfig) (beat, time.Duration) {
	step := max(min(c.Interval/beatSteps, c.Idle/2), minBeat)
	switch {
	case heard != h.heard:
		*h = heartbeat{heard: heard}
		return beatRest, max(c.Idle/2, minBeat)
	case !h.asked:
		h.asked = true
		return beatAsk, step
	}
	h.silence++
	if time.Duration(h.silence)*step >= time.Duration(c.Count)*c.Interval && (!late || h.late) {
		return beatDead, 0
	}
	h.late = late
	return beatRest, step
}

// keepAlive is the keepalive of a lane, one for all its streams. It has a timer only while
// there is a stream to look after. The lane's lock guards it.
//
// The sign of life asked for is the acknowledgement of a WRITE of no bytes or, on iWARP, the
// answer to a READ, which the peer's device gives without its software: a process that is
// stopped is not gone. Where a completion does not say that the peer's device has answered it is
// a PONG.
type keepAlive struct {
	beat    heartbeat
	timer   *time.Timer
	ticking bool
	due     time.Time     // of the next tick
	wait    time.Duration // until then, when it was set
	stalled int           // Writes that wait for room
	asked   uint64        // how often
}

// persist is in force while a Write waits for room, where keepalive is off: all that it sent
// may have been acknowledged, and the credit never come. TCP asks a peer with a closed window as
// well (RFC 9293, 3.8.6.1).
var persist = withDefaultTimes(net.KeepAliveConfig{Enable: true})

// keepAliveInForce is what to go by, nil if there is nothing to look after. mu is held.
func (e *laneEnd) keepAliveInForce() *net.KeepAliveConfig {
	switch {
	case e.err != nil || e.live+len(e.dials) == 0 || e.p.sameHost && !e.cfg.beats && !e.cfg.pings:
		return nil // of a process of this host the device tells at once that it is gone
	case e.cfg.KeepAlive.Enable:
		return &e.cfg.KeepAlive
	case e.alive.stalled > 0 || len(e.dials) > 0:
		return &persist
	}
	return nil
}

// lookAfter begins the ticks if there is something to look after. mu is held.
func (e *laneEnd) lookAfter() {
	k := &e.alive
	c := e.keepAliveInForce()
	if k.ticking || c == nil {
		return
	}
	k.ticking = true
	k.beat = heartbeat{heard: e.signsOfLife()}
	if k.timer == nil {
		k.timer = time.AfterFunc(time.Hour, e.keepAliveTick)
	}
	k.next(max(c.Idle/2, minBeat))
}

func (k *keepAlive) next(d time.Duration) {
	k.due, k.wait = time.Now().Add(d), d
	k.timer.Reset(d)
}

// stop is for a lane that has ended. mu is held.
func (k *keepAlive) stop() {
	if k.ticking {
		k.timer.Stop()
	}
}

// stalling is told when a Write begins to wait for room, and when it has waited. mu is held.
func (e *laneEnd) stalling(waits bool) {
	if !waits {
		e.alive.stalled--
		return
	}
	e.alive.stalled++
	e.lookAfter() // ticks that find nobody end by themselves: most Writes wait briefly
}

// signsOfLife counts them. mu is held.
func (e *laneEnd) signsOfLife() uint64 {
	n := e.counts.messagesIn
	if e.p.answers && !e.cfg.pings {
		n += e.sq.completed
	}
	return n
}

// keepAliveTick is one tick of the timer.
func (e *laneEnd) keepAliveTick() {
	if !e.begin() {
		return
	}
	defer e.tasks.Done()
	e.mu.Lock()
	e.tickLocked()
	e.mu.Unlock()
	e.chore()
}

// tickLocked is keepAliveTick with mu held, which it may let go of meanwhile.
func (e *laneEnd) tickLocked() {
	k := &e.alive
	if k.beat.asked { // what has arrived is taken in, if not before this tick then before the next
		e.mu.Unlock()
		e.see()
		e.mu.Lock()
	}
	c := e.keepAliveInForce()
	if c == nil {
		k.ticking = false
		return
	}
	e.reap()
	late := time.Since(k.due) > k.wait
	do, next := k.beat.tick(e.signsOfLife(), late, c)
	switch do {
	case beatAsk:
		k.asked++
		e.ask()
	case beatDead:
		silent := time.Duration(c.Count) * c.Interval
		e.failLocked(fmt.Errorf("%w: no keepalive within %v", errNoAnswer, silent))
		return
	}
	k.next(next)
}

// ask asks for a sign of life. A queue without room holds requests that ask as well.
func (e *laneEnd) ask() {
	switch {
	case !e.p.answers || e.cfg.pings:
		e.state.Ping(e.alive.asked)
	case e.room(1):
		if err := e.sq.ask(e.peer.records, e.peer.rkey); err != nil {
			e.sendFailed(err)
		}
	}
	e.settle()
}
