package rdmanet

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/runtimer"
)

const (
	// A client that was answered and has not confirmed gives way to one that waits for its
	// place when it has been silent for so many ticks. A tick in which this process, or the
	// whole machine, stood still is one tick: what it missed is read before the next.
	silentTick  = 25 * time.Millisecond
	silentTicks = 10
	// networkTicks are those of a client that does not learn that it was given up: on a
	// network its confirmation may be on its way.
	networkTicks = 80
	// maxUnconfirmed bounds the clients that were answered and have not confirmed, where
	// there are more places than that: each costs memory and descriptors.
	maxUnconfirmed = 1024
	// orderGrace is how long a connection that stands waits for one that was answered
	// before, where the device cannot tell whether that client has confirmed. An honest
	// one's confirmation is there already, and only has to be read. After a wait in vain
	// nobody is waited for during orderPause, so that clients that do not confirm cannot
	// hold up the others.
	orderGrace = 50 * time.Millisecond
	orderPause = time.Second
)

var (
	errHurry      = errors.New("the client has confirmed its connection")
	errEvicted    = errors.New("the client did not confirm its connection while others waited")
	errClientLeft = errors.New("client left before it was accepted")
)

// handshakes are the places of a listener, and who has them. A client has one from the
// answer to its request until Accept takes its connection: it was answered and has not
// confirmed, or stands and waits for its turn, or waits for Accept.
type handshakes struct {
	mu      sync.Mutex
	free    int       // places that nobody has
	asking  int       // clients that have one and no connection yet
	waiting list.List // *placeWaiter, the first to be served first
	leaving int       // clients that have to give way and still have their places
	ticking bool

	pending  list.List // *handshake, in the order of the answers
	standing int       // how many of them have a connection
	timer    *time.Timer
	hurry    time.Time // until then nobody is waited for
}

// A placeWaiter is a client that waits for a place.
type placeWaiter struct {
	elem *list.Element // in handshakes.waiting; nil when it has got its place
	got  chan struct{} // closed then
}

// A handshake is one client's. The zero value is one that has not begun.
type handshake struct {
	elem     *list.Element
	answered time.Time
	patience int // for how many ticks it may be silent
	ticks    int // for how many it has been while others waited
	evict    context.CancelCauseFunc
	evicted  bool
	conn     *Conn // stands, and waits for its turn

	// confirmed reports whether the client has confirmed, read or not, if that is known.
	// Unless it is nil it is set before the handshake begins.
	confirmed func() (confirmed, known bool)
}

// take takes a place, if there is one at once.
func (hs *handshakes) take() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.tryTake()
}

// tryTake is take with mu held.
func (hs *handshakes) tryTake() bool {
	if hs.free == 0 || hs.asking >= maxUnconfirmed {
		return false
	}
	hs.free--
	hs.asking++
	return true
}

// wait is for who did not get a place: it gets the next one after those who wait already.
// Pair with stopWaiting, unless the place was got.
func (hs *handshakes) wait() *placeWaiter {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	w := &placeWaiter{got: make(chan struct{})}
	if hs.tryTake() { // there is one meanwhile
		close(w.got)
		return w
	}
	w.elem = hs.waiting.PushBack(w)
	if !hs.ticking {
		hs.ticking = true
		time.AfterFunc(silentTick, hs.tick)
	}
	return w
}

// stopWaiting is for a client that leaves.
func (hs *handshakes) stopWaiting(w *placeWaiter) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if w.elem == nil {
		hs.giveBack() // it came too late
		hs.serve()
		return
	}
	hs.waiting.Remove(w.elem)
}

// release gives back the place of a connection that Accept returns.
func (hs *handshakes) release() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.free++
	hs.serve()
}

// giveBack gives back the place of a client without a connection. Called with mu held, as
// is serve, which follows.
func (hs *handshakes) giveBack() {
	hs.free++
	hs.asking--
}

// serve gives those who wait the places that there are.
func (hs *handshakes) serve() {
	for first := hs.waiting.Front(); first != nil && hs.tryTake(); first = hs.waiting.Front() {
		w := hs.waiting.Remove(first).(*placeWaiter)
		w.elem = nil
		close(w.got)
	}
}

// tick counts the time of those who are silent, as long as others wait.
func (hs *handshakes) tick() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.evictSilent()
	if hs.ticking = hs.waiting.Len() > 0; hs.ticking {
		time.AfterFunc(silentTick, hs.tick)
	}
}

