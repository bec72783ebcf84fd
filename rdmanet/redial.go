package rdmanet

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
)

// Who dials a listener that has no place waits in the dial, as with TCP. Where the listener
// has no place even for its request, or takes back an answer that was not confirmed in
// time, the dial begins again, and its caller sees nothing of that: nothing was delivered.

const (
	firstRedial = time.Millisecond
	lastRedial  = 100 * time.Millisecond
	// dialPatience bounds a dial without a deadline: about what the SYNs of TCP take.
	dialPatience = 127 * time.Second
)

// dialAddr dials one address until the listener has a place, or the time is up.
func (d *Dialer) dialAddr(ctx context.Context, network string, src, dst netip.AddrPort, s sizes) (*Conn, error) {
	var end time.Time // of a dial without a deadline; set when it matters
	for pause := firstRedial; ; pause = min(2*pause, lastRedial) {
		conn, err := d.dialThrough(ctx, network, src, dst, s)
		if err == nil || !errors.Is(err, cm.ErrTryAgain) {
			return conn, err
		}
		if end.IsZero() {
			end = time.Now().Add(dialPatience)
		} else if _, bounded := ctx.Deadline(); !bounded && time.Now().After(end) {
			return nil, os.NewSyscallError("connect", newConnError(syscall.ETIMEDOUT, err))
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): // not all of a crowd at once
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
