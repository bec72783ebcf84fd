package cm

import (
	"slices"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// sink takes the events of a leg. It runs on the driver's goroutine.
func (id *ID) sink(l *leg, ev driver.CMEvent) {
	if ev.Type == driver.CMConnectRequest {
		id.request(l, &ev)
		return
	}
	id.post(l, &Event{
		Type:  EventType(ev.Type),
		ID:    id,
		Err:   eventError(id, &ev),
		Param: ConnParam(ev.Param),
	})
}

// request makes an ID of a new CMID and announces it.
func (id *ID) request(l *leg, ev *driver.CMEvent) {
	child := &ID{opts: id.opts, drivers: id.drivers, state: StateRequest}
	id.mu.Lock()
	child.hold(id.ec, nil)
	id.mu.Unlock()
	cl := &leg{driver: l.driver, device: l.device, id: ev.ID}
	child.legs = []*leg{cl}
	ev.ID.SetSink(func(ev driver.CMEvent) { child.sink(cl, ev) })
	id.post(l, &Event{
		Type:     ConnectRequest,
		ID:       child,
		ListenID: id,
		Param:    ConnParam(ev.Param),
	})
}

// post takes the ID to the state that ev leads to and hands ev to its channel.
func (id *ID) post(l *leg, ev *Event) {
	id.mu.Lock()
	if ev.Type == ConnectRequest {
		ev.ID.hold(id.ec, nil)
	}
	// A leg that was replaced, or an ID that was closed, has nothing more to say.
	if !slices.Contains(id.legs, l) {
		id.mu.Unlock()
		_ = discard(ev) // nobody to tell
		return
	}
	was := id.state
	id.state = was.after(ev.Type, id.bound)
	var others []*leg
	if ev.Type == AddrResolved { // which may come before the call returns
		others = id.narrow(l)
	}
	if ev.Type == DeviceRemoval {
		l.lost = true
		if !slices.ContainsFunc(id.legs, func(l *leg) bool { return !l.lost }) {
			id.state = StateDisconnected
		}
	}
	if id.state == StateDisconnected && was != StateDisconnected {
		id.cause = ev.Err
	}
	id.deliver(ev)
	_ = closeLegs(others) // nothing depends on them any more
}

// deliver hands events over, in order and one at a time, to whatever channel the
// ID is on when their turn comes. It is called with id.mu held and releases it.
//
// A queue takes them at once. For a handler they are appended to pending, and the
// goroutine that finds nobody at it hands over all there is, so that no lock has
// to be held around the handler.
func (id *ID) deliver(events ...*Event) {
	if id.delivering || len(id.pending) > 0 || len(events) > 1 { // where Close finds them
		id.pending = append(id.pending, events...)
		events = nil
	}
	if id.delivering {
		id.mu.Unlock()
		return
	}
	id.delivering = true
	for len(events)+len(id.pending) > 0 {
		first := &events // before what comes meanwhile
		if len(events) == 0 {
			first = &id.pending
		}
		ev := (*first)[0]
		*first = (*first)[1:]
		ec := id.ec
		if ec.handler == nil {
			if !ec.push(id, ev) {
				id.mu.Unlock()
				_ = discard(ev)
				id.mu.Lock()
				continue
			}
		} else {
			id.mu.Unlock()
			ec.call(ev)
			id.mu.Lock()
		}
		if ev.Type == ConnectRequest {
			id.mu.Unlock()
			ev.ID.release()
			id.mu.Lock()
		}
	}
	id.pending = nil
	id.delivering = false
	id.mu.Unlock()
}

// call runs the handler unless the channel was closed.
func (ec *EventChannel) call(ev *Event) {
	if ec.isClosed() {
		_ = discard(ev)
		return
	}
	ec.handler(ev)
}

// hold puts a request on the channel of its listening ID and keeps back what is
// told of it until its ConnectRequest was handed over; what the former channel had
// queued for it included.
func (id *ID) hold(ec *EventChannel, queued []*Event) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.ec = ec
	id.delivering = true
	id.pending = append(queued, id.pending...)
}

// release lets the events of a request follow its ConnectRequest.
func (id *ID) release() {
	id.mu.Lock()
	id.delivering = false
	id.deliver()
}

// Migrate moves the ID to another channel (rdma_migrate_id). Events that are
// queued for it, and requests that nobody has taken, move along; if ec has a
// handler it is called for them before Migrate returns, unless Migrate was called
// from a handler of this ID.
func (id *ID) Migrate(ec *EventChannel) error {
	if ec.isClosed() {
		return errChannelClosed
	}
	id.mu.Lock()
	if id.state == StateClosed || id.resolving != nil {
		defer id.mu.Unlock()
		return id.stateError("migrate")
	}
	id.moveTo(ec, id.ec.take(id))
	return nil
}

// moveTo makes ec the ID's channel and delivers events that it had in the queue
// of the former one. It is called with id.mu held and releases it.
func (id *ID) moveTo(ec *EventChannel, events []*Event) {
	former := id.ec
	id.ec = ec
	events = append(events, id.pending...)
	for _, ev := range events {
		if ev.Type == ConnectRequest {
			ev.ID.hold(ec, former.take(ev.ID))
		}
	}
	id.pending = nil
	id.deliver(events...)
}
