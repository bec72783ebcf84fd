package rdmanet

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmanet/go-rdmanet/ring"
)

// MPA, by which iWARP begins a connection on TCP, has the active end send first: what the
// passive end sends before may be taken for a part of its answer, and ends the connection
// (RFC 5044, section 7.1; siw does so). Programs need not know: the dialing end rings once as
// soon as it is connected, and the listening end gives the connection to nobody before it has
// heard something. docs/PROTOCOL.md, section 13.

// speakFirst is the dialing end's first word. Where it cannot be said nothing was delivered.
func (s *stream) speakFirst() error {
	if s.ep.confirm == nil {
		return nil
	}
	if err := s.send.say("a first message"); err != nil {
		return fmt.Errorf("%w: %w", s.unacknowledged(), err)
	}
	return nil
}

// hearFirst waits for it. Nobody else uses the Conn yet.
func (s *stream) hearFirst(ctx context.Context, timeout time.Duration) error {
	if s.ep.confirm == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return s.hear(ctx)
}

// say sends a message that says nothing.
func (w *sendHalf) say(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.postControl(ring.KindKeepAlive, nil) {
		return fmt.Errorf("%w: it left before %s could be sent", ErrPeerGone, what)
	}
	return nil
}

// hear waits until the peer has said something. Nobody else reads from the Conn yet.
func (s *stream) hear(ctx context.Context) error {
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.ep.setDeadline(dirRead, longPast)
		close(expired)
	})
	defer func() {
		if !stop() {
			<-expired
			s.ep.setDeadline(dirRead, time.Time{})
		}
	}()
	for p := (peerSpoke{s}); !p.try(); {
		err := s.sleep(dirRead, p)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
	if !s.recv.rang() {
		return fmt.Errorf("%w: it left before its first message came", ErrPeerGone)
	}
	return nil
}

// peerSpoke is the condition that something has come, or nothing will.
type peerSpoke struct{ s *stream }

// try: what the peer said before it left is in the receive queue by the time that its end is
// known, so that is asked first.
func (p peerSpoke) try() bool {
	over := p.s.term.broken()
	p.s.recv.takeIn()
	return p.s.recv.rang() || over
}

func (p peerSpoke) beforeSleep() (needsSends bool) { return false }

// rang reports whether the peer has sent anything.
func (r *receiveHalf) rang() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats.doorbells > 0
}
