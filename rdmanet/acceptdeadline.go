package rdmanet

import (
	"sync"
	"time"
)

// acceptDeadline is the deadline of a Listener: a channel that is closed when it
// passes, and replaced when it is moved.
type acceptDeadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{}
}

func (d *acceptDeadline) init() { d.expired = make(chan struct{}) }

// wait returns the channel that is closed when the deadline passes or moves.
func (d *acceptDeadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

// passed reports whether the channel that wait returned is still the one in force:
// otherwise the deadline was moved.
func (d *acceptDeadline) passed(expired <-chan struct{}) bool { return d.wait() == expired }

// set moves the deadline; the zero time means never.
func (d *acceptDeadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	old := d.expired
	d.expired = make(chan struct{})
	now := d.expired
	if !t.IsZero() {
		if wait := time.Until(t); wait > 0 {
			d.timer = time.AfterFunc(wait, func() { d.expire(now) })
		} else {
			close(now)
		}
	}
	// Who waits on the old channel looks at the new one.
	select {
	case <-old:
	default:
		close(old)
	}
}

// expire closes the channel of a timer, unless the deadline was moved since.
func (d *acceptDeadline) expire(ch chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.expired == ch {
		close(ch)
	}
}
