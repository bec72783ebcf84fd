package link

import (
	"context"
	"reflect"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// Streams that were dialled one after the other are to come to Accept so, as over TCP. A lane is
// in order, and lanes are not among each other. The listener answers an OPEN when its application
// may accept the stream. So a dial goes by a lane only when all streams are answered that were
// opened before on other lanes of its link. Streams that a listener has not taken, and that are dialled
// again, come in any order, and so do those of a Target that is Alone, whose link has no other lane.

// answers is what a dialer's lane knows of that. The lane's lock guards it.
type answers struct {
	opened  uint64 // streams, so far
	unknown uint64 // of them, so many are not answered
	waits   []answerWait
}

// An answerWait waits for the answers to the streams that were opened first.
type answerWait struct {
	opened  uint64 // so many
	unknown uint64 // of them are not answered
	done    chan struct{}
}

// awaitAnswer records a stream that was opened. mu is held.
func (dp *dialerPart) awaitAnswer(s *stream) {
	a := &dp.answers
	a.opened++
	a.unknown++
	s.re.opened = a.opened
	dp.owed.Store(true)
}

// answered records that the listener has said what becomes of s, or never will. mu is held.
func (dp *dialerPart) answered(s *stream) {
	e := dp.e
	a := &dp.answers
	if e.role != lane.RoleDialer || s.answered {
		return
	}
	s.answered = true
	if a.unknown--; a.unknown == 0 {
		dp.owed.Store(false)
	}
	for i := range a.waits {
		if w := &a.waits[i]; s.re.opened <= w.opened {
			w.unknown--
		}
	}
	for len(a.waits) > 0 && a.waits[0].unknown == 0 { // who waits for more waits longer
		close(a.waits[0].done)
		a.waits = a.waits[1:]
	}
	if len(a.waits) == 0 {
		a.waits = nil
	}
}

// answerless ends the waits of a lane that has ended. mu is held.
func (dp *dialerPart) answerless() {
	for _, w := range dp.answers.waits {
		close(w.done)
	}
	dp.answers.waits = nil
}

func (dp *dialerPart) owesAnswers() bool { return dp.owed.Load() }

// allAnswered returns a channel that is closed when all streams are answered that were opened so
// far, or nil if they are.
func (dp *dialerPart) allAnswered() <-chan struct{} {
	e := dp.e
	if !dp.owed.Load() {
		return nil
	}
	e.mu.Lock()
	a := &dp.answers
	if e.err != nil || a.unknown == 0 {
		e.mu.Unlock()
		return nil
	}
	n := len(a.waits)
	if n == 0 || a.waits[n-1].opened < a.opened {
		if n == int(lane.MaxStream) { // the listener leaves one unanswered, and answers those behind it
			e.mu.Unlock()
			return nil
		}
		a.waits = append(a.waits, answerWait{a.opened, a.unknown, make(chan struct{})})
	}
	done := a.waits[len(a.waits)-1].done
	e.giveUpKept() // nobody else would take the answer in
	e.mu.Unlock()
	e.startWorker()
	return done
}

// leftPatience is how long a dial waits for answers on lanes that take no more dials.
const leftPatience = time.Second

// inOrder returns the lane for a dial that was to go by k, when it may. A peer that does not answer
// for a while has the dial go by the lane on which it owes answers, if that is the only one. Until then
// the dial does not look at ctx, whose timer would be for nothing.
func (l *Links) inOrder(ctx context.Context, k *linkLane) (*linkLane, error) {
	k = l.withCrowd(k)
	late := l.unanswered(k)
	if len(late) == 0 {
		return k, nil
	}
	timer, _ := l.timers.Get().(*time.Timer)
	if timer == nil {
		timer = time.NewTimer(besidePatience)
	} else {
		timer.Reset(besidePatience)
	}
	defer func() {
		timer.Stop()
		l.timers.Put(timer)
	}()
	for len(late) > 0 {
		select {
		case <-late[0].answered:
			late = late[1:]
		case <-timer.C:
			if ctx.Err() != nil {
				return k, context.Cause(ctx)
			}
			return l.inOrderLate(ctx, k, late)
		}
	}
	return k, context.Cause(ctx)
}

// crowded is from how many streams on a dial goes by the lane that owes answers, though another has
// fewer, rather than wait for them: unless it has more than twice as many. Each of many dials at once
// would wait otherwise, since they go by one lane and the other in turn.
const crowded = 8

// withCrowd returns the lane for a dial that was to go by k: the one that owes answers, if that is the
// only one and has about as many streams as others.
func (l *Links) withCrowd(k *linkLane) *linkLane {
	l.mu.Lock()
	defer l.mu.Unlock()
	var owes *linkLane
	for _, all := range [...][]*linkLane{k.link.lanes, k.link.left} {
		for _, o := range all {
			if o.c == nil || !o.c.owesAnswers() {
				continue
			}
			if owes != nil {
				return k
			}
			owes = o
		}
	}
	if owes == nil || owes == k || k.c == nil {
		return k
	}
	mine, _ := k.load()
	if n, full := owes.load(); full || owes.dropped || n < crowded || n > 2*mine {
		return k
	}
	l.moved(k, owes)
	return owes
}

// inOrderLate is inOrder for a dial that has waited for a while: it goes by k if that is the only lane
// that owes answers, or by the one that is. It waits no longer than leftPatience for those it cannot go
// by any more.
func (l *Links) inOrderLate(ctx context.Context, k *linkLane, late []lateLane) (*linkLane, error) {
	if answered := k.c.allAnswered(); answered != nil {
		late = append(late, lateLane{k, answered})
	}
	timer := time.NewTimer(leftPatience)
	defer timer.Stop()
	for expired := timer.C; ; {
		late = l.stillLate(late, expired == nil)
		switch {
		case len(late) == 0, len(late) == 1 && late[0].lane == k:
			return k, nil
		case len(late) == 1 && l.move(k, late[0].lane):
			return late[0].lane, nil
		}
		switch awaitAny(ctx, expired, late) {
		case 0:
			return k, context.Cause(ctx)
		case 1:
			expired = nil
		}
	}
}

// A lateLane owes answers until the channel is closed.
type lateLane struct {
	lane     *linkLane
	answered <-chan struct{}
}

// awaitAny waits until ctx ends, which is 0, until expired says something, which is 1, or until one of
// the lanes owes no answers.
func awaitAny(ctx context.Context, expired <-chan time.Time, late []lateLane) int {
	cases := make([]reflect.SelectCase, 0, 2+len(late))
	add := func(c any) {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
	}
	add(ctx.Done())
	add(expired)
	for _, o := range late {
		add(o.answered)
	}
	chosen, _, _ := reflect.Select(cases)
	return chosen
}

// unanswered returns the lanes beside k that owe answers, those that take no more dials included.
func (l *Links) unanswered(k *linkLane) (late []lateLane) {
	var beside []*linkLane
	l.mu.Lock()
	for _, all := range [...][]*linkLane{k.link.lanes, k.link.left} {
		for _, o := range all {
			if o != k && o.c != nil {
				beside = append(beside, o)
			}
		}
	}
	l.mu.Unlock()
	for _, o := range beside {
		if answered := o.c.allAnswered(); answered != nil {
			late = append(late, lateLane{o, answered})
		}
	}
	return late
}

// stillLate returns those of the lanes that owe answers yet, without those that take no more dials if
// alive says so.
func (l *Links) stillLate(all []lateLane, alive bool) (late []lateLane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range all {
		select {
		case <-o.answered:
		default:
			if !alive || !o.lane.dropped {
				late = append(late, o)
			}
		}
	}
	return late
}

// move has a dial go by another lane of the link, and reports whether that can take it.
func (l *Links) move(k, to *linkLane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, full := to.load(); full || to.dropped {
		return false
	}
	l.moved(k, to)
	return true
}

// moved counts a dial at another lane. mu is held.
func (l *Links) moved(k, to *linkLane) {
	to.users++
	l.use(to)
	k.users--
	l.unused(k)
}
