package rdmanet

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// Keepalive of a connection over a network, unless it is set otherwise. A reliable
// connection has none of its own (IBA 9.7.6.1.3 times requests only), so a reader
// whose peer is cut off would wait for ever. After DefaultKeepAliveIdle of silence
// a heartbeat is sent; it is answered by the peer's device, without its software. If
// that takes longer than DefaultKeepAliveCount times DefaultKeepAliveInterval, the
// connection fails with ETIMEDOUT: a black hole is noticed within nine seconds.
const (
	DefaultKeepAliveIdle     = 5 * time.Second
	DefaultKeepAliveInterval = time.Second
	DefaultKeepAliveCount    = 4
)

// minBeat bounds how often a connection looks after itself.
const minBeat = time.Millisecond

// keepAlive notices that the peer does not answer any more. Its lock is taken
// before the Conn's others.
type keepAlive struct {
	mu      sync.Mutex
	config  net.KeepAliveConfig  // without zeros or negative values
	stalled bool                 // a Write waits for room
	round   uint32               // tells a timer's call from one that was set later
	persist *net.KeepAliveConfig // is in force while a Write waits, if config is off
	beat    heartbeat
	timer   *time.Timer // nil while nobody is to be looked after
}

// A heartbeat decides when a silent peer is asked for a sign of life and when it is
// given up. It is a state machine without a clock: tick is called when the time that
// it asked for has passed.
type heartbeat struct {
	heard   uint64 // requests that the peer had answered at the last tick
	asked   bool   // and then it was asked
	silence int32  // ticks without an answer since
}

type beat uint8

const (
	beatRest beat = iota // nothing to do
	beatAsk              // send a heartbeat
	beatDead             // the peer is gone
)

// tick is told how many requests the peer has answered so far. It says what to do
// and when to come again. Silence is noticed after Idle at the latest, since a tick
// that sees an answer cannot know how long ago it came.
func (h *heartbeat) tick(heard uint64, config *net.KeepAliveConfig) (beat, time.Duration) {
	switch {
	case heard != h.heard:
		*h = heartbeat{heard: heard}
		return beatRest, max(config.Idle/2, minBeat)
	case !h.asked:
		h.asked = true
		return beatAsk, max(config.Interval, minBeat)
	}
	if h.silence++; int(h.silence) >= config.Count {
		return beatDead, 0
	}
	return beatRest, max(config.Interval, minBeat)
}

// dialKeepAlive is the configuration of a Dialer's or ListenConfig's two fields, as
// package net reads them.
func dialKeepAlive(idle time.Duration, config net.KeepAliveConfig) net.KeepAliveConfig {
	if !config.Enable && idle >= 0 {
		config = net.KeepAliveConfig{Enable: true, Idle: idle}
	}
	return mergeKeepAlive(defaultKeepAlive, config)
}

var defaultKeepAlive = net.KeepAliveConfig{Enable: true, Idle: DefaultKeepAliveIdle, Interval: DefaultKeepAliveInterval, Count: DefaultKeepAliveCount}

// mergeKeepAlive applies config to old: zeros choose the default, negative values
// leave things as they are.
func mergeKeepAlive(old, config net.KeepAliveConfig) net.KeepAliveConfig {
	old.Enable = config.Enable
	choose(&old.Idle, config.Idle, DefaultKeepAliveIdle)
	choose(&old.Interval, config.Interval, DefaultKeepAliveInterval)
	choose(&old.Count, config.Count, DefaultKeepAliveCount)
	return old
}

func choose[T int | time.Duration](old *T, value, otherwise T) {
	switch {
	case value > 0:
		*old = value
	case value == 0:
		*old = otherwise
	}
}

// configureKeepAlive sets the keepalive from now on.
func (s *stream) configureKeepAlive(change func(old net.KeepAliveConfig) net.KeepAliveConfig) {
	k := &s.keepAlive
	k.mu.Lock()
	defer k.mu.Unlock()
	config := change(k.config)
	if config == k.config && k.timer != nil {
		return // a program that sets it over and over must not put the heartbeat off
	}
	k.config = config
	k.stop()
	s.startKeepAlive()
}

// startKeepAlive sets the timer if there is something to look after. The caller holds
// keepAlive's lock.
func (s *stream) startKeepAlive() {
	k := &s.keepAlive
	config := k.inForce()
	// A process of this host cannot be lost without the device knowing.
	if config == nil || s.ep.sameHost || s.term.closed() {
		return
	}
	k.beat = heartbeat{}
	round := k.round
	k.timer = time.AfterFunc(max(config.Idle/2, minBeat), func() { s.lookAfter(round) })
}

// inForce is the configuration to go by, nil if there is nothing to look after. It is
// called with mu held.
func (k *keepAlive) inForce() *net.KeepAliveConfig {
	switch {
	case k.config.Enable:
		return &k.config
	case k.stalled:
		return k.persist
	}
	return nil
}

