package rdmanet

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
)

// A listener that has no descriptors or no memory for a client keeps it waiting, as the
// kernel does with those of TCP, and tries again: after a pause that grows, and as soon as
// a connection of the process has ended. Clients have their turn as they came. While
// somebody waits, no more are taken in where the device can leave them outside.
//
// Who waits may hold what another one lacks, so that none of them would ever be served. So
// after each try that failed for want of descriptors the one that came last of those that
// hold some is refused, and dials again by itself: see Dialer.dialAddr.

const (
	firstShortagePause = 5 * time.Millisecond
	lastShortagePause  = time.Second // also of a dialer
	// shortageLogged is the time between two warnings in the log; what comes meanwhile is
	// at level debug.
	shortageLogged = time.Second
)

var errGivenBack = errors.New("no resources for the client, which is to dial again")

// shortages are the clients of a listener that wait for resources.
type shortages struct {
	hold   func(bool) // has the device take in no more clients
	count  atomic.Uint64
	errors chan error // to an Accept that waits at that moment

	syncing sync.Mutex // held over hold; taken before mu
	starved bool       // what sync has told last

	mu      sync.Mutex
	waiting list.List // *shortClient, in the order they came
	pause   time.Duration
	timer   *time.Timer // until the first one's turn; nil while it tries
	freed   bool        // something was while it tried
	warned  time.Time   // when the log was told last
}

// A shortClient is one that waits.
type shortClient struct {
	holds bool          // it has a descriptor of this process
	elem  *list.Element // in shortages.waiting; nil when it was refused
	turn  chan struct{} // has a token when it is to try again, and is closed when it was refused
}

func newShortages(hold func(bool)) *shortages {
	return &shortages{hold: hold, errors: make(chan error), pause: firstShortagePause}
}

// starving are the listeners of the process that have clients waiting.
var starving struct {
	some atomic.Int32 // how many
	mu   sync.Mutex
	set  map[*shortages]struct{}
}

// resourcesFreed has the listeners that lack something try again.
func resourcesFreed() {
	if starving.some.Load() == 0 {
		return
	}
	starving.mu.Lock()
	defer starving.mu.Unlock()
	for s := range starving.set {
		s.hurry()
	}
}

// sync tells the device and resourcesFreed whether anybody waits now.
func (s *shortages) sync() {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	some := s.some()
	if some == s.starved {
		return
	}
	s.starved = some
	starving.mu.Lock()
	if some {
		if starving.set == nil {
			starving.set = make(map[*shortages]struct{})
		}
		starving.set[s] = struct{}{}
	} else {
		delete(starving.set, s)
	}
	starving.some.Store(int32(len(starving.set)))
	starving.mu.Unlock()
	s.hold(some)
}

// shed has the device give up what nobody misses.
func (s *shortages) shed() {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if s.starved {
		s.hold(true)
	}
}

// tell counts a client that could not be served, has Accept say why, and returns whether
// the log was not warned for a while. As with accept(2), an Accept fails with what happens
// while it waits: nothing is kept for a later one, by which all may be well. As long as the
// shortage lasts it is told again at each try.
func (s *shortages) tell(err error) (warn bool) {
	s.count.Add(1)
	select {
	case s.errors <- err:
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.warned.IsZero() || now.Sub(s.warned) >= shortageLogged {
		s.warned, warn = now, true
	}
	return warn
}

// some reports whether anybody waits: who comes now has to wait, too.
func (s *shortages) some() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.Len() > 0
}

// join has a client wait that holds a descriptor or none. Its turn comes after those of all
// who wait already.
func (s *shortages) join(holds bool) *shortClient {
	s.mu.Lock()
	c := &shortClient{holds: holds, turn: make(chan struct{}, 1)}
	c.elem = s.waiting.PushBack(c)
	if s.waiting.Len() == 1 {
		s.schedule()
	}
	s.mu.Unlock()
	s.sync()
	return c
}

// failed is told that a client was served in vain once more, for want of descriptors or
// else of memory.
func (s *shortages) failed(c *shortClient, descriptors bool) {
	s.mu.Lock()
	last := s.waiting.Back()
	for last != nil && last != c.elem && !last.Value.(*shortClient).holds {
		last = last.Prev()
	}
	if descriptors && last != nil && last != c.elem {
		back := s.waiting.Remove(last).(*shortClient)
		back.elem = nil
		close(back.turn)
	} else {
		s.pause = min(2*s.pause, lastShortagePause)
	}
	if s.freed {
		s.next()
	} else {
		s.schedule()
	}
	s.mu.Unlock()
	s.shed()
}

// leave ends the wait of a client; served says that there were resources for it.
func (s *shortages) leave(c *shortClient, served bool) {
	s.mu.Lock()
	if c.elem == nil { // it was refused
		s.mu.Unlock()
		return
	}
	first := s.waiting.Front() == c.elem
	s.waiting.Remove(c.elem)
	if served {
		s.pause = firstShortagePause
	}
	switch {
	case s.waiting.Len() == 0:
		s.stop()
		s.pause, s.freed = firstShortagePause, false
	case first && served:
		s.next()
	case first:
		s.stop()
		s.schedule()
	}
	s.mu.Unlock()
	s.sync()
}

// schedule gives the first one its turn after the pause. Called with mu held.
func (s *shortages) schedule() {
	if s.timer == nil {
		s.timer = time.AfterFunc(s.pause, s.hurry)
	}
}

