package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// carrier is what Links needs of a lane.
type carrier interface {
	open(ctx context.Context, from *stream) (*Stream, error)
	// load returns how many of its streams the program has not closed, and how many more it can
	// carry. It may be called with Links.mu held.
	load() (streams, room int)
	// allAnswered returns a channel that is closed when the listener has answered all streams that
	// were opened so far, or nil if it has.
	allAnswered() <-chan struct{}
	// owesAnswers reports whether the listener has not answered all of them. It may be called with
	// Links.mu held.
	owesAnswers() bool
	// agreedLanes is over how many lanes both ends like to spread streams.
	agreedLanes() int
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
	bring  func(context.Context, Target, *linkLane) (carrier, error)
	timers sync.Pool // of *time.Timer, see inOrder
	// portPatience is the constant; tests on busy machines lengthen it.
	portPatience time.Duration

	mu     sync.Mutex
	links  map[Target]*link
	idle   []*linkLane // the longest idle first
	lanes  map[*laneEnd]struct{}
	coming map[*linkLane]struct{} // up, dropped ones too
	bound  []*linkLane            // that are to have a port that the caller has bound, until nothing is left that has it
	closed bool
}

// NewLinks returns Links that are made by c.
func NewLinks(c Config) (*Links, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if c.Secret == (hello.Secret{}) {
		c.Secret = hello.NewSecret()
	}
	l := &Links{cfg: c, links: map[Target]*link{}, coming: map[*linkLane]struct{}{}, portPatience: portPatience}
	l.bring = func(ctx context.Context, t Target, k *linkLane) (carrier, error) {
		cfg := l.cfg // the lane's
		cfg.Logger = k.logger
		if t.Alone != 0 {
			cfg.Streams = 1 // so the listener keeps no places in store for it
		}
		e, err := bringUp(ctx, &cfg, t, k)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		e.dialer.again = func(ctx context.Context, s *stream) { l.redial(ctx, t, s) }
		e.mu.Unlock()
		l.note(e)
		return &e.dialer, nil
	}
	return l, nil
}

// maxTries bounds how often a dial begins anew because a link went away under it.
const maxTries = 8

// Dial opens a stream to t. Dials that come while the link comes up wait for it together, each
// until its ctx ends; a dial without a place waits for one. A lane is kept for a while when
// its last stream has gone.
func (l *Links) Dial(ctx context.Context, t Target) (*Stream, error) {
	return l.DialLogged(ctx, t, l.cfg.logger())
}

// DialLogged is Dial with the Logger for lines about the lane, where one is brought up for this
// dial. Those about the stream are a matter of its SetLogger.
func (l *Links) DialLogged(ctx context.Context, t Target, logger *slog.Logger) (*Stream, error) {
	return l.dialFor(ctx, t, logger, nil)
}

// dialFor is DialLogged for a stream that is dialled again, or for none.
func (l *Links) dialFor(ctx context.Context, t Target, logger *slog.Logger, from *stream) (*Stream, error) {
	var last error
	for range maxTries {
		s, err := l.dial(ctx, t, logger, from)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errRetired) && !errors.Is(err, verbs.ErrTryAgain) {
			return s, err
		}
		last = err
	}
	if errors.Is(last, errRetired) {
		last = driver.Explain(last.Error(), last, syscall.ECONNRESET)
	}
	return nil, last
}

func (l *Links) dial(ctx context.Context, t Target, logger *slog.Logger, from *stream) (*Stream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	k, err := l.get(ctx, t, logger)
	if err != nil {
		return nil, err
	}
	k, err = l.inOrder(ctx, k)
	defer l.done(k)
	if err != nil {
		return nil, err
	}
	return k.c.open(ctx, from)
}

// drop has no more dials go by k. mu is held.
func (l *Links) drop(k *linkLane) {
	k.dropped = true
	k.link.remove(k)
	l.use(k)
}

