package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
)

// A dialer confirms the answer of a listener and cannot know whether that arrives: the
// listener may have given up meanwhile, for its time or for Close. Nobody is told of a
// confirmation that came too late but by the end of what he took for a connection. So on a
// network the listener says when it has taken the confirmation, after which it gives up no
// more, and Dial returns only then. What ends before has delivered nothing and is dialled
// again. On the software device a word that both ends share decides the same.
// docs/PROTOCOL.md, section 3.

// sayAgainAfter is how long the dialing end waits before it says something itself. That
// stands for a confirmation that was lost, and finds a peer out that is not there any more.
const sayAgainAfter = 500 * time.Millisecond

// sendAcknowledgement says that the confirmation was taken.
func (s *stream) sendAcknowledgement() error {
	if !s.ep.acknowledge {
		return nil
	}
	return s.send.say("its confirmation could be acknowledged")
}

// acknowledged waits until the listening end has said so. Nobody else uses the Conn yet.
func (s *stream) acknowledged(ctx context.Context) error {
	if !s.ep.acknowledge {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialPatience, errNotAcknowledged)
	defer cancel()
	said := make(chan struct{})
	timer := time.AfterFunc(sayAgainAfter, func() {
		defer close(said)
		_ = s.send.say("it had acknowledged the connection") // if that fails, the wait ends
	})
	err := s.hear(ctx)
	if !timer.Stop() {
		<-said
	}
	if err != nil && ctx.Err() == nil {
		return s.unacknowledged()
	}
	return err
}

var errNotAcknowledged = fmt.Errorf("the listener did not acknowledge the connection: %w", syscall.ETIMEDOUT)

// unacknowledged is why a connection is none that has ended before it was acknowledged. It
// is dialled again, unless this end cannot or the peer broke the rules.
func (s *stream) unacknowledged() error {
	cause := s.term.err()
	if errors.Is(cause, ErrProtocol) || errors.Is(cause, syscall.ENODEV) {
		return cause
	}
	return fmt.Errorf("the listener gave the connection up before it had taken the confirmation: %w: %w", cm.ErrTryAgain, ErrPeerGone)
}
