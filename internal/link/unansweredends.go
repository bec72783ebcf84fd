package link

import (
	"log/slog"
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/asynclog"
)

// A peer's library answers the end of a stream at once, whatever its program does, and until then the stream
// has its id, its port and its rings here. So a lane whose streams the program has all closed, and whose peer
// does not answer, is of no use to anybody.

// unansweredTime is for how long such a lane stays while this process runs: as long as Linux keeps a connection
// that it has closed and its peer has not (tcp_fin_timeout, in tcp(7)).
const unansweredTime = 60 * time.Second

// endsSteps is in how many steps that time goes by: a time in which the process was stopped is one of them at
// most, and what has come meanwhile is taken in at the next.
const endsSteps = 4

// endsTimer ends the lane when nobody has answered. The lane's lock guards it.
type endsTimer struct {
	timer  *time.Timer // nil if it does not run
	step   time.Duration
	left   int    // steps
	opened uint64 // streams of the lane, when it began
}

// allClosed records that the program has closed all streams of the lane. mu is held.
func (le *laneEnds) allClosed() {
	e := le.e
	if e.err != nil {
		e.unhold()
		return
	}
	e.owner.unused(e)
	if le.timer.timer == nil && e.live > 0 { // one that runs sees that there were more streams since
		le.awaitAnswers(unansweredTime)
	}
}

// awaitAnswers has the lane end after d unless the peer answers. mu is held.
func (le *laneEnds) awaitAnswers(d time.Duration) {
	e := le.e
	le.timer.stop()
	step := d / endsSteps
	le.timer = endsTimer{time.AfterFunc(step, le.answersMissing), step, endsSteps, e.counts.opened}
}

// answersMissing is a step of the timer. The last one ends a lane that has had nothing since the first but
// closed streams whose ends the peer has not answered.
func (le *laneEnds) answersMissing() {
	e := le.e
	if !e.begin() {
		return
	}
	defer e.tasks.Done()
	e.mu.Lock()
	defer e.startWorker()
	defer e.mu.Unlock()
	e.pollOnce()
	t := &le.timer
	t.left--
	switch {
	case e.err != nil || t.timer == nil:
	case e.inUse.Load() > 0 || !le.owed():
		t.timer = nil
	case t.opened != e.counts.opened || len(e.dialer.waiting) > 0 && !e.dialer.busy: // else the dial waits for the end as well
		le.awaitAnswers(unansweredTime)
	case t.left > 0:
		t.timer.Reset(t.step)
	default:
		asynclog.Log(e.cfg.logger(), slog.LevelWarn, "link: the peer does not answer the ends of streams", "remote", e.id.RemoteAddr(), "streams", e.live)
		e.failLocked(ErrLinkClosed)
	}
}

// owed reports whether there are streams whose end the peer has not answered. Others stay as long as the
// program uses what it has read of them. mu is held.
func (le *laneEnds) owed() bool {
	return slices.ContainsFunc(le.e.streams, func(s *stream) bool { return s != nil && !s.st.Quiet() })
}

func (t *endsTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}
