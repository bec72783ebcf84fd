package link

import "sync"

// turn lets one call at a time in, in the order in which they came. The lock that guards it is
// held by its caller in any case, so that a call that meets no other pays nothing for it.
type turn struct {
	taken bool
	queue []chan struct{} // of those that wait
}

// begin waits until it is the caller's turn, which holds mu. That is released meanwhile.
func (t *turn) begin(mu sync.Locker) {
	if !t.taken {
		t.taken = true
		return
	}
	mine := make(chan struct{})
	t.queue = append(t.queue, mine)
	mu.Unlock()
	<-mine
	mu.Lock()
}

// end gives the turn to the next.
func (t *turn) end() {
	if len(t.queue) == 0 {
		t.taken = false
		return
	}
	close(t.queue[0])
	if t.queue = t.queue[1:]; len(t.queue) == 0 {
		t.queue = nil
	}
}
