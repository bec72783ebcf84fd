package link

import "time"

// An acceptor has the Accept that waits poll the lane on which the last stream was closed. A
// stream that is there is polled for by its own calls, and nobody polls from its end to the begin
// of the next: to wake the process for each of them takes longer than all else that a short
// connection does. As all polling, it goes on for as long as it pays. Listener.mu guards it.
type acceptor struct {
	calls   int           // Accepts that have begun and not ended
	lane    *laneEnd      // that Poll is to poll, if not nil
	polling bool          // Poll does, and nobody else uses call
	call    waiter        // of Poll
	found   *laneEnd      // by which a stream came while it polled
	left    time.Duration // since epoch, when a lane was left to its goroutine instead; 0: not since a stream came
}

// opened records a stream that an Accept may return. l.mu is held.
func (a *acceptor) opened(e *laneEnd) {
	a.found = e
	a.call.state.Store(waiterWoken)
	if a.left != 0 && !a.polling {
		a.call.pays.slept(time.Since(epoch) - a.left)
	}
	a.left = 0
}

// forget has nobody poll a lane that has ended. l.mu is held.
func (a *acceptor) forget(e *laneEnd) {
	if a.lane == e {
		a.lane = nil
	}
	if a.found == e {
		a.found = nil
	}
}

// takesOver reports whether an Accept is about to poll e, whose poll role is kept.
func (l *Listener) takesOver(e *laneEnd) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.acceptor
	if a.calls == 0 || a.polling || a.lane != nil || len(l.accepted) > 0 || procs.Load() == 1 || l.isClosed() {
		return false
	}
	if a.call.pays.off {
		a.left = time.Since(epoch)
		return false
	}
	a.lane = e
	l.tell()
	return true
}

// tell gives Ready its token.
func (l *Listener) tell() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// BeginAccept records that a call waits for streams until EndAccept, with TryAccept and Ready.
func (l *Listener) BeginAccept() {
	l.mu.Lock()
	l.acceptor.calls++
	l.mu.Unlock()
}

// EndAccept ends what BeginAccept began. A lane that was to be polled is another's, or its
// goroutine's.
func (l *Listener) EndAccept() {
	l.mu.Lock()
	a := &l.acceptor
	a.calls--
	e := a.lane
	switch {
	case e == nil:
	case a.calls > 0:
		e = nil
		l.tell()
	default:
		a.lane = nil
	}
	l.mu.Unlock()
	if e != nil && e.begin() {
		e.mu.Lock()
		e.giveUpKept()
		e.mu.Unlock()
		e.startWorker()
		e.tasks.Done()
	}
}

// Poll is to be called between BeginAccept and EndAccept by whoever is about to wait for Ready. It
// may take in what has come, and what comes within the next moment.
func (l *Listener) Poll() {
	a := &l.acceptor
	l.mu.Lock()
	e := a.lane
	poll := e != nil && len(l.accepted) == 0 && !a.polling
	if poll {
		a.lane, a.found, a.polling = nil, nil, true
		a.call.state.Store(waiterWaits)
	}
	l.mu.Unlock()
	if !poll {
		return
	}
	if e.begin() {
		e.pollForStreams(&a.call, l.foundBy)
		e.tasks.Done()
	}
	l.mu.Lock()
	a.polling = false
	l.mu.Unlock()
}

// foundBy reports whether the stream that ended a Poll came by e.
func (l *Listener) foundBy(e *laneEnd) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acceptor.found == e
}

// pollForStreams polls in the place of a call that has gone, unless another has come since. found
// reports whether a stream of e was found, whose calls are expected.
func (e *laneEnd) pollForStreams(w *waiter, found func(*laneEnd) bool) {
	e.mu.Lock()
	if e.err != nil || !e.takeKept(w) {
		e.mu.Unlock()
		return
	}
	e.unseen.Store(false) // the queues are armed when it leaves
	e.mu.Unlock()
	if !e.spin(w) {
		e.mu.Lock()
	}
	if !w.woken() || !found(e) || !e.keepRole(w, false) {
		n := w.number
		w.number, e.polling.calls[n-1] = 0, nil
		e.mu.Unlock()
		e.leave(n)
	} else {
		e.mu.Unlock()
	}
	e.startWorker()
}
