//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// maxHeld bounds the requests that wait for their turn at a listener; past it
// they are refused.
const maxHeld = 1024

// listening is what a listening id keeps. The kernel has no bound for requests
// that were given to the application and not answered; here they wait while as
// many as the backlog says are unanswered. The id's mu guards it.
type listening struct {
	backlog    int
	unanswered int
	held       []driver.CMEvent
	requests   uint64
}

func (id *cmID) Listen(backlog int) error {
	if backlog <= 0 {
		return fmt.Errorf("Listen with backlog %d: %w", backlog, verbs.ErrInvalid)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("Listen", cmBound); err != nil {
		return err
	}
	// A request may come before rdma_listen returns.
	id.state = cmListening
	id.listen.backlog = backlog
	// The kernel drops a request for which it has no place, and the client asks again
	// only after seconds. Held requests are bounded here, so the kernel may be generous.
	if err := id.call("rdma_listen", id.ch.lib.listen, id.handle, uintptr(max(backlog, maxHeld))); err != nil {
		id.state = cmBound
		return err
	}
	if id.ipv4 != 0 {
		if err := id.call("rdma_listen", id.ch.lib.listen, id.ipv4, uintptr(max(backlog, maxHeld))); err != nil {
			id.state = cmFailed // librdmacm has no way to stop listening
			return err
		}
	}
	return id.refresh()
}

func (id *cmID) ListenStats() driver.CMListenStats {
	id.mu.Lock()
	defer id.mu.Unlock()
	return driver.CMListenStats{Requests: id.listen.requests}
}

// newRequest makes an id of a request, to be admitted. Its events are held back until
// the sink has seen the request: it is the listener's until then, and a device that was
// removed meanwhile would be taken for the listener's own.
func (id *cmID) newRequest(ev *cmEvent) *cmID {
	child := &cmID{ch: id.ch, device: id.device, handle: ev.request, state: cmRequested, listener: id, asked: ev.param, came: ev}
	child.events.Init(id.events.Sink())
	child.events.Hold()
	id.ch.register(child)
	// The next event is read only after this.
	at[cCMID](ev.request).context = child.key
	return child
}

// admit gives a request to its listener.
func (id *cmID) admit() {
	listener := id.listener
	if err := id.inherit(listener); err != nil || !listener.queueRequest(id) {
		id.mu.Lock()
		id.listener = nil
		id.mu.Unlock()
		_ = id.Close() // refuses it: it came by another device, or there are too many
		return
	}
	listener.events.Deliver()
}

// inherit gives a request its device, and those of the listener's options that the
// kernel does not hand down.
func (id *cmID) inherit(listener *cmID) error {
	listener.mu.Lock()
	opts := listener.opts
	listener.mu.Unlock()
	id.mu.Lock() // the device may be lost just now
	defer id.mu.Unlock()
	ev := id.came
	id.came = nil
	if err := id.adopt(ev.verbs); err != nil {
		return err
	}
	if id.ctx == nil {
		return fmt.Errorf("%w: a request that came by none", verbs.ErrNoDevice)
	}
	id.local, id.remote = id.ch.zoned(id.ctx.dev.name, ev.local.get(), ev.remote.get())
	id.opts = opts
	return id.setOptions(driver.CMOptions{AckTimeout: opts.AckTimeout})
}

// queueRequest queues a request or has it wait for its turn.
func (id *cmID) queueRequest(child *cmID) bool {
	ev := driver.CMEvent{Type: driver.CMConnectRequest, ID: child, ListenID: id, Param: child.asked}
	ev.Param.PrivateData = append([]byte(nil), child.asked.PrivateData...)
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != cmListening {
		return false
	}
	if id.listen.unanswered < id.listen.backlog {
		return id.announce(ev)
	}
	if len(id.listen.held) >= maxHeld {
		return false
	}
	id.listen.held = append(id.listen.held, ev)
	return true
}

// announce queues a request for the sink. mu is held.
func (id *cmID) announce(ev driver.CMEvent) bool {
	child := ev.ID.(*cmID)
	if !id.events.PushThen(ev, func(delivered bool) {
		if delivered {
			child.events.Release()
		}
	}) {
		return false
	}
	id.listen.unanswered++
	id.listen.requests++
	return true
}

// answered lets the next request take the place of one that was answered.
func (id *cmID) answered() {
	id.mu.Lock()
	id.listen.unanswered--
	next := len(id.listen.held) > 0 && id.state == cmListening
	if next {
		ev := id.listen.held[0]
		id.listen.held = id.listen.held[1:]
		id.announce(ev)
	}
	id.mu.Unlock()
	if next {
		// Not on the goroutine of the application that has answered.
		go id.events.Deliver()
	}
}

// close returns the requests that were held back, to be refused.
func (l *listening) close() []driver.CMEvent {
	held := l.held
	l.held = nil
	return held
}
