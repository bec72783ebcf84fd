package rdmanet

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// halfOpenGrace is how long a client may take to confirm its connection while others
	// wait for its place.
	halfOpenGrace = 250 * time.Millisecond
	// lastLook is how long whoever has taken longer still has: where this process stood
	// still, the confirmation is there and has yet to be read.
	lastLook = 10 * time.Millisecond
	// orderGrace is how long a connection that stands waits for one that was answered
	// before and is about to stand, so that clients that dialled one after the other are
	// accepted in that order. An honest client's confirmation is there already, and only
	// has to be read. After a wait in vain nobody is waited for during orderPause, so that
	// clients that do not confirm cannot hold up the others.
	orderGrace = 50 * time.Millisecond
	orderPause = time.Second
)

var (
	errEvicted    = errors.New("the client did not confirm its connection while others waited")
	errClientLeft = errors.New("client left before it was accepted")
)

// handshakes are the clients of a listener that were answered and have not confirmed
// yet, and those that have, but wait for their turn. Each has one of the listener's slots.
type handshakes struct {
	mu      sync.Mutex
	pending list.List // *handshake, in the order of the answers
	timer   *time.Timer
	hurry   time.Time // until then nobody is waited for
}

// A handshake is one client's. The zero value is one that has not begun.
type handshake struct {
	elem     *list.Element
	answered time.Time
	overdue  time.Time // when that was found to be too long ago
	evict    context.CancelCauseFunc
	conn     *Conn // stands, and waits for its turn
}

// begin is called before the client is answered.
func (hs *handshakes) begin(h *handshake, evict context.CancelCauseFunc) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.answered, h.evict = time.Now(), evict
	h.elem = hs.pending.PushBack(h)
}

// fail ends a handshake, which may not have begun, without a connection.
func (hs *handshakes) fail(h *handshake, deliver func(*Conn)) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.elem != nil {
		hs.pending.Remove(h.elem)
	}
	hs.deliver(deliver)
}

// succeed ends a handshake with a connection, which is delivered when it is its turn.
func (hs *handshakes) succeed(h *handshake, c *Conn, deliver func(*Conn)) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.conn = c
	hs.deliver(deliver)
}

// deliver delivers the connections whose turn it is: nobody was answered before them,
// or a while ago, who does not stand yet. Called with mu held.
func (hs *handshakes) deliver(deliver func(*Conn)) {
	var next *list.Element
	for e := hs.pending.Front(); e != nil; e = next {
		next = e.Next()
		h := e.Value.(*handshake)
		if h.conn != nil {
			hs.pending.Remove(e)
			deliver(h.conn)
			continue
		}
		now := time.Now()
		left := orderGrace - now.Sub(h.answered)
		if left <= 0 || next == nil || now.Before(hs.hurry) {
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

// evictOldest ends the handshake that has gone on for longest, if that is longer than
// halfOpenGrace and was so a while ago, and returns when to look again.
func (hs *handshakes) evictOldest() time.Duration {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now, again := time.Now(), halfOpenGrace
	for e := hs.pending.Front(); e != nil; e = e.Next() {
		h := e.Value.(*handshake)
		if h.conn != nil || h.evict == nil {
			continue
		}
		if left := halfOpenGrace - now.Sub(h.answered); left > 0 {
			return min(again, left)
		}
		if h.overdue.IsZero() {
			h.overdue = now
		}
		if left := lastLook - now.Sub(h.overdue); left > 0 {
			again = min(again, left)
			continue
		}
		h.evict(errEvicted)
		h.evict = nil
		break
	}
	return again
}

// takeSlot takes a place for a client that asks, in which its connection is made and
// waits for Accept. Where there is none, who has one and does not confirm gives way. A
// client that waits may leave meanwhile: where the device tells, that ends the wait;
// elsewhere the accept finds out.
func (l *Listener) takeSlot(events *idEvents) error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	look := time.NewTimer(l.handshakes.evictOldest())
	defer look.Stop()
	for {
		select {
		case l.slots <- struct{}{}:
			return nil
		case <-look.C:
			look.Reset(l.handshakes.evictOldest())
		case ev := <-events.setup:
			return fmt.Errorf("%w: %v", errClientLeft, ev)
		case <-l.ctx.Done():
			return l.endError()
		}
	}
}
