package link

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// carrier is what Links needs of a lane.
type carrier interface {
	open(ctx context.Context) (*Stream, error)
	// retireNow has no more streams opened, and those that are stay.
	retireNow()
	// closeIfIdle ends it unless it has streams.
	closeIfIdle() bool
}

// Links has the links of a process that dials, one for each Target. Its methods may be called
// concurrently.
type Links struct {
	cfg Config
	// bring brings a lane up; tests of policies replace it.
	bring func(context.Context, Target, *link) (carrier, error)

	mu     sync.Mutex
	links  map[Target]*link
	idle   []*link // the longest idle first
	lanes  map[*laneEnd]struct{}
	closed bool
}

// A link is the way to one Target, which comes up, stands, or has failed.
type link struct {
	l      *Links
	target Target
	ready  chan struct{} // closed when c or err is set

	// What follows is guarded by Links.mu.
	c       carrier
	err     error
	users   int // dials that wait for it or open a stream on it
	cancel  context.CancelFunc
	timer   *time.Timer // while it is idle
	busy    bool        // it has streams
	dropped bool        // new dials have another
	over    bool        // it takes no more streams
}

// NewLinks returns Links that are made by c.
func NewLinks(c Config) (*Links, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Links{cfg: c, links: map[Target]*link{}}
	l.bring = func(ctx context.Context, t Target, k *link) (carrier, error) {
		e, err := bringUp(ctx, &l.cfg, t, k)
		if err != nil {
			return nil, err
		}
		l.note(e)
		return e, nil
	}
	return l, nil
}

// maxTries bounds how often a dial begins anew because a link went away under it.
const maxTries = 8

// Dial opens a stream to t. Dials that come while the link comes up wait for it together, each
// until its ctx ends; a dial without a place waits for one. The link is kept for a while when
// its last stream has gone.
func (l *Links) Dial(ctx context.Context, t Target) (*Stream, error) {
	var last error
	for range maxTries {
		s, err := l.dial(ctx, t)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errRetired) && !errors.Is(err, verbs.ErrTryAgain) {
			return s, err
		}
		last = err
	}
	return nil, last
}

func (l *Links) dial(ctx context.Context, t Target) (*Stream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	k, err := l.get(t)
	if err != nil {
		return nil, err
	}
	defer l.done(k)
	select {
	case <-k.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if k.err != nil {
		return nil, k.err
	}
	return k.c.open(ctx)
}

// get returns the link to t for a dial, and brings it up if there is none.
func (l *Links) get(t Target) (*link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	k := l.links[t]
	if k == nil {
		ctx, cancel := context.WithCancel(context.Background())
		k = &link{l: l, target: t, ready: make(chan struct{}), cancel: cancel}
		l.links[t] = k
		go k.up(ctx)
	}
	k.users++
	l.use(k)
	return k, nil
}

// up brings the link up for all that wait.
func (k *link) up(ctx context.Context) {
	c, err := k.l.bring(ctx, k.target, k)
	k.l.mu.Lock()
	k.c, k.err = c, err
	if err != nil {
		k.l.drop(k)
	}
	unwanted := err == nil && k.dropped // while it came up
	close(k.ready)
	k.l.rest(k)
	k.l.mu.Unlock()
	k.cancel()
	if unwanted {
		c.retireNow()
	}
}

// done ends a dial's interest in k. A link that comes up for nobody is given up.
func (l *Links) done(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users > 0 {
		return
	}
	if k.c == nil && k.err == nil {
		l.drop(k)
		k.cancel()
		return
	}
	l.rest(k)
}

// drop has later dials make another link. mu is held.
func (l *Links) drop(k *link) {
	k.dropped = true
	if l.links[k.target] == k {
		delete(l.links, k.target)
	}
	l.use(k)
}

// rest begins the time for which k is kept, if it has neither streams nor dials. mu is held.
func (l *Links) rest(k *link) {
	if k.timer != nil || k.users > 0 || k.busy || k.c == nil {
		return
	}
	wait := l.cfg.Idle
	if k.dropped || l.closed {
		wait = 0
	}
	k.timer = time.AfterFunc(wait, func() { l.expire(k) })
	l.idle = append(l.idle, k)
	if len(l.idle) > l.cfg.MaxIdle {
		l.idle[0].timer.Reset(0)
	}
}

// use ends it. mu is held.
func (l *Links) use(k *link) {
	if k.timer == nil {
		return
	}
	k.timer.Stop()
	k.timer = nil
	l.idle = slices.DeleteFunc(l.idle, func(o *link) bool { return o == k })
}

// expire closes a link that was idle for long enough.
func (l *Links) expire(k *link) {
	l.mu.Lock()
	idle := k.timer != nil && k.users == 0
	if idle {
		l.use(k)
		l.drop(k) // a dial that comes now makes another
	}
	l.mu.Unlock()
	if idle && !k.c.closeIfIdle() {
		l.mu.Lock()
		if !k.over && l.links[k.target] == nil && !l.closed {
			k.dropped = false
			l.links[k.target] = k
		}
		l.mu.Unlock()
	}
}

// Close has links closed as soon as they have no stream. Dials fail with net.ErrClosed.
func (l *Links) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return net.ErrClosed
	}
	l.closed = true
	var up []carrier
	for _, k := range l.links {
		l.drop(k)
		if k.c != nil {
			up = append(up, k.c)
		} else {
			k.cancel()
		}
	}
	l.mu.Unlock()
	for _, c := range up {
		c.retireNow()
	}
	return nil
}

// What a lane tells its link.

func (k *link) opened(*stream)                     {}
func (k *link) note(*laneEnd, note, int) allotment { return allotment{} }
func (k *link) heard(*laneEnd)                     {}
func (k *link) short(error)                        {}
func (k *link) destroyed(*laneEnd)                 {}

func (k *link) retired(*laneEnd) { k.forget() }

func (k *link) gone(e *laneEnd) {
	k.l.mu.Lock()
	delete(k.l.lanes, e)
	k.l.mu.Unlock()
	k.forget()
}

func (k *link) forget() {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.over = true
	k.l.drop(k)
}

func (k *link) filled(*laneEnd) {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.busy = true
	k.l.use(k)
}

func (k *link) emptied(*laneEnd) {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.busy = false
	k.l.rest(k)
}

func (e *laneEnd) retireNow() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retire()
}

func (e *laneEnd) closeIfIdle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closeIdle()
}
