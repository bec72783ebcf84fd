package link

import (
	"log/slog"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/runtimer"
)

// A peer's library answers the end of a stream at once, whatever its program does, and until then the stream
// has its id, its port and its rings here. So a lane whose streams the program has all closed, and whose peer
// does not answer, is of no use to anybody.

// unansweredTime is for how long such a lane stays while this process runs: as long as Linux keeps a connection
// that it has closed and its peer has not (tcp_fin_timeout, in tcp(7)).
const unansweredTime = 60 * time.Second

// endsTimer ends the lane when nobody has answered. The lane's lock guards it.
type endsTimer struct {
	timer  *runtimer.Timer // nil if it does not run
	opened uint64          // streams of the lane, when it began
}

// allClosed records that the program has closed all streams of the lane. mu is held.
func (e *laneEnd) allClosed() {
	if e.err != nil {
		e.unhold()
		return
	}
	if e.live == 0 {
		return
	}
	e.owner.unused(e)
	if e.endsTimer.timer == nil { // one that runs sees that there were more streams since
		e.awaitAnswers(unansweredTime)
	}
}

// awaitAnswers has the lane end after d unless the peer answers. mu is held.
func (e *laneEnd) awaitAnswers(d time.Duration) {
	e.endsTimer.stop()
	e.endsTimer = endsTimer{runtimer.After(d, e.answersMissing), e.counts.opened}
}

// answersMissing ends a lane that has had nothing but closed streams since the timer began.
func (e *laneEnd) answersMissing() {
	if !e.begin() {
		return
	}
	defer e.tasks.Done()
	e.mu.Lock()
	opened := e.endsTimer.opened
	e.endsTimer.timer = nil
	e.pollOnce()
	switch {
	case e.err != nil || e.live == 0 || e.inUse.Load() > 0:
	case opened != e.counts.opened || len(e.dials) > 0:
		e.awaitAnswers(unansweredTime)
	default:
		e.cfg.say(slog.LevelWarn, "link: the peer does not answer the ends of streams", "remote", e.id.RemoteAddr(), "streams", e.live)
		e.failLocked(ErrLinkClosed)
	}
	e.mu.Unlock()
	e.startWorker()
}

func (t *endsTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}
