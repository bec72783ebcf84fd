package link

import (
	"io"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestSpinBudget: polling stops when it finds nothing, and is tried again after short sleeps,
// ever more of them as it keeps finding nothing, and never after long ones.
func TestSpinBudget(t *testing.T) {
	var b spinBudget
	for i := range 10 {
		require.False(t, b.off)
		b.miss()
		for range 20 {
			b.slept(time.Second)
			require.True(t, b.off, "after a long sleep")
		}
		sleeps := 0
		for b.off {
			b.slept(maxTrip)
			sleeps++
		}
		require.Equal(t, 1<<min(i, maxMisses-1), sleeps)
	}
	b.hit()
	b.miss()
	b.slept(0)
	require.False(t, b.off)
}

// A spinner is a call that waits on a lane.
type spinner struct{ budget spinBudget }

// poll has it poll if it may, and reports whether it has.
func (s *spinner) poll(l *laneBudget, hit bool) bool {
	by := l.of(&s.budget)
	if by.off {
		return false
	}
	l.note(&s.budget, by, hit)
	return true
}

// TestLaneBudget: calls of many streams that wait in turn learn from each other, while a call that has
// polled a moment ago goes by what it has found itself.
func TestLaneBudget(t *testing.T) {
	manyPoll := func(l *laneBudget, calls int, hit func(i int) bool) (polled int) {
		for i := range calls {
			if new(spinner).poll(l, hit(i)) {
				polled++
			}
			l.slept(maxTrip)
		}
		return polled
	}
	for _, c := range []struct {
		name        string
		hit         func(i int) bool
		least, most int
	}{
		{"never", func(int) bool { return false }, 10, 40},
		{"always", func(int) bool { return true }, 1000, 1000},
		{"one of four", func(i int) bool { return i%4 == 0 }, 10, 60},
		{"nine of ten", func(i int) bool { return i%10 != 0 }, 850, 1000},
	} {
		var l laneBudget
		n := manyPoll(&l, 1000, c.hit)
		require.True(t, n >= c.least && n <= c.most, "%s: %d of 1000 calls polled", c.name, n)
		for range maxMisses * hitsPerMiss * 1 << maxMisses { // they find something again
			manyPoll(&l, 1, func(int) bool { return true })
		}
		require.Equal(t, 100, manyPoll(&l, 100, func(int) bool { return true }), c.name)
	}

	var l laneBudget
	var talks spinner // it finds something whenever it polls
	require.True(t, talks.poll(&l, true))
	for range 1000 {
		manyPoll(&l, recentSpins-1, func(int) bool { return false })
		require.True(t, talks.poll(&l, true), "it has experience of its own")
	}
	for l.count-talks.budget.last < recentSpins {
		manyPoll(&l, 1, func(int) bool { return false })
	}
	require.True(t, l.off)
	require.False(t, talks.poll(&l, true), "which is old")

	l = laneBudget{}
	var learnt spinner
	require.True(t, learnt.poll(&l, false))
	require.True(t, learnt.budget.off)
	l.spinBudget = spinBudget{}
	require.False(t, learnt.poll(&l, false), "though others may")
	manyPoll(&l, recentSpins, func(int) bool { return true })
	require.True(t, learnt.poll(&l, true), "what it has learnt is old")
	require.False(t, learnt.budget.off)

	l = laneBudget{}
	many := spinner{spinBudget{lasting: true}}
	require.True(t, many.poll(&l, true))
	require.Zero(t, l.hits, "it says nothing of others")
	l.off = true
	manyPoll(&l, 10*recentSpins, func(int) bool { return true })
	l.off = true
	require.True(t, many.poll(&l, true), "its experience lasts")

	l = laneBudget{count: ^uint32(0)}
	var first spinner
	require.True(t, first.poll(&l, true))
	require.NotZero(t, first.budget.last)
}

// TestHowToPoll: a call spins where that pays, or for as long as it was told to; else it polls behind
// others, of a peer in this host. It does nothing of the kind if it was told so, and with one processor.
func TestHowToPoll(t *testing.T) {
	for _, c := range []struct {
		busyPoll time.Duration
		off      bool
		procs    int32
		ahead    uint64
		limit    time.Duration
		between  bool
	}{
		{0, false, 2, 0, maxSpin, true},
		{0, true, 2, 0, 0, true},
		{0, false, 2, bytesPerSpin / 2, maxSpin * 3 / 2, true},
		{0, false, 2, math.MaxUint64, maxTrip, true},
		{0, true, 2, math.MaxUint64, 0, true},
		{time.Second, true, 2, bytesPerSpin, time.Second, true},
		{time.Second, false, 1, 0, 0, false},
		{-1, false, 2, bytesPerSpin, 0, false},
		{-1, true, 2, 0, 0, false},
		{0, false, 1, bytesPerSpin, 0, false},
	} {
		for _, sameHost := range []bool{true, false} {
			limit, between := howToPoll(c.busyPoll, c.off, sameHost, c.procs, c.ahead)
			require.Equal(t, c.limit, limit, "%+v", c)
			require.Equal(t, c.between && sameHost, between, "%+v", c)
		}
	}
}

// TestBusyPollTeachesNobody: for how long a call is to spin is its program's choice, and what comes of
// it says nothing of what pays for others.
func TestBusyPollTeachesNobody(t *testing.T) {
	client, server := newBed(t, Config{}).pair()
	client.SetBusyPoll(time.Microsecond)
	say(t, server, client) // nothing may have spun so far
	client.e.mu.Lock()
	before := client.e.polling.pays
	client.e.mu.Unlock()
	require.NoError(t, client.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	client.e.mu.Lock()
	defer client.e.mu.Unlock()
	require.Equal(t, before.count, client.e.polling.pays.count)
	require.Equal(t, before.misses, client.e.polling.pays.misses)
}

// TestShortSleepsLetSpinAgain: a lane on which nobody spins learns by sleeps that it would pay. The
// budgets of Accept and of ends are of many calls.
func TestShortSleepsLetSpinAgain(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	say(t, server, client)
	client.e.mu.Lock()
	client.e.polling.pays.off = true
	require.True(t, client.e.ends.pays.lasting)
	client.e.mu.Unlock()
	require.True(t, b.l.acceptor.call.pays.lasting)
	on := func() bool {
		client.e.mu.Lock()
		defer client.e.mu.Unlock()
		return !client.e.polling.pays.off
	}
	for began := time.Now(); !on(); { // a sleep is short if no processor is late
		require.Less(t, time.Since(began), patience)
		read := make(chan error, 1)
		go func() {
			_, err := client.Read(make([]byte, 1))
			read <- err
		}()
		for !client.in.waiter.inChannel.Load() && time.Since(began) < patience {
			runtime.Gosched()
		}
		_, err := server.Write([]byte{1})
		require.NoError(t, err)
		require.NoError(t, <-read)
	}
}

// TestAhead: a Read that waits knows how much was written since one last read something, which the peer
// may have to read before it answers.
func TestAhead(t *testing.T) {
	client, server := newBed(t, Config{}).pair()
	ahead := func() uint64 {
		client.e.mu.Lock()
		defer client.e.mu.Unlock()
		return client.in.waiter.ahead
	}
	for _, written := range []int{100, 0, 1000} {
		_, err := client.Write(make([]byte, written))
		require.NoError(t, err)
		read := make(chan error, 1)
		go func() {
			_, err := client.Read(make([]byte, 1))
			read <- err
		}()
		require.Eventually(t, client.in.waiter.waiting, patience, time.Millisecond)
		require.EqualValues(t, written, ahead())
		require.NoError(t, client.SetReadDeadline(time.Time{})) // which has it look again
		require.EqualValues(t, written, ahead(), "nothing was read")
		_, err = server.Write([]byte("x"))
		require.NoError(t, err)
		within(t, "Read", func() { require.NoError(t, <-read) })
	}
}

// TestSpinnersAreCounted: while as many calls spin as there are processors another one polls a few times,
// and no more.
func TestSpinnersAreCounted(t *testing.T) {
	_, server := newBed(t, Config{}).pair()
	e, w := server.e, &server.in.waiter
	n := e.aboutToLeave(t)
	defer e.leave(n)
	const procs = 1000 // no other test has so many spin
	poll := func() bool { return e.pollFor(w) }
	spinning.Add(procs)
	defer spinning.Add(-procs)
	found, spun := e.spinFor(w, time.Hour, procs, poll)
	require.False(t, found)
	require.False(t, spun)
	w.state.Store(waiterWoken)
	found, spun = e.spinFor(w, time.Hour, procs, poll)
	require.True(t, found && spun, "it has not polled before it counts")
	e.mu.Unlock()
}

// A wakeupCounter is a QP that says how often it has woken its peer.
type wakeupCounter struct {
	driver.QPStatter
	sent uint64
}

func (c *wakeupCounter) WakeupsSent() uint64 { return c.sent }

// TestSpinLetsTheWokenRun: a call whose messages have woken a goroutine of this process soon lets it run.
func TestSpinLetsTheWokenRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e, c := &laneEnd{}, &wakeupCounter{}
	// soon reports whether a goroutine runs before a call counts as one that spins.
	soon := func(wakes uint64) bool {
		var ran atomic.Bool
		go ran.Store(true)
		c.sent += wakes
		polls := 0
		e.spinFor(&waiter{}, maxSpin, 1, func() bool {
			polls++
			return ran.Load() || polls == pollsUncounted
		})
		return polls < pollsUncounted
	}
	// The scheduler may run the call again first, and stop it anywhere: so it is asked for the most of many.
	most := func(wakes uint64) bool {
		n := 0
		for range 100 {
			if soon(wakes) {
				n++
			}
		}
		return n > 50
	}
	require.False(t, most(1), "of a driver that does not count")
	e.sq.counter = c
	require.False(t, most(0), "nobody was woken")
	require.True(t, most(1))
}

// TestSpinForOthers: a Read that sleeps in the channel polls on after it has taken in what came for
// others, as long as that pays and SetBusyPoll does not forbid it.
func TestSpinForOthers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	lookAtProcs()
	b := newBed(t, Config{})
	idleClient, idle := b.pair()
	client, server := b.pair()
	e := idle.e
	require.Same(t, e, server.e)
	asleep := func() {
		t.Helper()
		for began := time.Now(); !idle.in.waiter.inChannel.Load(); runtime.Gosched() {
			require.Less(t, time.Since(began), patience)
		}
	}
	// after returns what becomes of a budget while idle sleeps and so many messages come for others.
	after := func(budget spinBudget, messages int) spinBudget {
		t.Helper()
		e.mu.Lock()
		e.polling.othersPay = budget
		e.mu.Unlock()
		read := make(chan error, 1)
		go func() {
			_, err := idle.Read(make([]byte, 1))
			read <- err
		}()
		asleep()
		for range messages {
			_, err := client.Write([]byte{1})
			require.NoError(t, err)
		}
		_, err := io.ReadFull(server, make([]byte, messages))
		require.NoError(t, err)
		asleep()
		_, err = idleClient.Write([]byte{1})
		require.NoError(t, err)
		within(t, "Read", func() { require.NoError(t, <-read) })
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.polling.othersPay
	}
	until := func(budget spinBudget, messages int, done func(after spinBudget) bool) {
		t.Helper()
		for began := time.Now(); !done(after(budget, messages)); {
			require.Less(t, time.Since(began), patience)
		}
	}

	// It polls until that finds nothing, which is noted; sometimes it finds some of many. After a short
	// sleep it tries again.
	until(spinBudget{misses: 3}, 1, func(after spinBudget) bool { return after.off })
	if e.p.sameHost { // over a network nothing may come in that time
		until(spinBudget{misses: 5}, 100, func(after spinBudget) bool { return after.misses < 5 })
	}
	until(spinBudget{off: true, misses: 1}, 1, func(after spinBudget) bool { return after.misses != 1 })
	off := spinBudget{off: true, misses: 7, skip: 200}
	got := after(off, 1)
	require.True(t, got.off && got.misses == off.misses, "it does not pay: %+v", got)
	idle.SetBusyPoll(-1)
	require.Equal(t, spinBudget{misses: 3}, after(spinBudget{misses: 3}, 10), "it is forbidden")
}

