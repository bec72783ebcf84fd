package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A dial returns before the listener has heard of the stream. If it never takes it, because it
// was about to close, nothing of the stream was delivered: it is dialled again, and whoever
// listens there now has it. The program does not notice: what it has written meanwhile is kept,
// which is no more than the ring of a place holds, and its calls wait.

// maxRedials bounds how often one stream is dialled again.
const maxRedials = 8

var (
	// errMoving is returned by calls of a stream that is being dialled again.
	errMoving = errors.New("link: the stream is dialled again")
	// errLost is why a stream has failed that the listener has not taken.
	errLost = errors.New("the listener has not taken the stream")
	// errLostAgain is why dialling it again has not helped.
	errLostAgain = errors.New("it was not taken then either")
)

// redial is what a dialer's stream needs to be dialled again.
type redial struct {
	home   *redial // that of the stream that the program was given first
	opened uint64  // how many the stream was on its lane

	// Of home alone: what the program does comes before the stream goes elsewhere, or behind it.
	mu    sync.Mutex
	tries int // so far; for who dials it again, or learns that it has to be

	next     atomic.Pointer[Stream] // what it was dialled again as
	answered atomic.Bool            // it stays

	// The lane's lock guards what follows.
	kept     []byte // what was written
	much     bool   // it was more than a place holds, and is not kept
	replays  bool   // it is no program's yet
	running  bool   // it is being dialled again
	aborted  bool   // and was broken off meanwhile
	proposed bool   // its port is that which it had elsewhere
	refused  bool   // which another has
	stop     context.CancelFunc
	moves    chan struct{} // closed when it runs no more
}

// now is the stream that s was dialled again as, or s.
func (s *stream) now() *stream {
	for s.re != nil {
		next := s.re.next.Load()
		if next == nil {
			break
		}
		s = next.stream
	}
	return s
}

// stays reports whether s will not be dialled again.
func (s *stream) stays() bool { return s.re == nil || s.re.answered.Load() }

// lockNow is now for a change that must not be lost when the stream goes elsewhere. unlock ends it.
func (s *stream) lockNow() *stream {
	if s.re != nil {
		s.re.home.mu.Lock()
	}
	return s.now()
}

func (s *stream) unlock() {
	if s.re != nil {
		s.re.home.mu.Unlock()
	}
}

// moving reports whether s is being dialled again, or was. mu is held.
func (s *stream) moving() bool {
	return s.re != nil && (s.re.running || s.re.next.Load() != nil)
}

// keep keeps what was written until the listener has answered. Only one that has the stream, and does
// not say so, takes more than a place holds. mu is held.
func (s *stream) keep(p []byte) {
	if s.stays() || s.re.much {
		return
	}
	if s.re.much = len(s.re.kept)+len(p) > MaxFirstRing; s.re.much {
		s.re.kept = nil
		return
	}
	s.re.kept = append(s.re.kept, p...)
}

// settled records that the listener has answered. mu is held.
func (s *stream) settled() {
	if s.re != nil {
		s.re.kept = nil
		s.re.answered.Store(true)
		if s.end.closed && s.end.said != 0 {
			s.confirmed()
		}
	}
}

// follow waits until s has gone elsewhere or failed, and returns the stream with which a call
// goes on.
func (h *Stream) follow(s *stream, w *waiter, t *turn) (*stream, error) {
	err := s.awaitRedial(w, t)
	return h.now(), err
}

// awaitRedial waits until s has gone elsewhere or failed, or the program has ended what w is for.
func (s *stream) awaitRedial(w *waiter, t *turn) error {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	t.begin(&e.mu)
	defer t.end()
	why := s.readErr
	if w == &s.out.waiter {
		why = s.writeErr
		s.counts.stalls(true)
		defer s.counts.stalls(false)
	}
	for s.re.running && why() == errMoving {
		if w.expired() {
			return os.ErrDeadlineExceeded
		}
		w.begin(e, true)
		e.mu.Unlock()
		w.sleep()
		e.mu.Lock()
		w.end()
	}
	return nil
}

// lost has a stream dialled again that the listener has not taken. mu is held.
func (dp *dialerPart) lost(s *stream, why lane.Code) {
	e := dp.e
	re := s.re
	switch {
	case s.end.cause != nil: // which the program may have seen
		return
	case re.replays:
		re.refused = why == lane.CodePort
		s.failWith(&Error{syscall.ECONNRESET, errLost})
		return
	case s.end.closed && s.st.Reset(), re.much, re.home.tries >= maxRedials, dp.again == nil:
		s.failWith(reset(why))
		return
	}
	re.home.tries++
	re.running, re.refused = true, why == lane.CodePort
	var ctx context.Context
	ctx, re.stop = context.WithCancel(context.Background())
	re.moves = make(chan struct{})
	s.end.freed = true
	s.freeRings()
	_ = e.slab.Release()
	kept := s.kept
	s.uncount()
	s.unuse()
	s.kept = kept
	go dp.again(ctx, s)
}

