package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	// besidePatience is how long the first dial of a lane that comes up beside others waits for
	// it, before it goes by one of those.
	besidePatience = 5 * time.Millisecond
	// besidePause is for how long no lane is brought up beside others when one has failed.
	besidePause = time.Second
	// besideTime bounds how long one may take.
	besideTime = 30 * time.Second
	// unwaitedTime is for how long, from its begin, a lane comes up although the dials that waited for it have left:
	// dials that wait for less than it takes, again and again, have one in the end. It is given up then, as what
	// it waits for may be lost.
	unwaitedTime = time.Second
)

// A link has the lanes to one Target. Each of the first streams gets a lane of its own, until
// there are as many lanes as both ends have processors for; then the least loaded lane is taken.
// Dials that are one after the other go by one lane. Links.mu guards it.
type link struct {
	l      *Links
	target Target
	lanes  []*linkLane // that take dials, in the order in which they were brought up
	left   []*linkLane // that take none any more, and have streams
	most   int         // how many there may be unless they are full
	pause  time.Time   // until then none is brought up beside others

	givenUp endsGivenUp // which needs no lock itself
}

// A linkLane is a lane to one Target, which comes up, stands, or has failed.
type linkLane struct {
	l      *Links
	ready  chan struct{} // closed when c or err is set
	logger *slog.Logger  // of the dial that it is brought up for

	// What follows is guarded by Links.mu.
	link   *link
	c      carrier
	err    error
	began  time.Time // to come up
	users  int       // dials that wait for it or open a stream on it
	cancel context.CancelCauseFunc
	timer  *time.Timer // while it is idle
	// unwaited runs since all dials have left while it came up.
	unwaited *time.Timer
	beside   bool // it comes up beside others
	late     bool // and did not in the time that a dial waits for it
	busy     bool // it has streams
	dropped  bool // new dials go by others
	over     bool // it takes no more streams
	ended    bool
	unbound  chan struct{} // closed when it has the port no more that the caller has bound; nil if it has none
}

// linkTo returns the link to t, which may have no lane. mu is held.
func (l *Links) linkTo(t Target) *link {
	to := l.links[t]
	if to == nil {
		to = &link{l: l, target: t, most: 1}
		l.links[t] = to
	}
	return to
}

// remove takes a lane out of those that take dials. While it has streams it is one of those that
// have left. mu is held.
func (to *link) remove(k *linkLane) {
	to.lanes = without(to.lanes, k)
	if to.left = without(to.left, k); k.busy && !k.ended {
		to.left = append(to.left, k)
	}
	to.forget()
}

// forget is for a link that may have no lanes any more: then it is none. mu is held.
func (to *link) forget() {
	if len(to.lanes)+len(to.left) == 0 && to.l.links[to.target] == to {
		delete(to.l.links, to.target)
	}
}

// without returns lanes without k.
func without(lanes []*linkLane, k *linkLane) []*linkLane {
	return slices.DeleteFunc(lanes, func(o *linkLane) bool { return o == k })
}

// bring has another lane come up, perhaps beside some that stand. mu is held.
func (to *link) bring(beside bool, logger *slog.Logger) *linkLane {
	ctx, cancel := context.WithCancelCause(context.Background())
	k := &linkLane{l: to.l, link: to, ready: make(chan struct{}), logger: logger, cancel: cancel, beside: beside, began: time.Now()}
	to.lanes = append(to.lanes, k)
	to.l.coming[k] = struct{}{}
	go k.up(ctx, to.target)
	return k
}

// up brings the lane up for all that wait.
func (k *linkLane) up(ctx context.Context, t Target) {
	if k.beside { // else the dials that wait say for how long
		bounded, stop := context.WithTimeout(ctx, besideTime)
		defer stop()
		ctx = bounded
	}
	c, err := k.l.bring(ctx, t, k)
	if err != nil && context.Cause(ctx) == errUnwaited {
		err = errUnwaited
	}
	k.l.mu.Lock()
	delete(k.l.coming, k)
	k.c, k.err = c, err
	switch {
	case err != nil:
		k.l.drop(k)
		k.link.pause = time.Now().Add(besidePause)
	case t.Src.Port() == 0: // else the one stream has it
		k.link.most = c.agreedLanes()
	}
	unwanted := err == nil && k.dropped // while it came up
	if k.unwaited != nil {
		k.unwaited.Stop()
	}
	close(k.ready)
	k.l.rest(k)
	k.l.mu.Unlock()
	k.cancel(nil)
	if unwanted {
		c.retireNow()
	}
}

// waiting returns how many of the dials that wait for k are likely to go by it, 1 at least, where streams
// are spread over so many lanes: those that wait for the first choose again when it stands.
func (k *linkLane) waiting(lanes int) int {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	if k.beside || k.link.target.Src.Port() != 0 { // they do not wait for long, or go one after the other
		return 1
	}
	return max((k.users+lanes-1)/lanes, 1)
}

