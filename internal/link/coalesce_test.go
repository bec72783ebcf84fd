package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// roomy is more than any test fills.
var roomy = arrivals{1 << 20, 1 << 30}

// flow has n messages of size bytes come before each of the next waits, and returns their delays.
func flow(c *coalescing, waits, n, size int, room arrivals) (delays []time.Duration) {
	at := c.received
	for range waits {
		at.messages += uint64(n)
		at.bytes += uint64(n * size)
		delays = append(delays, c.next(at, c.sent, room))
	}
	return delays
}

// flowing has seen enough of one direction.
func flowing() *coalescing {
	c := new(coalescing)
	flow(c, 1, oneWayRun-1, 64, roomy)
	return c
}

func TestCoalescingGrows(t *testing.T) {
	c := flowing()
	require.Equal(t, []time.Duration{500, 1000, 2000, 4000, 8000, 12000, 12000}, flow(c, 7, 100, 64, roomy))
}

// TestCoalescingWaitsForRun has messages that are as close as can be, but not yet enough.
func TestCoalescingWaitsForRun(t *testing.T) {
	c := new(coalescing)
	require.Equal(t, make([]time.Duration, 10), flow(c, 10, 100, 64, roomy))
	require.Equal(t, firstDelay, flow(c, 1, 100, 64, roomy)[0])
}

// TestCoalescingConversation sends something now and then.
func TestCoalescingConversation(t *testing.T) {
	c := flowing()
	require.Equal(t, lastDelay, flow(c, 10, 100, 64, roomy)[9])
	c.sent++ // as next sees it: the end has sent a byte more than c knows
	sent := c.sent
	c.sent--
	require.Zero(t, c.next(arrivals{c.received.messages + 100, c.received.bytes}, sent, roomy))
	require.Equal(t, make([]time.Duration, 10), flow(c, 10, 100, 64, roomy))
	require.Equal(t, firstDelay, flow(c, 1, 100, 64, roomy)[0])
}

// TestCoalescingSparse has messages that come one by one, which a delay keeps from the program for
// nothing: it is tried ever more seldom.
func TestCoalescingSparse(t *testing.T) {
	c := flowing()
	const waits = 100_000
	tried := 0
	for _, d := range flow(c, waits, 1, 64, roomy) {
		require.LessOrEqual(t, d, firstDelay)
		if d > 0 {
			tried++
		}
	}
	require.LessOrEqual(t, tried, 10+waits/lastPass)
	require.GreaterOrEqual(t, tried, waits/lastPass, "it is never given up: they may come closer")
}

// TestCoalescingSlowsDown has them come more seldom than the delay is made for.
func TestCoalescingSlowsDown(t *testing.T) {
	c := flowing()
	flow(c, 10, 100, 64, roomy)
	enough := int(lastDelay / dense)
	require.Equal(t, lastDelay, flow(c, 1, enough, 64, roomy)[0])
	require.Zero(t, flow(c, 1, enough-1, 64, roomy)[0])
	require.Equal(t, make([]time.Duration, firstPass), flow(c, firstPass, 100, 64, roomy))
	require.Equal(t, firstDelay, flow(c, 1, 100, 64, roomy)[0])
}

// TestCoalescingRoom never has more than half of the ring or of the receives fill up.
func TestCoalescingRoom(t *testing.T) {
	for _, tt := range []struct {
		room arrivals
		size int
		want time.Duration
	}{
		{arrivals{256, 1 << 30}, 64, lastDelay},
		{arrivals{64, 1 << 30}, 64, 3200},
		{arrivals{1 << 20, 4 << 10}, 64, 3200},
		{arrivals{1 << 20, 256 << 10}, 1 << 10, lastDelay},
		{arrivals{1 << 20, 64 << 10}, 1 << 10, 3200},
		{arrivals{1 << 20, 1 << 10}, 512, 0}, // no two fit
		{arrivals{1 << 20, 256 << 10}, 64 << 10, 0},
	} {
		c := flowing()
		flow(c, 20, 100, tt.size, tt.room) // the first of all may try
		most := time.Duration(0)
		for _, d := range flow(c, 2*firstPass, 100, tt.size, tt.room) {
			if d != firstDelay { // a try, before it knows the size of what comes
				most = max(most, d)
			}
		}
		require.Equal(t, tt.want, most, "%+v", tt)
	}
}

// TestCoalescingNothing ends waits without a message, as deadlines do.
func TestCoalescingNothing(t *testing.T) {
	c := flowing()
	flow(c, 10, 100, 64, roomy)
	require.Zero(t, flow(c, 1, 0, 0, roomy)[0])
}