// rest begins the time for which a lane is kept, if it has neither streams nor dials. mu is held.
func (l *Links) rest(k *linkLane) {
	if k.timer != nil || k.users > 0 || k.busy || k.c == nil {
		return
	}
	wait := l.cfg.Idle
	if k.dropped || l.closed || k.link.target.Alone != 0 {
		wait = 0
	}
	k.timer = time.AfterFunc(wait, func() { l.expire(k) })
	if wait == 0 {
		return // it is not kept, so none that is has to go for it
	}
	l.idle = append(l.idle, k)
	if n := len(l.idle) - l.cfg.MaxIdle; n > 0 { // those before it have been told already
		l.idle[n-1].timer.Reset(0)
	}
}

// use ends it. mu is held.
func (l *Links) use(k *linkLane) {
	if k.timer == nil {
		return
	}
	k.timer.Stop()
	k.timer = nil
	l.idle = slices.DeleteFunc(l.idle, func(o *linkLane) bool { return o == k })
}

// expire closes a lane that was idle for long enough.
func (l *Links) expire(k *linkLane) {
	l.mu.Lock()
	idle := k.timer != nil && k.users == 0
	if idle {
		l.use(k)
		l.drop(k) // a dial that comes now goes by another
	}
	l.mu.Unlock()
	if idle && !k.c.closeIfIdle() {
		l.mu.Lock()
		if !k.over && !l.closed {
			k.dropped = false
			k.link = l.linkTo(k.link.target)
			k.link.lanes = append(k.link.lanes, k)
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
	for _, to := range l.links {
		for _, k := range slices.Clone(to.lanes) {
			l.drop(k)
			if k.c != nil {
				up = append(up, k.c)
			}
		}
	}
	for k := range l.coming {
		k.cancel(net.ErrClosed)
	}
	l.mu.Unlock()
	for _, c := range up {
		c.retireNow()
	}
	return nil
}

// What a lane tells its link.

func (k *linkLane) opened(*stream)                     {}
func (k *linkLane) reset(*stream)                      {}
func (k *linkLane) note(*laneEnd, note, int) allotment { return allotment{} }
func (k *linkLane) heard(*laneEnd)                     {}
func (k *linkLane) takesOver(*laneEnd) bool            { return false }
func (k *linkLane) short(error)                        {}
func (k *linkLane) used(*laneEnd)                      {}
func (k *linkLane) unused(*laneEnd)                    {}

func (k *linkLane) retired(*laneEnd) { k.forget() }

func (k *linkLane) endsGivenUp(*laneEnd) *endsGivenUp {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	return &k.link.givenUp
}

func (k *linkLane) gone(e *laneEnd) {
	k.l.mu.Lock()
	delete(k.l.lanes, e)
	k.ended = true
	var beside []carrier
	if errors.Is(e.err, errNoAnswer) {
		beside = k.unanswered()
	}
	k.l.mu.Unlock()
	k.forget()
	if len(beside) > 0 {
		go func() { // they have locks of their own
			for _, c := range beside {
				c.retireNow()
			}
		}()
	}
}

func (k *linkLane) destroyed(*laneEnd) { k.unbind() }

// unanswered has dials go by new lanes, and returns the lanes that stand beside k: the host at
// their other end does not answer, which one without streams would not notice. Those that come up
// for nobody are given up. Links.mu is held.
func (k *linkLane) unanswered() (beside []carrier) {
	for _, o := range slices.Clone(k.link.lanes) {
		if o == k {
			continue
		}
		k.l.drop(o)
		if o.c != nil {
			beside = append(beside, o.c)
		} else {
			k.l.unused(o)
		}
	}
	return beside
}

func (k *linkLane) forget() {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.over = true
	k.l.drop(k)
}

func (k *linkLane) filled(*laneEnd) {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.busy = true
	k.l.use(k)
}

func (k *linkLane) emptied(*laneEnd) {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.busy = false
	k.link.left = without(k.link.left, k)
	k.link.forget()
	k.l.rest(k)
}
