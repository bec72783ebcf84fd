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
func (c *Conn) speakFirst() error {
	if c.ep.confirm == nil {
		return nil
	}
	if err := c.say("a first message"); err != nil {
		return fmt.Errorf("%w: %w", c.unacknowledged(), err)
	}
	return nil
}

// hearFirst waits for it. Nobody else uses the Conn yet.
func (c *Conn) hearFirst(ctx context.Context, timeout time.Duration) error {
	if c.ep.confirm == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.hear(ctx)
}

// say sends a message that says nothing.
func (c *Conn) say(what string) error {
	c.tx.Lock()
	defer c.tx.Unlock()
	if !c.postControl(ring.KindKeepAlive, nil) {
		return fmt.Errorf("%w: it left before %s could be sent", ErrPeerGone, what)
	}
	return nil
}

// hear waits until the peer has said something. Nobody else reads from the Conn yet.
func (c *Conn) hear(ctx context.Context) error {
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.ep.setDeadline(dirRead, longPast)
		close(expired)
	})
	defer func() {
		if !stop() {
			<-expired
			c.ep.setDeadline(dirRead, time.Time{})
		}
	}()
	for !c.heardFirst() {
		err := c.ep.wait(dirRead, func() bool {
			return c.heardFirst() || c.busy.Load() || c.ep.recvCQ.ReqNotify(false) != nil || c.heardFirst() || c.busy.Load()
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
	c.rx.Lock()
	defer c.rx.Unlock()
	if c.rxStats.doorbells == 0 {
		return fmt.Errorf("%w: it left before its first message came", ErrPeerGone)
	}
	return nil
}

// heardFirst reports whether something has come, or nothing will. What the peer said before
// it left is in the receive queue by the time that its end is known, so that is asked first.
func (c *Conn) heardFirst() bool {
	over := c.term.broken()
	c.rx.Lock()
	defer c.rx.Unlock()
	c.progress()
	return c.rxStats.doorbells > 0 || over
}