// TestCoalesceAlone lets messages come together only for a call that nobody else waits with.
func TestCoalesceAlone(t *testing.T) {
	_, server := newBed(t, Config{}).pair()
	e, s := server.e, server.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	was := procs.Swap(2)
	defer procs.Store(was)
	s.counts.received = oneWayRun
	delay := func() time.Duration {
		s.in.together = flowing()
		d := s.coalesce(0)
		require.Equal(t, d, s.in.together.delay)
		require.EqualValues(t, oneWayRun, s.in.together.received.messages, "what came before would count as dense")
		return d
	}
	sameHost := e.p.sameHost
	defer func() { e.p.sameHost = sameHost }()
	e.p.sameHost = false
	require.Zero(t, delay())
	e.p.sameHost = true
	require.Equal(t, firstDelay, delay())

	for _, d := range []time.Duration{time.Second, -1} {
		s.in.waiter.busyPoll.Store(int64(d))
		require.Zero(t, delay(), "the program has chosen how to poll")
	}
	s.in.waiter.busyPoll.Store(0)

	procs.Store(1)
	require.Zero(t, delay(), "it takes the processor from the writer")
	procs.Store(2)

	e.pollWaiters.asked.Add(1)
	require.Zero(t, delay(), "another waits until somebody has polled")
	e.pollWaiters.served.Add(1)

	dials := e.dialer.waiting
	e.dialer.waiting = append(e.dialer.waiting, nil)
	require.Zero(t, delay(), "a dial waits for a place")
	e.dialer.waiting = dials
	require.Equal(t, firstDelay, delay())
}

// TestDelayNeedsRole: a call whose poll role is another's does not hold off when it is handed over.
func TestDelayNeedsRole(t *testing.T) {
	_, server := newBed(t, Config{}).pair()
	e, s := server.e, server.now()
	n := e.aboutToLeave(t)
	e.mu.Lock()
	s.in.waiter.delay = time.Second
	e.mu.Unlock()
	waits := make(chan error, 1)
	go func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		waits <- e.wait(&s.in.waiter, func() bool { return false })
	}()
	require.Eventually(t, s.in.waiter.waiting, patience, time.Millisecond)
	e.mu.Lock()
	require.Zero(t, s.in.waiter.delay)
	e.mu.Unlock()
	e.leave(n)
	require.NoError(t, server.SetReadDeadline(longPast))
	within(t, "wait", func() { <-waits })
}

// TestHoldOff holds off for as long as it is to, once, and not longer than there is reason to.
func TestHoldOff(t *testing.T) {
	e := new(laneEnd)
	w := &waiter{delay: time.Millisecond}
	began := time.Now()
	e.holdOff(w)
	require.GreaterOrEqual(t, time.Since(began), time.Millisecond)
	require.Zero(t, w.delay, "it would do so again after a sleep")

	for name, end := range map[string]func(e *laneEnd, w *waiter){
		"found":    func(_ *laneEnd, w *waiter) { w.state.Store(waiterWoken) },
		"deadline": func(_ *laneEnd, w *waiter) { w.deadline.Store(1) },
		"failure":  func(e *laneEnd, _ *waiter) { e.failed.Store(true) },
		"another":  func(e *laneEnd, _ *waiter) { e.pollWaiters.asked.Add(1) },
	} {
		e := new(laneEnd)
		w := &waiter{delay: time.Hour}
		time.AfterFunc(time.Millisecond, func() { end(e, w) })
		within(t, name, func() { e.holdOff(w) })
	}
}

// TestReadHoldsOff: a Read that finds nothing uses the delay that it is due.
func TestReadHoldsOff(t *testing.T) {
	client, server := newBed(t, Config{}).pair()
	e, s := server.e, server.now()
	want := time.Duration(0)
	if e.p.sameHost && procs.Load() > 1 {
		want = firstDelay
	}
	e.mu.Lock()
	s.in.together = flowing()
	s.counts.received = oneWayRun
	e.mu.Unlock()
	read := make(chan error, 1)
	go func() {
		_, err := server.Read(make([]byte, 1))
		read <- err
	}()
	require.Eventually(t, s.in.waiter.waiting, patience, time.Millisecond)
	e.mu.Lock()
	require.Equal(t, want, s.in.together.delay)
	e.mu.Unlock()
	_, err := client.Write([]byte("x"))
	require.NoError(t, err)
	within(t, "Read", func() { require.NoError(t, <-read) })
	require.Zero(t, s.in.waiter.delay, "it has not held off")
}
