package link

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
)

// portPatience is for how long a dial waits for its port, where a lane of this process has ended that
// still has it. As a rule that takes some milliseconds; a device that does not answer may take a minute.
const portPatience = time.Second

// resolve makes an id with the way to t. The port that the caller has bound is free as soon as a program
// can know that its connection has failed, as TCP's is.
func (l *Links) resolve(ctx context.Context, ch *cm.EventChannel, options cm.Options, t Target) (*cm.ID, error) {
	for {
		has := l.failedWith(t.Src.Port()) // before it lets go of the port, and is forgotten
		id, err := ch.CreateID(options)
		if err != nil {
			return nil, err
		}
		err = id.Resolve(ctx, t.Src, t.Dst)
		if err == nil {
			return id, nil
		}
		err = &AddressError{errors.Join(err, id.Close())}
		if !errors.Is(err, syscall.EADDRINUSE) || has == nil || !has.awaitDestroyed(ctx) {
			return nil, err
		}
	}
}

// binds notes that a lane has a port that the caller has bound, if it is not 0.
func (l *Links) binds(e *laneEnd, port uint16) {
	if e.only = port; port != 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.bound = append(l.bound, e)
	}
}

// failedWith returns a lane that has failed and may have the port still, nil if there is none.
func (l *Links) failedWith(port uint16) *laneEnd {
	if port == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.bound, func(e *laneEnd) bool { return e.only == port && e.failed.Load() }); i >= 0 {
		return l.bound[i]
	}
	return nil
}

// awaitDestroyed waits for the end of all that the lane has, for portPatience at most, and reports whether it
// has come.
func (e *laneEnd) awaitDestroyed(ctx context.Context) bool {
	patience := time.NewTimer(portPatience)
	defer patience.Stop()
	select {
	case <-e.done:
		return true
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}