// stalling is told when a Write begins to wait for room and when it has waited. All that
// it sent may have been acknowledged, so that nothing is under way that could fail, and
// the credit never come. TCP asks a peer with a closed window for a sign of life whether
// keepalive is on or not (the persist timer; RFC 9293, 3.8.6.1), and so do we.
func (s *stream) stalling(waits bool) {
	if s.ep.sameHost {
		return
	}
	k := &s.keepAlive
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stalled = waits
	// A timer that finds nobody waiting ends by itself: most Writes wait briefly.
	if waits && k.timer == nil {
		s.startKeepAlive()
	}
}

func (s *stream) stopKeepAlive() {
	s.keepAlive.mu.Lock()
	defer s.keepAlive.mu.Unlock()
	s.keepAlive.stop()
}

// stop is called with mu held.
func (k *keepAlive) stop() {
	k.round++
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// lookAfter is one tick of the timer.
func (s *stream) lookAfter(round uint32) {
	if !s.owner.enter() {
		return
	}
	defer s.owner.leave()
	k := &s.keepAlive
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != round || !s.term.peerListens() {
		return // set anew, or nothing is left to look after
	}
	config := k.inForce()
	if config == nil {
		k.stop() // the Write has got its room
		return
	}
	heard, err := s.send.answered()
	if err != nil || s.term.sendDone() {
		s.giveUp()
		return
	}
	s.rescue()
	do, next := k.beat.tick(heard, config)
	switch do {
	case beatAsk:
		s.send.ask()
	case beatDead:
		silent := time.Duration(config.Count) * config.Interval
		s.fail(syscall.ETIMEDOUT, fmt.Errorf("%w: it did not answer a keepalive within %v", ErrPeerGone, silent))
		return
	}
	k.timer.Reset(next)
}

// answered is how many requests the peer's device has answered.
func (w *sendHalf) answered() (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.sq.reap(); err != nil {
		w.sendFailed(err)
		return 0, err
	}
	w.flushPending() // there may be room for it now, and nobody else to see
	return w.sq.completed, nil
}

// ask sends a WRITE of no bytes or, on iWARP, a READ, which takes neither room nor a receive
// of the peer's. A queue without room for it holds requests that ask as well.
func (w *sendHalf) ask() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.s.term.sendDone() || w.sq.room() <= sendQueueReserve {
		return
	}
	if err := w.postHeartbeat(); err != nil {
		w.postFailed(err)
		return
	}
	w.stats.keepAlives++
}

func (w *sendHalf) postHeartbeat() error {
	if w.sq.confirm != nil {
		return w.sq.ask()
	}
	wrs := w.wr[:]
	wrs[0] = verbs.SendWR{
		Opcode:     verbs.WRRDMAWrite,
		RemoteAddr: w.ep.peerAddr + ring.CreditOffset, RKey: w.ep.peerRKey,
	}
	return w.sq.post(wrs, true)
}

// giveUp fails a connection whose requests fail or whose peer has left, unless the
// peer has said goodbye or why: a reader that sleeps may hear of it from nobody else.
func (s *stream) giveUp() {
	s.recv.takeIn()
	if !s.term.peerClosed() {
		s.failGone()
	} else {
		s.endWait(dirRead)
	}
}

// SetKeepAlive turns the keepalive on or off. It is on unless Dialer or
// ListenConfig say otherwise. While it is off a host that is gone or cut off is noticed
// by Writes only; one that waits for room asks as the keepalive would by default. The end
// of a peer's process is always told. On the software device,
// where the system itself tells at once that the peer's process has died, keepalive
// changes nothing.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	return c.setKeepAlive(func(old net.KeepAliveConfig) net.KeepAliveConfig {
		old.Enable = keepalive
		return old
	})
}

// SetKeepAlivePeriod sets how long the peer may be silent before it is asked for a
// sign of life; 0 means DefaultKeepAliveIdle, and a negative value changes nothing.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return c.setKeepAlive(func(old net.KeepAliveConfig) net.KeepAliveConfig {
		choose(&old.Idle, d, DefaultKeepAliveIdle)
		return old
	})
}

// SetKeepAliveConfig sets the keepalive. A peer that does not answer is given up,
// with ETIMEDOUT, after at most Idle + Count * Interval. Fields that are 0 mean
// DefaultKeepAliveIdle, DefaultKeepAliveInterval and DefaultKeepAliveCount;
// negative ones change nothing. Unlike TCP's the times need not be whole seconds.
//
// A connection that was given work notices a dead peer by that, too; see the
// timeouts in docs/ARCHITECTURE.md.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return c.setKeepAlive(func(old net.KeepAliveConfig) net.KeepAliveConfig {
		return mergeKeepAlive(old, config)
	})
}

func (c *Conn) setKeepAlive(change func(net.KeepAliveConfig) net.KeepAliveConfig) error {
	return c.set(func() { c.via.configureKeepAlive(change) })
}