// load returns how much k carries, streams that dials are about to open included, and whether it
// can carry another. mu is held.
func (k *linkLane) load() (n int, full bool) {
	if k.c == nil {
		return k.users, false
	}
	streams, room := k.c.load()
	return streams + k.users, room <= k.users
}

// least returns the lane with the least load that is not full, nil if there is none. Those that
// come up count if coming says so, and those of them that are late if late does. mu is held.
func (to *link) least(coming, late bool) (best *linkLane, load int) {
	for _, k := range to.lanes {
		if k.c == nil && (!coming || k.late && !late) {
			continue
		}
		if n, full := k.load(); !full && (best == nil || n < load) {
			best, load = k, n
		}
	}
	return best, load
}

// choose returns the lane for a dial, and whether there is one that stands with room for it: then
// it need not wait for long if its lane is only coming up. More lanes are brought up beside those
// that stand only if beside says so. mu is held.
func (to *link) choose(beside bool, logger *slog.Logger) (k *linkLane, others bool) {
	stands, _ := to.least(false, false)
	if stands != nil && !beside {
		return stands, true
	}
	k, load := to.least(true, stands == nil)
	if k == nil || stands != nil && load > 0 && len(to.lanes) < to.most && !time.Now().Before(to.pause) {
		k = to.bring(stands != nil, logger)
	}
	return k, stands != nil
}

// get returns a lane that stands for a dial to t; done ends the dial's interest in it.
func (l *Links) get(ctx context.Context, t Target, logger *slog.Logger) (*linkLane, error) {
	k, others, err := l.take(nil, t, true, logger)
	for err == nil {
		err = k.await(ctx, others)
		switch {
		case err == nil && (others || l.hasLeft(k)): // what open says of one that has ends the dial
			return k, nil
		case err == nil: // many may have waited for the first lane, or for room
			k, others, err = l.take(k, t, true, logger)
		case others && ctx.Err() == nil:
			l.noteLate(k, err)
			k, others, err = l.take(k, t, false, logger)
		case errors.Is(err, errLate): // and by now the dial is as well
			err = context.Cause(ctx)
		}
	}
	if k != nil {
		l.done(k)
	}
	return nil, err
}

// hasLeft reports whether k takes no more dials.
func (l *Links) hasLeft(k *linkLane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return k.dropped
}

// noteLate has the dials to come not wait for a lane that has let one wait.
func (l *Links) noteLate(k *linkLane, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.late = errors.Is(err, errLate)
}

// errLate means that a lane does not come up beside others as fast as a dial would like.
var errLate = errors.New("link: a lane comes up slowly")

// await waits until the lane stands. A dial that may go by others does not wait for long.
func (k *linkLane) await(ctx context.Context, others bool) error {
	select {
	case <-k.ready:
		return k.err
	default:
	}
	var late <-chan time.Time
	if others {
		t := time.NewTimer(besidePatience)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-k.ready:
		return k.err
	case <-late:
		return errLate
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take has a dial to t go by a lane, and no longer by the one before, unless that is nil. The
// lane is counted as used by it also when it fails.
func (l *Links) take(before *linkLane, t Target, beside bool, logger *slog.Logger) (_ *linkLane, others bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return before, false, net.ErrClosed
	}
	if before != nil {
		before.users--
	}
	k, others := l.linkTo(t).choose(beside, logger)
	k.users++
	l.use(k)
	if before != nil {
		l.unused(before)
	}
	return k, others, nil
}

// done ends a dial's interest in k.
func (l *Links) done(k *linkLane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.users--
	l.unused(k)
}

// unused sees to a lane that perhaps no dial uses any more. One that comes up for nobody is
// given up, at once if no dial to come would go by it. mu is held.
func (l *Links) unused(k *linkLane) {
	t := &k.link.target
	switch {
	case k.users > 0:
	case k.c != nil || k.err != nil:
		l.rest(k)
	case k.dropped || t.Alone != 0 || t.Src.Port() != 0: // a port may be wanted elsewhere
		l.giveUp(k)
	case k.beside || k.unwaited != nil: // besideTime bounds it
	default:
		k.unwaited = time.AfterFunc(unwaitedTime-time.Since(k.began), func() { l.giveUpUnwaited(k) })
	}
}

// giveUp ends the coming up of a lane. mu is held.
func (l *Links) giveUp(k *linkLane) {
	l.drop(k)
	k.cancel(errUnwaited)
}

// giveUpUnwaited gives up a lane that its dials have left and that has not come up in its time. Dials that have come
// since begin another: they need not suffer from what the first have waited for in vain.
func (l *Links) giveUpUnwaited(k *linkLane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.c == nil && k.err == nil {
		l.giveUp(k)
	}
}

// errUnwaited means that a lane was given up since its dials had left.
var errUnwaited = fmt.Errorf("%w: nobody waited for the lane", verbs.ErrTryAgain)
