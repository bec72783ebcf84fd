package rdmanet

import (
	"context"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// Calls that make and destroy a network's RDMA objects may wait for long, for a device, its
// driver or, on soft-iWARP, for TCP, and nothing can end them. A dial does not: when its time
// is up it leaves them alone. They go on in the driver, which bounds how many threads they
// take, and then what they have made is destroyed.

// leaveAfter is how long a dial whose time is up still waits for them, so that as a rule all
// is destroyed when it returns.
const leaveAfter = 50 * time.Millisecond

// onDevice makes a connection on the device that a resolved id leads to, by dial, which ends
// with ctx unless a call of the device does not return.
func onDevice(ctx context.Context, id identifier, dial func() (*Conn, error)) (*Conn, error) {
	if v := id.Verbs(); v == nil || v.Device().Transport() == verbs.TransportSoftware {
		return dial()
	}
	return leaving(ctx, dial, func(c *Conn) { reset(c) })
}

// leaving is f, until a while after ctx has ended. What f returns later is undone.
func leaving[C any](ctx context.Context, f func() (C, error), undo func(C)) (C, error) {
	if ctx.Done() == nil {
		return f()
	}
	type result struct {
		conn C
		err  error
	}
	done := make(chan result) // not buffered: either it is received, or undone
	left := make(chan struct{})
	go func() {
		conn, err := f()
		select {
		case done <- result{conn, err}:
		case <-left:
			if err == nil {
				undo(conn)
			}
		}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(leaveAfter)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-timer.C:
		close(left)
		var none C
		return none, ctx.Err()
	}
}
