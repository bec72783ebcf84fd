// Package fdtimer calls functions after a short time, as time.AfterFunc does, at a lower price
// for a process that falls asleep and is woken all the time.
//
// While a timer of Go's is to fire soon, a process falls asleep with a time-out, which the
// kernel has to give to the hardware, and to take back when something else wakes the process. In
// a virtual machine each is a visit to the hypervisor, dearer than the sleep. The timers here
// are one descriptor, which the process waits for as for all others, and which is set anew only
// for an earlier time, or when it has expired.
package fdtimer

import (
	"sync"
	"time"
)

// linger is for how long the goroutine waits for something to do: to start it costs more than
// to set the descriptor.
const linger = 200 * time.Millisecond

// An entry is one call.
type entry struct {
	at time.Time
	f  func() (again time.Duration)
}

// mu guards all that follows, and setting the alarm.
var (
	mu        sync.Mutex
	entries   []entry // a few
	running   bool    // the goroutine that makes the calls
	lingering bool    // there was nothing to do when it last looked
	until     time.Time
	clock     alarm // wakes the goroutine at until
)

// An alarm is what the goroutine sleeps with.
type alarm interface {
	set()  // is called when until has changed; mu is held
	wait() // waits for until, or returns early
}

// Start has f called after d, and again after what it returns, until that is 0. One goroutine
// makes all calls, so f must not wait for long. It may call Start.
func Start(d time.Duration, f func() (again time.Duration)) {
	at := time.Now().Add(d)
	mu.Lock()
	defer mu.Unlock()
	entries = append(entries, entry{at, f})
	switch {
	case !running:
		if clock == nil {
			clock = newAlarm()
		}
		running, until = true, at
		go run()
	case at.Before(until):
		until = at
		clock.set()
	}
}

// run makes the calls.
func run() {
	for {
		clock.wait()
		if !callDue() {
			return
		}
	}
}

// callDue makes the calls that are due, and reports whether the goroutine is to stay.
func callDue() bool {
	mu.Lock()
	defer mu.Unlock()
	now := time.Now()
	for i := 0; i < len(entries); {
		e, last := entries[i], len(entries)-1
		if e.at.After(now) {
			i++
			continue
		}
		entries[i], entries[last] = entries[last], entry{}
		entries = entries[:last]
		mu.Unlock()
		again := e.f()
		mu.Lock()
		if again > 0 {
			e.at = time.Now().Add(again)
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		if lingering {
			running, lingering = false, false
			return false
		}
		lingering, until = true, now.Add(linger)
		return true
	}
	lingering, until = false, entries[0].at
	for _, e := range entries {
		if e.at.Before(until) {
			until = e.at
		}
	}
	return true
}

// A goAlarm goes by a timer of Go's, where there is no other.
type goAlarm chan struct{}

func newGoAlarm() goAlarm { return make(goAlarm, 1) }

func (a goAlarm) set() {
	select {
	case a <- struct{}{}:
	default:
	}
}

func (a goAlarm) wait() {
	mu.Lock()
	d := time.Until(until)
	mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-a:
	}
}