// redial dials a stream again and puts what it gets in its place.
func (l *Links) redial(ctx context.Context, t Target, s *stream) {
	defer s.re.stop()
	if err := l.dialAgain(ctx, t, s); err != nil {
		s.notRedialled(err)
	}
}

func (l *Links) dialAgain(ctx context.Context, t Target, s *stream) error {
	if t.Src.Port() != 0 { // which is the old lane's as long as that stands
		select {
		case <-s.e.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.e.mu.Lock()
	logger := s.log()
	s.e.mu.Unlock()
	for home := s.re.home; ; home.tries++ {
		var h *Stream
		err := l.cfg.redial(ctx, func(ctx context.Context) (err error) {
			h, err = l.dialFor(ctx, t, logger, s)
			return err
		})
		if err != nil {
			return err
		}
		// One that has ended since is the program's as well: what it has received is read first.
		err = h.stream.replay(ctx, s.re.kept)
		if !errors.Is(err, os.ErrDeadlineExceeded) && s.becomes(h) {
			return nil
		}
		h.stream.e.mu.Lock()
		s.re.refused = s.re.refused || h.stream.re.refused
		h.stream.e.mu.Unlock()
		_ = h.Reset()
		switch {
		case err != nil && !errors.Is(err, errLost):
			return err
		case home.tries >= maxRedials:
			return errLostAgain
		}
	}
}

// replay writes what was kept. It may have to wait for the listener, if that has smaller places, and
// the program's calls wait as long.
func (s *stream) replay(ctx context.Context, kept []byte) error {
	defer context.AfterFunc(ctx, func() { s.out.waiter.setDeadline(s.e, longPast) })()
	_, err := s.Write(kept)
	return err
}

// becomes puts what s was dialled again as in its place, unless it has to be dialled once more.
func (s *stream) becomes(h *Stream) bool {
	home, next := s.re.home, h.stream
	home.mu.Lock()
	defer home.mu.Unlock()
	s.e.mu.Lock()
	finished, readShut, shut, closed, aborted := s.end.finished, s.end.readShut, s.end.shut, s.end.closed, s.re.aborted
	keepAlive, least, logger := s.kept, s.in.least, s.logger
	was, written := s.counts.until(time.Since(epoch)), s.written()
	reader, writer := s.in.waiter.counts(), s.out.waiter.counts()
	s.end.finished = nil
	s.e.mu.Unlock()
	next.in.waiter.take(&s.in.waiter)
	next.out.waiter.take(&s.out.waiter)
	if keepAlive != nil {
		next.setKeepAlive(func(net.KeepAliveConfig) net.KeepAliveConfig { return *keepAlive })
	}
	if least > 0 {
		next.setReadBuffer(int(least))
	}

	next.e.mu.Lock()
	if errors.Is(next.end.cause, errLost) {
		next.e.mu.Unlock()
		s.e.mu.Lock()
		s.end.finished = finished
		s.e.mu.Unlock()
		return false
	}
	next.end.finished, next.re.replays, next.logger = finished, false, logger
	next.in.waiter.addCounts(reader)
	next.out.waiter.addCounts(writer)
	next.add(&was)
	if less := int64(written - next.written()); less > 0 { // it has ended since, and what it lacks was written as well
		next.counts.count().framingOut -= uint64(less)
	}
	next.e.mu.Unlock()
	if readShut {
		_ = next.closeRead() // fails if the stream has ended, which calls are told
	}
	if shut {
		_ = next.CloseWrite()
	}
	if closed {
		_ = next.close(aborted)
	}
	s.re.next.Store(h) // what the program has shut is shut when its calls find it
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.redialled()
	return true
}

// take takes over what the program has set.
func (w *waiter) take(from *waiter) {
	w.deadline.Store(from.deadline.Load())
	w.busyPoll.Store(from.busyPoll.Load())
}

// counts returns spins and parks, and addCounts adds those of another. The lane's lock is held.
func (w *waiter) counts() [2]uint64     { return [2]uint64{w.spins, w.parks.Load()} }
func (w *waiter) addCounts(n [2]uint64) { w.spins += n[0]; w.parks.Add(n[1]) }

// redialled has the calls go on. mu is held.
func (s *stream) redialled() {
	s.re.running, s.re.kept = false, nil
	close(s.re.moves)
	s.in.waiter.wake(s.e)
	s.out.waiter.wake(s.e)
}

// notRedialled ends a stream that nobody takes.
func (s *stream) notRedialled(err error) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	// Its errno is that of the dial, which programs do not expect of a connection.
	s.failWith(&Error{syscall.ECONNRESET, fmt.Errorf("%w, and dialling it again failed: %v", errLost, err)})
	s.re.answered.Store(true)
	s.redialled()
	s.free()
}
