package link

import "time"

const (
	// firstDelay and lastDelay bound for how long a Read lets messages come together. The longest is what
	// a wake-up takes.
	firstDelay = 500 * time.Nanosecond
	lastDelay  = 12 * time.Microsecond
	// dense is how long a delay may be for each message since the last one: with fewer it did not pay.
	// fastest is within which time none comes.
	dense   = 250 * time.Nanosecond
	fastest = 100 * time.Nanosecond
	// oneWayRun is how many must have come since this end sent something: the last part of a request of
	// fewer is not to come late. Where it sent something before the first so many it is not known when, and
	// that is where they are counted from.
	oneWayRun = 1024
	// firstPass and lastPass bound how many waits pass before a delay is tried again that did not pay.
	firstPass, lastPass = 16, 4096
)

// coalescing decides for how long a Read that has found nothing leaves the completion queue alone before
// it polls, much as a network card moderates its interrupts. Where one end writes small messages and the
// other keeps up, the reader looks at the cache lines that the writer is about to write, and takes them from
// it for each message anew. After a delay it takes many messages at once, and none of their lines is in use.
type coalescing struct {
	delay    time.Duration // of the wait that has begun last
	received arrivals      // when it began
	begun    uint64        // messages received when something was sent last
	sent     uint64        // bytes, then
	pass     uint16        // waits to pass before a delay is tried
	passes   uint16        // how many the last try that did not pay made of it
}

// arrivals are messages with data, and their bytes.
type arrivals struct{ messages, bytes uint64 }

// next returns the delay of a wait that begins when so much was received, and so many bytes were sent. Of
// room no more than half is to come in it, once it is known how large the messages are: the writer is not to
// wait.
func (c *coalescing) next(received arrivals, sent uint64, room arrivals) time.Duration {
	since := arrivals{received.messages - c.received.messages, received.bytes - c.received.bytes}
	c.received = received
	if sent != c.sent {
		c.sent, c.begun, c.delay = sent, received.messages, 0
	}
	switch {
	case received.messages-c.begun < oneWayRun:
		return 0 // as in every conversation
	case c.delay == 0 && c.pass > 0:
		c.pass--
		return 0
	case c.delay == 0:
		c.delay = firstDelay
		return c.delay
	}
	fit := min(room.messages, room.bytes*since.messages/max(since.bytes, 1)) / 2
	longest := min(lastDelay, time.Duration(fit)*fastest)
	switch {
	case longest < firstDelay, time.Duration(since.messages)*dense < c.delay:
		c.passes = min(max(2*c.passes, firstPass), lastPass)
		c.pass, c.delay = c.passes, 0
	default:
		if c.delay > firstDelay {
			c.passes = 0
		}
		c.delay = min(2*c.delay, longest)
	}
	return c.delay
}

// coalesce returns for how long a Read that has found nothing is to let messages come together: not if
// another call waits for what it polls for, nor if the program has chosen how to poll. mu is held.
func (s *stream) coalesce(sent uint64) time.Duration {
	if s.counts.received < oneWayRun {
		return 0
	}
	if s.in.together == nil {
		s.in.together = new(coalescing)
	}
	e, rx, c := s.e, s.st.Receiver(), s.in.together
	received := arrivals{s.counts.received, rx.ReceivedBytes()}
	if !e.p.sameHost || s.in.waiter.busyPoll.Load() != 0 || procs.Load() == 1 || e.blocks.Load() || e.othersWait() {
		c.received, c.delay = received, 0
		return 0
	}
	return c.next(received, sent, arrivals{uint64(8 * e.p.lot), uint64(rx.Ring().Size)})
}

// holdOff lets messages come together, once in a wait, unless another call comes to wait.
func (e *laneEnd) holdOff(w *waiter) {
	if w.delay == 0 {
		return
	}
	for began := time.Now(); time.Since(began) < w.delay; {
		if w.woken() || e.over(w) || e.pollWaiters.any() {
			break
		}
	}
	w.delay = 0
}