// sayingCQ is polled by one goroutine, to which the peer says something some time after it last had something.
type sayingCQ struct {
	verbs.CQ
	say  func()
	left int // times
	had  time.Time
}

func (q *sayingCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := q.CQ.Poll(wcs)
	switch {
	case n > 0:
		q.had = time.Now()
	case q.left > 0 && time.Since(q.had) >= maxSpin/10:
		q.left--
		q.say()
	}
	return n, err
}

func (q *sayingCQ) ReqNotify(solicited bool) error {
	q.left = 0
	return q.CQ.ReqNotify(solicited)
}

// TestSpinsOn: as long as that finds something it polls on, and does not arm the queue in between.
func TestSpinsOn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	lookAtProcs()
	client, server := newBed(t, Config{}).pair()
	e := server.e
	if !e.p.sameHost {
		t.Skip("over a network nothing may come in the time of a spin")
	}
	n := e.aboutToLeave(t)
	defer e.leave(n)
	e.polling.sleeper = new(waiter)
	received := func() uint64 { return server.Status().Received }
	const messages = 20
	say := func() {
		_, err := client.Write([]byte{1})
		require.NoError(t, err)
	}
	cq := &sayingCQ{CQ: e.p.recvCQ, say: say}
	poll := func(q verbs.CQ) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.p.recvCQ = q
	}
	poll(cq)
	defer poll(cq.CQ)
	for began, got := time.Now(), uint64(0); got < messages; { // less where its processor does something else
		require.Less(t, time.Since(began), patience)
		e.polling.othersPay, e.polling.armed = spinBudget{}, 0
		before := received()
		cq.left = messages - 1
		say()
		require.False(t, e.pollAndArm())
		got = received() - before
		for received() < client.Status().Sent {
			require.Less(t, time.Since(began), patience)
			e.poll()
		}
		_, err := io.ReadFull(server, make([]byte, server.Status().Unread))
		require.NoError(t, err)
	}
}

// TestUselessYields: a call that does not spin has the lane know whether to poll behind other goroutines
// was of use.
func TestUselessYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	lookAtProcs()
	_, server := newBed(t, Config{}).pair()
	e := server.e
	n := e.aboutToLeave(t)
	defer e.leave(n)
	e.polling.pays.off = true
	w := new(waiter)
	for _, want := range []yieldBudget{{1, 0}, {2, 1}, {2, 0}, {3, 3}} {
		require.False(t, e.spin(w))
		require.Equal(t, want, e.polling.yields)
	}
	e.polling.yields = yieldBudget{useless: 2}
	w.state.Store(waiterWoken) // found at once, without a yield
	require.True(t, e.spin(w))
	e.mu.Unlock()
	require.Equal(t, yieldBudget{useless: 2}, e.polling.yields)
}