// hurry gives the first one its turn now, or once more if it has it.
func (s *shortages) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.waiting.Len() == 0:
	case s.timer != nil:
		s.next()
	default:
		s.freed = true
	}
}

// next gives the first one its turn. Called with mu held.
func (s *shortages) next() {
	s.stop()
	s.freed = false
	select {
	case s.waiting.Front().Value.(*shortClient).turn <- struct{}{}:
	default:
	}
}

// stop ends the pause. Called with mu held.
func (s *shortages) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// waitTurn waits until c is to try again. It fails with errClientLeft, errGivenBack, or
// the end of the listener.
func (l *Listener) waitTurn(c *shortClient, id *cm.ID, events *idEvents) error {
	left, stop := whenLeft(id)
	defer stop()
	select {
	case _, mine := <-c.turn:
		switch {
		case !mine:
			return errGivenBack
		case !id.Waits():
			return errClientLeft
		}
		return nil
	case <-left:
		return errClientLeft
	case ev := <-events.setup:
		return fmt.Errorf("%w: %v", errClientLeft, ev)
	case <-l.ctx.Done():
		return l.endError()
	}
}

// prepare is newEndpoint for a client, which waits as long as there is nothing to make it of.
func (l *Listener) prepare(id *cm.ID, events *idEvents) (*endpoint, error) {
	if !l.shortages.some() {
		ep, err := newEndpoint(id, l.sizes, l.logger)
		if !isShortage(err) {
			return ep, err
		}
		l.lacking(err)
	}
	c := l.shortages.join(id.HoldsDescriptor())
	for {
		if err := l.waitTurn(c, id, events); err != nil {
			l.shortages.leave(c, false)
			return nil, err
		}
		ep, err := newEndpoint(id, l.sizes, l.logger)
		if !isShortage(err) {
			l.shortages.leave(c, err == nil)
			return ep, err
		}
		l.lacking(err)
		l.shortages.failed(c, ofDescriptors(err))
	}
}

// lacking makes known that a client has to wait.
func (l *Listener) lacking(err error) {
	level := slog.LevelDebug
	if l.shortages.tell(err) {
		level = slog.LevelWarn
	}
	l.logger.Log(context.Background(), level, "rdmanet: no resources for a connection, clients wait", "listener", l.addr, "err", err)
}

// shortageErrnos are what the system answers where descriptors, memory or address space
// are used up; the first are about descriptors.
var shortageErrnos = []syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, syscall.ETOOMANYREFS,
	syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC,
	syscall.EAGAIN, // of a device without free resources, as mlx5's, or of a thread
}

// shortageErrno is the errno by which programs know a shortage, if err is one: a want of
// descriptors, memory or address space, which may pass.
func shortageErrno(err error) (errno syscall.Errno, ok bool) {
	for _, errno := range shortageErrnos {
		if errors.Is(err, errno) {
			return errno, true
		}
	}
	return syscall.ENOMEM, errors.Is(err, ErrNoMemory)
}

func isShortage(err error) bool {
	_, ok := shortageErrno(err)
	return ok
}

// ofDescriptors reports whether a shortage is one of descriptors.
func ofDescriptors(err error) bool {
	errno, _ := shortageErrno(err)
	return errno == syscall.EMFILE || errno == syscall.ENFILE || errno == syscall.ETOOMANYREFS
}

// A shortageError is the cause of an Accept's error where clients wait for resources. It
// is temporary whatever the errno, where package net's is only without descriptors.
type shortageError struct {
	errno  syscall.Errno
	detail error
}

func (e *shortageError) Error() string {
	return e.errno.Error() + ": clients wait: " + e.detail.Error()
}
func (e *shortageError) Unwrap() []error { return []error{e.errno, e.detail} }
func (e *shortageError) Timeout() bool   { return false }
func (e *shortageError) Temporary() bool { return true }

// acceptShortage is what Accept returns for a shortage, in the shape of package net.
func (l *Listener) acceptShortage(err error) error {
	errno, _ := shortageErrno(err)
	if errno == syscall.EAGAIN { // which of accept(2) means that nobody is there
		errno = syscall.ENOMEM
	}
	return l.opError(opAccept, os.NewSyscallError("accept4", &shortageError{errno, err}))
}

// starvedError is the error of a dial that has ended, with the cause, while the listener
// had nothing to serve it with.
func starvedError(cause, last error) error {
	if !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return &dialError{
		text: "i/o timeout: the listener had no resources: " + last.Error(), timeout: true,
		is: []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, last},
	}
}

// Reasons of InfiniBand's connection manager for an end that lacks something
// (IBA 12.6.7.2): no QP, no resources.
const (
	rejectNoQP        cm.RejectReason = 1
	rejectNoResources cm.RejectReason = 3
)

// peerShort reports whether a dial failed for want of something that may be there soon, at
// the listener, or of what descriptors all of a user's processes may have under way.
func peerShort(err error) bool {
	var refused *cm.RefusedError
	if errors.As(err, &refused) {
		return refused.Code == cm.RefusedResources
	}
	var rejected *cm.RejectedError
	if errors.As(err, &rejected) {
		return rejected.Reason == rejectNoQP || rejected.Reason == rejectNoResources
	}
	return errors.Is(err, syscall.ETOOMANYREFS)
}
