package link

// A device whose posts copy would have all streams of a lane wait while it copies for one. Where others
// use the lane, the bytes of a large message are written to the peer's ring without the lane's lock, by
// a WRITE that tells nobody, and the doorbell follows under it.

// yieldBytes is after how many of these bytes a Write lets goroutines run that wait for a processor.
// One that never sleeps would keep its own for milliseconds, and an echo beside it would take as long;
// to yield with each message would cost what the caches hold.
const yieldBytes = 512 << 10

// writesAhead reports whether a Write does so of which n bytes are left. mu is held.
func (s *stream) writesAhead(n int) bool {
	e := s.e
	return n > copyUnderLock && e.p.synchronous && e.inUse.Load() > 1 && s.st.Frames() == nil && e.sq.mayGoAhead()
}

// writeAhead posts what there is room for of p, the rest of a Write. mu is held when it is called and
// when it returns.
func (s *stream) writeAhead(p []byte) (n int, err error) {
	e := s.e
	if !e.room(controlRoom + aheadRoom) {
		e.block(s)
		return 0, nil
	}
	if !s.reaches() {
		s.e.peerMemory.await(s)
		return 0, nil
	}
	at := e.state.Reserve(s.st, len(p))
	defer e.state.Unreserve(s.st)
	if at.Len <= copyUnderLock {
		return s.message(p, nil, true, summed{})
	}
	if err = e.postAhead(p[:at.Len], at.Ring.Addr+uint64(at.Off), at.Ring.RKey); err != nil {
		e.sendFailed(err)
		s.out.writable = false
		return 0, nil
	}
	if err = s.writeErr(); err == nil {
		n, err = s.ringFor(p[:at.Len])
	}
	if n == 0 && e.blocking() {
		e.unblock() // no completion tells of the room that the doorbell would have taken
	}
	return n, err
}

// postAhead posts the WRITE of p without the lock. mu is held when it is called and when it returns.
func (e *laneEnd) postAhead(p []byte, addr uint64, rkey uint32) error {
	wrs, err := e.sq.beginAhead(p, addr, rkey)
	if err != nil {
		return err
	}
	e.unyielded += len(p)
	e.tasks.Add(1) // the verbs objects stay
	e.mu.Unlock()
	_, err = e.sq.qp.PostSend(wrs)
	e.mu.Lock()
	e.tasks.Done()
	return e.sq.endAhead(wrs, err)
}

// yieldDue reports whether the caller is to let other goroutines run once it has let go of the lock. mu
// is held.
func (e *laneEnd) yieldDue() bool {
	if e.unyielded < yieldBytes {
		return false
	}
	e.unyielded = 0
	return true
}

// ringFor posts the doorbell of p, which is in the peer's ring where the machine has it go. The send queue
// has room for it. mu is held.
func (s *stream) ringFor(p []byte) (int, error) {
	span, wr, err := s.request(len(p), 1, false)
	if wr == nil {
		return 0, err
	}
	if !s.e.post(s, nil, false) {
		s.out.writable = false
		return 0, nil
	}
	p = p[:span.Len]
	s.posted(p, span)
	s.out.share = 0 // the lock was free meanwhile
	return len(p), nil
}