// evictSilent has clients that were silent for too long give way, the oldest first, as many
// as others wait for a place and have none coming yet. Called with mu held, once in a tick.
func (hs *handshakes) evictSilent() {
	for e := hs.pending.Front(); e != nil; e = e.Next() {
		h := e.Value.(*handshake)
		if h.conn != nil || h.evicted {
			continue
		}
		h.ticks++
		if h.ticks > h.patience && hs.leaving < hs.waiting.Len() {
			h.evicted = true
			hs.leaving++
			h.evict(errEvicted)
		}
	}
}

// begin is called before the client is answered.
func (hs *handshakes) begin(h *handshake, patience int, evict context.CancelCauseFunc) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.answered, h.patience, h.evict = time.Now(), patience, evict
	h.elem = hs.pending.PushBack(h)
}

// fail ends a handshake, which may not have begun, without a connection. Its place is free.
func (hs *handshakes) fail(h *handshake, deliver func(*Conn)) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.elem != nil {
		hs.pending.Remove(h.elem)
	}
	hs.stay(h)
	hs.giveBack()
	hs.serve()
	hs.deliver(deliver)
}

// succeed ends a handshake with a connection, which is delivered when it is its turn.
func (hs *handshakes) succeed(h *handshake, c *Conn, deliver func(*Conn)) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.stay(h) // it had confirmed after all
	h.conn = c
	hs.standing++
	hs.asking--
	hs.serve()
	hs.deliver(deliver)
}

// stay says that h is not on its way out any more. Called with mu held.
func (hs *handshakes) stay(h *handshake) {
	if h.evicted {
		h.evicted = false
		hs.leaving--
	}
}

// deliver delivers the connections whose turn it is, so that clients that dialled one after
// the other are accepted in that order. A client that was answered before and has not
// confirmed yet is still in its dial, and not waited for. One that has does not hold up the
// others, since its connection stands at once, whether it says so or not. Called with mu held.
func (hs *handshakes) deliver(deliver func(*Conn)) {
	var next *list.Element
	for e := hs.pending.Front(); e != nil && hs.standing > 0; e = next {
		next = e.Next()
		h := e.Value.(*handshake)
		if h.conn != nil {
			hs.pending.Remove(e)
			hs.standing--
			deliver(h.conn)
			continue
		}
		if h.confirmed != nil {
			switch confirmed, known := h.confirmed(); {
			case known && confirmed:
				h.evict(errHurry) // which finds that it stands
				return
			case known:
				continue
			}
		}
		now := time.Now()
		left := orderGrace - now.Sub(h.answered)
		if left <= 0 || now.Before(hs.hurry) {
			continue
		}
		if hs.timer == nil {
			hs.timer = time.AfterFunc(left, func() { hs.waited(h, deliver) })
		}
		return
	}
}

// waited is called when h was waited for long enough.
func (hs *handshakes) waited(h *handshake, deliver func(*Conn)) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.timer = nil
	if front := hs.pending.Front(); front != nil && front == h.elem && h.conn == nil {
		hs.hurry = time.Now().Add(orderPause)
	}
	hs.deliver(deliver)
}

// takePlace takes a place for a client that asks. Where there is none it waits, and who
// has one and does not confirm gives way. A client that leaves meanwhile waits no more.
func (l *Listener) takePlace(id *cm.ID, events *idEvents) error {
	if l.handshakes.take() {
		return nil
	}
	w := l.handshakes.wait()
	left, stop := whenLeft(id)
	defer stop()
	var err error
	select {
	case <-w.got:
		return nil
	case <-left:
		err = errClientLeft
	case ev := <-events.setup:
		err = fmt.Errorf("%w: %v", errClientLeft, ev)
	case <-l.ctx.Done():
		err = l.endError()
	}
	l.handshakes.stopWaiting(w)
	return err
}

// whenLeft returns a channel that is closed when the client of a request leaves, unless the
// device tells that by an event. stop is to be called before anything else is done with it.
func whenLeft(id *cm.ID) (left <-chan struct{}, stop func()) {
	ch := make(chan struct{})
	return ch, id.OnLeave(func() { close(ch) })
}

// confirmed waits for the client that was answered to confirm. It is given up when ctx
// ends, or the time of a handshake has gone by, unless it has confirmed by then and that
// has yet to be read.
func (l *Listener) confirmed(ctx context.Context, id *cm.ID, events *idEvents) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := runtimer.After(l.handshakeTimeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	_, err := events.established(ctx)
	if err != nil && ctx.Err() != nil && !id.Withdraw() {
		return nil // the event that tells is there, or about to be
	}
	return err
}
