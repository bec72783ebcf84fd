package link

import "sync"

// turn lets one call at a time in, in the order in which they came. The lock that guards it is
// held by its caller in any case, so that a call that meets no other pays nothing for it.
type turn struct {
	queue *[]chan struct{} // of those that wait; nil if none does, which is so in most of many streams
	taken bool
}

// begin waits until it is the caller's turn, which holds mu. That is released meanwhile.
func (t *turn) begin(mu sync.Locker) {
	if t.taken {
		t.wait(mu)
	}
	t.taken = true
}

// wait is begin of a call that has met another.
func (t *turn) wait(mu sync.Locker) {
	mine := make(chan struct{})
	if t.queue == nil {
		t.queue = new([]chan struct{})
	}
	*t.queue = append(*t.queue, mine)
	mu.Unlock()
	<-mine
	mu.Lock()
}

// end gives the turn to the next.
func (t *turn) end() {
	if t.queue == nil {
		t.taken = false
		return
	}
	q := *t.queue
	close(q[0])
	if *t.queue = q[1:]; len(q) == 1 {
		t.queue = nil
	}
}
