package link

import "time"

// An acceptor has the Accept that waits poll the lane on which the last stream was closed. A
// stream that is there is polled for by its own calls, and nobody polls from its end to the begin
// of the next: to wake the process for each of them takes longer than all else that a short
// connection does. As all polling, it goes on for as long as it pays. Listener.mu guards it.
type acceptor struct {
	waits   bool          // an Accept does
	lane    *laneEnd      // that Poll is to poll, if not nil
	polling bool          // Poll does, and nobody else uses call
	call    waiter        // of Poll
	left    time.Duration // since epoch, when a lane was left to its goroutine instead; 0: not since a stream came
}

// opened takes note of a stream that an Accept may return. l.mu is held.
func (a *acceptor) opened() {
	a.call.woken.Store(true)
	if a.left != 0 && !a.polling {
		a.call.pays.slept(time.Since(epoch) - a.left)
	}
	a.left = 0
}

// takesOver reports whether an Accept is about to poll e, for which the baton waits.
func (l *Listener) takesOver(e *laneEnd) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.acceptor
	if !a.waits || a.polling || a.lane != nil || len(l.accepted) > 0 || procs.Load() == 1 {
		return false
	}
	if a.call.pays.off {
		a.left = time.Since(epoch)
		return false
	}
	a.lane = e
	select {
	case l.ready <- struct{}{}:
	default:
	}
	return true
}

// Poll is to be called by whoever is about to wait for Ready. It may take in what has come, and
// what comes within the next moment.
func (l *Listener) Poll() {
	a := &l.acceptor
	l.mu.Lock()
	e := a.lane
	a.waits = len(l.accepted) == 0
	poll := e != nil && a.waits && !a.polling
	if poll {
		a.lane, a.polling = nil, true
		a.call.woken.Store(false)
	}
	l.mu.Unlock()
	if !poll {
		return
	}
	if e.begin() {
		e.pollForStreams(&a.call)
		e.tasks.Done()
	}
	l.mu.Lock()
	a.polling = false
	l.mu.Unlock()
}

// pollForStreams polls in the place of a call that has gone, unless another has come since.
func (e *laneEnd) pollForStreams(w *waiter) {
	e.mu.Lock()
	if e.err != nil || !e.takeSeat(w) {
		e.mu.Unlock()
		return
	}
	e.unseen.Store(false) // the queues are armed when it leaves
	e.mu.Unlock()
	if !e.spin(w) {
		e.mu.Lock()
	}
	if !w.woken.Load() || !e.keepSeat(w, false) {
		n := w.number
		w.number, e.calls[n-1] = 0, nil
		e.mu.Unlock()
		e.leave(n)
	} else {
		e.mu.Unlock()
	}
	e.chore()
}
