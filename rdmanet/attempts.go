package rdmanet

import (
	"context"
	"errors"
	"net"
	"time"
)

// Attempt delays of a dial on a network of TCP (RFC 8305, section 5): how long RDMA is
// tried before TCP is, and the first address family before the other. The latter is
// that of net.Dialer. Within a host nothing is lost on the way: RDMA is late there because
// some process gets no processor, and a connection over TCP that came too late is one that
// the server has accepted, while its dialer has another.
const (
	rdmaHeadStart     = 250 * time.Millisecond
	rdmaHeadStartHere = 2 * time.Second
	familyHeadStart   = 300 * time.Millisecond
)

// headStart and headStartHere are rdmaHeadStart and rdmaHeadStartHere but in tests of what
// comes by RDMA, however slowly.
var (
	headStart     = rdmaHeadStart
	headStartHere = rdmaHeadStartHere
)

// A dialFunc makes one attempt, which ends soon after ctx does.
type dialFunc func(ctx context.Context) (net.Conn, error)

// race has first a head start before second, which then runs beside it, or takes its
// place as soon as it fails. It returns the connection of the one that was there
// sooner, first's where both were; the other's attempt is cancelled, or its
// connection reset. The errors are those of both attempts; first's is ErrSlow where
// second overtook it.
func race(ctx context.Context, headStart time.Duration, first, second dialFunc) (conn net.Conn, firstErr, secondErr error) {
	if at, ok := ctx.Deadline(); ok {
		headStart = min(headStart, time.Until(at)/2)
	}
	firstCtx, cancelFirst := context.WithCancelCause(ctx)
	defer cancelFirst(nil)
	secondCtx, cancelSecond := context.WithCancel(ctx)
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	timer := time.AfterFunc(headStart, func() {
		c, err := second(secondCtx)
		if err == nil {
			cancelFirst(ErrSlow)
		}
		done <- result{c, err}
	})
	conn, firstErr = first(firstCtx)
	if timer.Stop() { // there is no second yet
		defer cancelSecond()
		if firstErr == nil {
			return conn, nil, nil
		}
		conn, secondErr = second(secondCtx)
		return conn, firstErr, secondErr
	}
	if firstErr == nil {
		cancelSecond()
		go func() {
			if r := <-done; r.err == nil {
				reset(r.conn)
			}
		}()
		return conn, nil, nil
	}
	defer cancelSecond()
	if errors.Is(firstErr, context.Canceled) && context.Cause(firstCtx) == ErrSlow {
		firstErr = ErrSlow
	}
	r := <-done
	return r.conn, firstErr, r.err
}

// keepAhead returns the attempts of a race in which first, if where reports so, has a longer head start
// than the usual one: longer, or half of a deadline that is nearer, or until it has failed. One that
// succeeds then is not overtaken by a second that begins before the race has ended.
func keepAhead(longer time.Duration, where func() bool, first, second dialFunc) (ahead, behind dialFunc) {
	began, failed := time.Now(), make(chan struct{})
	ahead = func(ctx context.Context) (net.Conn, error) {
		conn, err := first(ctx)
		if err != nil {
			close(failed)
		}
		return conn, err
	}
	behind = func(ctx context.Context) (net.Conn, error) {
		if where() {
			stayBehind(ctx, began, longer, failed)
		}
		return second(ctx)
	}
	return ahead, behind
}

// stayBehind waits until an attempt that began then has had its head start, or has failed.
func stayBehind(ctx context.Context, began time.Time, headStart time.Duration, failed <-chan struct{}) {
	if at, ok := ctx.Deadline(); ok {
		headStart = min(headStart, at.Sub(began)/2)
	}
	timer := time.NewTimer(headStart - time.Since(began))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-failed:
	case <-ctx.Done():
	}
}

// reset closes a connection that nobody is to see.
func reset(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0) // fails if the connection has, and then Close is as short
	}
	_ = c.Close()
}
