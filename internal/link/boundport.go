package link

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
)

// portPatience is for how long a dial waits for its port, and a listener with a lane from it, where a lane of this
// process has ended, or is about to, that still has it. As a rule that takes some milliseconds; a device that does
// not answer may take a minute.
const portPatience = time.Second

// resolve makes an id with the way to t. The port that the caller has bound is free as soon as a program
// can know that its connection has failed, or has left its dial, as TCP's is.
func (k *linkLane) resolve(ctx context.Context, ch *cm.EventChannel, t Target) (*cm.ID, error) {
	options := k.l.cfg.CM
	options.AskToConfirm = true
	for {
		has := k.portLeft(t.Src.Port()) // before it lets go of the port, and is forgotten
		id, err := ch.CreateID(options)
		if err != nil {
			return nil, err
		}
		err = id.Resolve(ctx, t.Src, t.Dst)
		if err == nil {
			return id, nil
		}
		err = &AddressError{errors.Join(err, id.Close())}
		if !errors.Is(err, syscall.EADDRINUSE) || has == nil || !has.awaitUnbound(ctx) {
			return nil, err
		}
	}
}

// binds notes that a lane is to have a port that the caller has bound, if it is to. Unbind follows when nothing
// is left of what has it.
func (k *linkLane) binds() {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	if k.link.target.Src.Port() != 0 {
		k.unbound = make(chan struct{})
		k.l.bound = append(k.l.bound, k)
	}
}

func (k *linkLane) unbind() {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	if k.unbound != nil {
		close(k.unbound)
		k.unbound = nil
		k.l.bound = slices.DeleteFunc(k.l.bound, func(o *linkLane) bool { return o == k })
	}
}

// portLeft returns another lane that may have the port still, and on which nobody has or gets a stream any more;
// nil if there is none.
func (k *linkLane) portLeft(port uint16) *linkLane {
	if port == 0 {
		return nil
	}
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	i := slices.IndexFunc(k.l.bound, func(o *linkLane) bool {
		return o != k && o.link.target.Src.Port() == port && (o.ended || o.dropped && !o.busy)
	})
	if i < 0 {
		return nil
	}
	return k.l.bound[i]
}

// awaitUnbound waits for the end of all that the lane has, for Links.portPatience at most, and reports whether it
// has come.
func (k *linkLane) awaitUnbound(ctx context.Context) bool {
	k.l.mu.Lock()
	unbound := k.unbound
	k.l.mu.Unlock()
	if unbound == nil {
		return true
	}
	patience := time.NewTimer(k.l.portPatience)
	defer patience.Stop()
	select {
	case <-unbound:
		return true
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}
