package link

import (
	"sync"

	"github.com/rdmanet/go-rdmanet/cm"
)

// eventHandler receives what the connection manager says of one id: first for whoever brings
// the lane up, then for the lane.
type eventHandler struct {
	mu    sync.Mutex
	setup chan *cm.Event
	e     *laneEnd
}

func newEventHandler(setup chan *cm.Event) *eventHandler { return &eventHandler{setup: setup} }

// channel is an event channel that delivers here.
func (h *eventHandler) channel() *cm.EventChannel { return cm.NewHandlerChannel(h.handle) }

func (h *eventHandler) handle(ev *cm.Event) {
	if ev.Type == cm.AddrChange || ev.Type == cm.TimewaitExit {
		return // they may come any number of times and change nothing
	}
	h.mu.Lock()
	e := h.e
	if e == nil {
		select {
		case h.setup <- ev:
		default: // more events than a set-up can have: it has failed already
		}
	}
	h.mu.Unlock()
	if e != nil {
		e.event(ev)
	}
}

// handOver sends what comes from now on, and what nobody took yet, to e.
func (h *eventHandler) handOver(e *laneEnd) {
	h.mu.Lock()
	h.e = e
	h.mu.Unlock()
	for {
		select {
		case ev := <-h.setup:
			e.event(ev)
		default:
			return
		}
	}
}
