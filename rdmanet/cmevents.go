package rdmanet

import (
	"context"
	"fmt"
	"sync"

	"github.com/rdmanet/go-rdmanet/cm"
)

// idEvents receives the events of one id: first for whoever sets the connection
// up, then for the Conn.
type idEvents struct {
	mu    sync.Mutex
	conn  *Conn
	setup chan *cm.Event
}

func newIDEvents() *idEvents { return &idEvents{setup: make(chan *cm.Event, 4)} }

// channel is an event channel that delivers here.
func (h *idEvents) channel() *cm.EventChannel { return cm.NewHandlerChannel(h.handle) }

func (h *idEvents) handle(ev *cm.Event) {
	switch ev.Type {
	case cm.AddrChange, cm.TimewaitExit: // may come any number of times and change nothing
		return
	}
	h.mu.Lock()
	conn := h.conn
	if conn == nil {
		select {
		case h.setup <- ev:
		default: // more events than a set-up can have: it has failed already
		}
	}
	h.mu.Unlock()
	if conn != nil {
		conn.event(ev)
	}
}

// handOver sends what comes from now on, and what nobody took yet, to c.
func (h *idEvents) handOver(c *Conn) {
	h.mu.Lock()
	h.conn = c
	close(h.setup)
	h.mu.Unlock()
	for ev := range h.setup {
		c.event(ev)
	}
	h.setup = nil // nobody looks at it any more
}

// established waits for the outcome of Connect or Accept, which of Connect may be an answer
// that has yet to be confirmed.
func (h *idEvents) established(ctx context.Context) (*cm.Event, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case ev := <-h.setup:
			switch {
			case ev.Type == cm.Established, ev.Type == cm.ConnectResponse:
				return ev, nil
			case ev.Err != nil:
				return nil, ev.Err
			case ev.Type == cm.Disconnected:
				return nil, ErrPeerGone
			default:
				return nil, fmt.Errorf("unexpected event %v while connecting", ev)
			}
		}
	}
}
