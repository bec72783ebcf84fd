package cm

import (
	"context"
	"net/netip"
	"time"
)

// Resolve does ResolveAddr and ResolveRoute and waits for their events, whatever
// channel the ID is on; other events of the ID wait meanwhile. The deadline of ctx
// bounds both; without one DefaultResolveTimeout does for each. When ctx ends
// early the ID remains in the middle of it and can only be closed. It must not be
// called from a handler, nor while another goroutine uses Migrate on the ID.
func (id *ID) Resolve(ctx context.Context, src, dst netip.AddrPort) (err error) {
	tmp := NewEventChannel()
	home, err := id.detour(tmp)
	if err != nil {
		return err
	}
	var others []*Event
	defer func() { id.home(home, tmp, others) }()

	for _, step := range []struct {
		begin func(timeout time.Duration) error
		want  EventType
	}{
		{func(t time.Duration) error { return id.ResolveAddr(src, dst, t) }, AddrResolved},
		{id.ResolveRoute, RouteResolved},
	} {
		timeout, err := remaining(ctx)
		if err != nil {
			return err
		}
		if err := step.begin(timeout); err != nil {
			return err
		}
		for done := false; !done; {
			ev, err := tmp.GetEvent(ctx)
			switch {
			case err != nil:
				return err
			case ev.Type == step.want:
				done = true
			case ev.Type == AddrError || ev.Type == RouteError:
				return ev.Err
			default:
				others = append(others, ev)
				if ev.Type == DeviceRemoval {
					return ev.Err
				}
			}
		}
	}
	return nil
}

// remaining is how long ctx has left, 0 if it has no deadline.
func remaining(ctx context.Context) (time.Duration, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, nil
	}
	// A timeout of 0 would mean the default.
	return max(time.Until(deadline), 1), nil
}

// detour sends the ID's events to tmp and returns the channel it is on.
func (id *ID) detour(tmp *EventChannel) (*EventChannel, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != StateIdle && id.state != StateBound || id.resolving != nil {
		return nil, id.stateError("resolve")
	}
	home := id.ec
	id.ec, id.resolving = tmp, tmp
	return home, nil
}

// home ends a detour; what came meanwhile for others follows.
func (id *ID) home(home, tmp *EventChannel, others []*Event) {
	id.mu.Lock()
	id.resolving = nil
	if id.state == StateClosed {
		id.mu.Unlock()
		return
	}
	id.moveTo(home, append(others, tmp.drain()...))
}
