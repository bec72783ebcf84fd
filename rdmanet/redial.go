package rdmanet

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/shortage"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Who dials a listener that has no place waits in the dial, as with TCP. Where the listener
// has no place even for its request, or nothing to serve it with, or takes back an answer that was not confirmed in
// time, the dial begins again, and its caller sees nothing of that: nothing was delivered.

const (
	firstRedial = time.Millisecond
	lastRedial  = 100 * time.Millisecond
	// dialPatience bounds a dial without a deadline: about what the SYNs of TCP take.
	dialPatience = 127 * time.Second
)

// dialAddr dials one address until the listener has a place, or the time is up.
func (d *Dialer) dialAddr(ctx context.Context, network string, src, dst netip.AddrPort, s sizes) (*Conn, error) {
	return redial(ctx, func() (*Conn, error) { return d.dialThrough(ctx, network, src, dst, s) })
}

// redial dials until that succeeds, or fails for another reason than that
// there is no place, or nothing to serve it with.
func redial[C any](ctx context.Context, dial func() (C, error)) (C, error) {
	var none C
	var last error // why it dials again
	began := time.Now()
	for pause := firstRedial / 2; ; {
		conn, err := dial()
		switch {
		case err == nil:
			return conn, nil
		case peerShort(err):
			last = err
			pause = min(2*pause, shortage.LastPause)
		case errors.Is(err, verbs.ErrTryAgain):
			last = err
			pause = min(2*pause, lastRedial)
		default:
			return none, endedDial(err, last)
		}
		if _, bounded := ctx.Deadline(); !bounded && time.Since(began) > dialPatience {
			return none, os.NewSyscallError("connect", newConnError(syscall.ETIMEDOUT, err))
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): // not all of a crowd at once
		case <-ctx.Done():
			return none, endedDial(ctx.Err(), last)
		}
	}
}

// endedDial is the error of a dial that cause has ended. If that is the end of its time, it
// says why the dial was made again until then, if it was: last.
func endedDial(cause, last error) error {
	if last == nil || !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	text, is := "i/o timeout: ", last
	switch {
	case peerShort(last):
		text += "the listener had no resources: "
	case errors.Is(last, syscall.ECONNREFUSED):
		is = verbs.ErrTryAgain // to programs the errno means that nobody listens
	}
	return &dialError{
		text: text + plain(last).Error(), timeout: true,
		is: []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, is},
	}
}
