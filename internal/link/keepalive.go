package link

import (
	"fmt"
	"net"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
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

// A pace is how a peer is looked after.
type pace struct {
	idle     time.Duration // of silence until it is asked
	interval time.Duration
	patience time.Duration // of silence until it is given up
}

// forGood is the longest time of a pace, some 70 years. Sums of a few of them are durations, too.
const forGood = time.Duration(1 << 61)

// paceOf is the pace of one configuration, whose times may be so long that their product is no duration.
func paceOf(c *net.KeepAliveConfig) pace {
	p := pace{min(c.Idle, forGood), min(c.Interval, forGood), forGood}
	if time.Duration(c.Count) < forGood/p.interval {
		p.patience = time.Duration(c.Count) * p.interval
	}
	p.patience += p.idle
	return p
}

// with is the pace of what wants o as well: whatever comes first.
func (p pace) with(o pace) pace {
	if p == (pace{}) {
		return o
	}
	return pace{min(p.idle, o.idle), min(p.interval, o.interval), min(p.patience, o.patience)}
}

func (p *pace) step() time.Duration { return max(min(p.interval/beatSteps, p.idle/2), minBeat) }

// A heartbeat decides when a silent peer is asked for a sign of life and when it is given up.
// It is a state machine without a clock: tick is called when the time that it asked for has
// passed.
type heartbeat struct {
	heard  uint64 // signs of life at the last tick
	asked  bool   // and then the peer was asked for one
	silent time.Duration
	late   bool // the last tick came much later than it was asked for
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
func (h *heartbeat) tick(heard uint64, late bool, p *pace) (beat, time.Duration) {
	switch {
	case heard != h.heard:
		*h = heartbeat{heard: heard}
		return beatRest, max(p.idle/2, minBeat)
	case !h.asked:
		h.asked, h.silent = true, p.idle
		return beatAsk, p.step()
	}
	h.silent += p.step()
	if h.silent >= p.patience && (!late || h.late) {
		return beatDead, p.step()
	}
	h.late = late
	return beatRest, p.step()
}

// keepAlive is the keepalive of a lane, one for all its streams. It has a timer only while
// there is a stream to probe. The lane's lock guards it.
//
// The peer is asked as often as the stream asks that wants it most. Each stream is given up by
// its own settings, and the lane with the last one. A stream that has none goes on until the
// device itself gives up, which happens to all at once.
//
// The sign of life asked for is the acknowledgement of a WRITE of no bytes or, on iWARP, the
// answer to a READ, which the peer's device gives without its software: a process that is
// stopped is not gone.
type keepAlive struct {
	beat    heartbeat
	timer   *time.Timer
	ticking bool
	due     time.Time     // of the next tick
	wait    time.Duration // until then, when it was set
	stalled int           // Writes that wait for room
	asked   uint64        // how often

	own  map[net.KeepAliveConfig]int // streams by their settings, if those are not the lane's
	owns int                         // how many
	lost int                         // streams that were given up, and have their ids yet
}

// persist is in force while a Write waits for room, where keepalive is off: all that it sent
// may have been acknowledged, and the credit never come. TCP asks a peer with a closed window as
// well (RFC 9293, 3.8.6.1).
var persist = withDefaultTimes(net.KeepAliveConfig{Enable: true})

// paceInForce is what to go by, nil if there is nothing to probe. mu is held.
func (e *laneEnd) paceInForce() *pace {
	k := &e.alive
	if e.err != nil || e.p.sameHost {
		return nil // of a process of this host the device tells at once that it is gone
	}
	var all pace
	off := false
	add := func(c *net.KeepAliveConfig) {
		if c.Enable {
			all = all.with(paceOf(c))
		}
		off = off || !c.Enable
	}
	if e.live > k.owns+k.lost {
		add(&e.cfg.KeepAlive)
	}
	for c := range k.own {
		add(&c)
	}
	if off && k.stalled > 0 || len(e.dialer.waiting) > 0 {
		all = all.with(paceOf(&persist))
	}
	if all == (pace{}) {
		return nil
	}
	return &all
}

// SetKeepAlive sets the keepalive of the stream: change makes the new settings of the old ones.
// Times that are 0 or below stand for the defaults. It has no effect within a host.
func (h *Stream) SetKeepAlive(change func(net.KeepAliveConfig) net.KeepAliveConfig) {
	s := h.lockNow()
	defer h.unlock()
	s.setKeepAlive(change)
}

// keepSettings has s have settings of its own. mu is held.
func (s *stream) keepSettings(c net.KeepAliveConfig) { s.kept = &c }

func (s *stream) setKeepAlive(change func(net.KeepAliveConfig) net.KeepAliveConfig) {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	c := withDefaultTimes(change(s.keepAlive()))
	if s.moving() {
		s.keepSettings(c) // for where it goes
		return
	}
	if c == s.keepAlive() || !s.end.counted || s.end.lost {
		return
	}
	e.disown(s)
	if k := &e.alive; c != e.cfg.KeepAlive {
		if k.own == nil {
			k.own = map[net.KeepAliveConfig]int{}
		}
		s.keepSettings(c)
		k.own[c]++
		k.owns++
	}
	e.startTicks()
	if p, k := e.paceInForce(), &e.alive; p != nil { // a program that sets it over and over puts nothing off
		if d := max(p.idle/2, minBeat); !k.beat.asked && time.Until(k.due) > d {
			k.next(d)
		}
	}
}

// keepAlive are the settings of the stream.
func (s *stream) keepAlive() net.KeepAliveConfig {
	if s.kept != nil {
		return *s.kept
	}
	return s.e.cfg.KeepAlive
}

// keepAlives is how often the peer was asked for a sign of life while the stream was there. mu is
// held.
func (s *stream) keepAlives() uint64 {
	if !s.end.counted {
		return s.counts.keepAlives
	}
	return s.e.alive.asked - s.counts.keepAlives
}

// disown forgets the settings of a stream. mu is held.
func (e *laneEnd) disown(s *stream) {
	k := &e.alive
	if s.kept == nil {
		return
	}
	if k.own[*s.kept]--; k.own[*s.kept] == 0 {
		delete(k.own, *s.kept)
	}
	k.owns--
	s.kept = nil
}

// giveUpSilent gives up the streams that have waited for the peer for long enough, and the lane
// if none is left. mu is held.
func (e *laneEnd) giveUpSilent(silent time.Duration) {
	err := fmt.Errorf("%w: no keepalive within %v", errNoAnswer, silent)
	left := 0
	var lost []*stream
	for _, s := range e.streams {
		if s == nil || !s.end.counted || s.end.lost {
			continue
		}
		if c := s.keepAlive(); !c.Enable && s.counts.seldom().stalled == 0 || silent < s.patience(&c) {
			left++
		} else {
			lost = append(lost, s)
		}
	}
	if left == 0 {
		e.failLocked(err)
		return
	}
	for _, s := range lost {
		e.disown(s)
		s.end.lost = true
		e.alive.lost++
		s.failWith(ended(err))
		e.dialer.answered(s)
		e.state.Reset(s.st, lane.CodeReset)
		s.out.writable = true
		s.in.waiter.found(e)
		s.out.waiter.found(e)
	}
	if e.role == lane.RoleDialer {
		e.retire() // another lane tells whether the peer is there
	}
	e.settle()
}

// patience is for how long the stream waits for a peer that is silent.
func (s *stream) patience(c *net.KeepAliveConfig) time.Duration {
	if !c.Enable {
		c = &persist
	}
	return paceOf(c).patience
}

// startTicks starts the ticks if there is a stream to probe. mu is held.
func (e *laneEnd) startTicks() {
	k := &e.alive
	if k.ticking {
		return
	}
	p := e.paceInForce()
	if p == nil {
		return
	}
	k.ticking = true
	k.beat = heartbeat{heard: e.signsOfLife()}
	if k.timer == nil {
		k.timer = time.AfterFunc(time.Hour, e.keepAliveTick)
	}
	k.next(max(p.idle/2, minBeat))
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
	e.startTicks() // ticks that find nobody end by themselves: most Writes wait briefly
}

// signsOfLife counts them. mu is held.
func (e *laneEnd) signsOfLife() uint64 { return e.counts.messagesIn + e.sq.completed }

// keepAliveTick is one tick of the timer.
func (e *laneEnd) keepAliveTick() {
	if !e.begin() {
		return
	}
	defer e.tasks.Done()
	e.mu.Lock()
	e.tickLocked()
	e.mu.Unlock()
	e.startWorker()
}

// tickLocked is keepAliveTick with mu held, which it may let go of meanwhile.
func (e *laneEnd) tickLocked() {
	k := &e.alive
	if k.beat.asked { // what has arrived is taken in, if not before this tick then before the next
		e.mu.Unlock()
		e.see()
		e.mu.Lock()
	}
	p := e.paceInForce()
	if p == nil {
		k.ticking = false
		return
	}
	if e.reapAndSettle(); e.err != nil {
		return
	}
	late := time.Since(k.due) > k.wait
	do, next := k.beat.tick(e.signsOfLife(), late, p)
	switch do {
	case beatAsk:
		k.asked++
		e.ask()
	case beatDead:
		if e.giveUpSilent(k.beat.silent); e.err != nil {
			return
		}
	}
	k.next(next)
}

// ask asks for a sign of life. A queue without room holds requests that ask as well.
func (e *laneEnd) ask() {
	if e.room(1) {
		if err := e.sq.ask(e.peer.Records, e.peer.RKey); err != nil {
			e.sendFailed(err)
		}
	}
	e.settle()
}
