//go:build linux

package hosts

import (
	"sync/atomic"
	"testing"
	"time"
)

// A stopwatch measures against limits. The processors of emulated hosts are threads
// among others of one machine: the time that the hosts stood still does not count.
type stopwatch struct {
	t       testing.TB
	w       *world
	began   time.Time
	stalled [2]time.Duration
}

func (w *world) stopwatch(t testing.TB) *stopwatch {
	t.Helper()
	s := &stopwatch{t: t, w: w}
	for rank, h := range w {
		s.stalled[rank] = h.stalled(t)
	}
	s.began = time.Now()
	return s
}

// late is by how much something that took so long since missed its limit.
func (s *stopwatch) late(took time.Duration, l limit) time.Duration {
	late := took - l.total()
	if late <= 0 {
		return 0
	}
	s.t.Helper()
	var longest time.Duration
	for rank, h := range s.w {
		longest = max(longest, h.stalled(s.t)-s.stalled[rank])
	}
	s.t.Logf("a host stood still for %.2f s of %.2f s", longest.Seconds(), took.Seconds())
	return max(late-longest, 0)
}

// stalled is for how long the host has stood still so far.
func (h *host) stalled(t testing.TB) time.Duration {
	t.Helper()
	if h.dead {
		return 0
	}
	return call[time.Duration](t, h.agent, "Agent.Stalled", 0, prompt)
}

// stalls adds up for how long the processors of a host had no time for those who
// were due.
type stalls struct{ total atomic.Int64 }

const stallTick = 20 * time.Millisecond

func (s *stalls) watch(stop <-chan struct{}) {
	ticker := time.NewTicker(stallTick)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-stop:
			return
		}
		now := time.Now()
		if late := now.Sub(last) - stallTick; late > stallTick {
			s.total.Add(int64(late))
		}
		last = now
	}
}
