package lane

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPollRole(t *testing.T) {
	var b PollRole
	require.True(t, b.Wait(1), "nobody polls")
	require.False(t, b.Wait(2))
	require.False(t, b.Wait(3))
	assert.False(t, b.Event(), "somebody polls")
	b.Found(2)
	next, arm := b.Leave(1)
	assert.Equal(t, Waiter(3), next, "who was found something for need not poll")
	assert.False(t, arm)
	assert.True(t, b.Holds(3))
	next, arm = b.Leave(2)
	assert.True(t, next == 0 && !arm, "it has nothing to pass on")
	next, arm = b.Leave(3)
	assert.True(t, next == 0 && arm)
	require.False(t, b.Wait(4), "that one still polls")
	rest := func(w, next Waiter, again bool) {
		t.Helper()
		n, a := b.Rest(w)
		assert.Equal(t, next, n)
		assert.Equal(t, again, a)
	}
	rest(3, 4, false)
	rest(3, 0, false) // it has rested
	_, arm = b.Leave(4)
	require.True(t, arm)
	assert.False(t, b.Event(), "it has armed the queue, and it rings behind its last poll")
	rest(4, 0, true)
	rest(4, 0, false)
	assert.True(t, b.Event())
	_, arm = b.Leave(Goroutine)
	assert.True(t, arm)
	rest(Goroutine, 0, false)
	assert.True(t, b.Alone())
	assert.Zero(t, b.Holder())
	assert.False(t, b.rung)
}

// pollRoleModel is some calls and the lane's goroutine, each at some place of its way, and a
// completion queue. Everything between two steps of one may happen to the others.
type pollRoleModel struct {
	role   PollRole
	at     []pollRolePlace // of each call; the goroutine is the last
	rounds []int           // waits that a call has still to do
	inbox  []int           // what was found for each call
	token  []bool          // a wake-up that a sleeper takes
	queue  []int           // completions, by call
	coming []int           // those that the device will still make
	armed  bool
	event  bool
	gives  bool // the first call may give up at any time
	polls  bool // the last call waits for what never comes, and never tires of polling
	stirs  bool // the goroutine may be woken for nothing
	breach pollRoleBreach
}

type pollRolePlace uint8

const (
	pollRoleLook pollRolePlace = iota
	pollRoleWait
	pollRolePoll
	pollRoleTireArm
	pollRoleTirePoll
	pollRoleTireRest
	pollRoleLookAgain
	pollRoleSleep
	pollRoleLeave
	pollRoleArm
	pollRolePollAgain
	pollRoleRest
	pollRoleDone
	pollRoleAsleep // the goroutine
	pollRoleEvent
)

type pollRoleBreach uint8

const (
	pollRoleSound pollRoleBreach = iota
	noSecondLook
	noArm
	noSecondPoll
	noLeave
	noLeaveOfSleepers
	noWake
	noPass
	noThirdPoll
	noArmOfGoroutine
)

func (m *pollRoleModel) clone() *pollRoleModel {
	c := *m
	c.role.waiting.of = slices.Clone(m.role.waiting.of)
	c.at, c.rounds, c.inbox, c.token = slices.Clone(m.at), slices.Clone(m.rounds), slices.Clone(m.inbox), slices.Clone(m.token)
	c.queue, c.coming = slices.Clone(m.queue), slices.Clone(m.coming)
	return &c
}

func (m *pollRoleModel) hash() uint64 {
	h := hasher(2)
	waiting := m.role.waiting.all()
	h.add(uint64(m.role.holder), uint64(len(waiting)), uint64(len(m.queue)))
	for _, w := range waiting {
		h.add(uint64(w))
	}
	for i, at := range m.at {
		h.add(uint64(at), uint64(m.rounds[i]), uint64(m.inbox[i]), uint64(m.coming[i]))
		h.bits(m.token[i])
	}
	for _, q := range m.queue {
		h.add(uint64(q))
	}
	h.bits(m.armed, m.event, m.role.rung)
	return uint64(h)
}

func (m *pollRoleModel) waiter(i int) Waiter {
	if i == len(m.at)-1 {
		return Goroutine
	}
	return Waiter(i + 1)
}

// poll takes one completion, if there is one, and wakes whom it is for.
func (m *pollRoleModel) poll() bool {
	if len(m.queue) == 0 {
		return false
	}
	x := m.queue[0]
	m.queue = m.queue[1:]
	m.inbox[x]++
	m.role.Found(m.waiter(x))
	if at := m.at[x]; at == pollRoleLookAgain || at == pollRoleSleep { // it is known to wait
		m.token[x] = true
	}
	return true
}

func (m *pollRoleModel) wake(w Waiter) {
	if w != 0 && m.breach != noWake {
		m.token[w-1] = true
	}
}

// finish ends a wait of call i.
func (m *pollRoleModel) finish(i int) {
	if m.waiter(i) == Goroutine {
		m.at[i] = pollRoleAsleep
		return
	}
	m.at[i] = pollRoleDone
	if m.inbox[i] > 0 {
		m.inbox[i]--
		m.token[i] = false
		if m.rounds[i]--; m.rounds[i] > 0 {
			m.at[i] = pollRoleLook
		}
	}
}

// step lets i do its next thing, and reports whether there was one.
func (m *pollRoleModel) step(i int) bool {
	w := m.waiter(i)
	leave := pollRoleLeave
	if m.breach == noLeave && w != Goroutine {
		leave = pollRoleDone
	}
	go_ := func(to pollRolePlace) bool { m.at[i] = to; return true }
	switch m.at[i] {
	case pollRoleLook:
		if m.inbox[i] > 0 {
			return go_(pollRoleLeave) // it may hold the poll role from its sleep
		}
		if m.role.Holds(w) {
			return go_(pollRolePoll)
		}
		return go_(pollRoleWait)
	case pollRoleWait:
		if m.role.Wait(w) {
			return go_(pollRolePoll)
		}
		if m.breach == noSecondLook {
			return go_(pollRoleSleep)
		}
		return go_(pollRoleLookAgain)
	case pollRoleLookAgain:
		if m.inbox[i] > 0 {
			return go_(leave)
		}
		return go_(pollRoleSleep)
	case pollRoleSleep:
		if !m.token[i] {
			return false
		}
		m.token[i] = false
		switch {
		case m.inbox[i] > 0:
			return go_(pollRoleLeave)
		case m.role.Holds(w):
			return go_(pollRolePoll)
		case m.role.waiting.contains(w):
			return true // woken for nothing
		}
		return go_(pollRoleWait)
	case pollRolePoll:
		if m.inbox[i] > 0 && w != Goroutine {
			if leave == pollRoleDone {
				m.finish(i)
				return true
			}
			return go_(leave)
		}
		if m.poll() {
			return true
		}
		if w == Goroutine {
			if m.breach == noArmOfGoroutine {
				return go_(pollRoleRest)
			}
			return go_(pollRoleLeave)
		}
		if m.polls {
			return false // until something comes
		}
		return go_(pollRoleTireArm) // it has polled long enough
	case pollRoleTireArm, pollRoleArm:
		m.armed = m.breach != noArm
		return go_(m.at[i] + 1)
	case pollRoleTirePoll, pollRolePollAgain:
		if m.breach != noSecondPoll && m.poll() {
			if m.at[i] == pollRoleTirePoll {
				return go_(pollRolePoll)
			}
			return go_(pollRoleLeave)
		}
		return go_(m.at[i] + 1)
	case pollRoleTireRest:
		if m.rest(w) {
			return go_(pollRoleTireArm)
		}
		return go_(pollRoleSleep)
	case pollRoleLeave:
		next, arm := m.role.Leave(w)
		m.wake(next)
		if arm {
			return go_(pollRoleArm)
		}
		m.finish(i)
	case pollRoleRest:
		if m.rest(w) {
			return go_(pollRoleArm)
		}
		m.finish(i)
	case pollRoleAsleep:
		if !m.event && !m.stirs {
			return false
		}
		m.event = false
		return go_(pollRoleEvent)
	case pollRoleEvent:
		if m.role.Event() {
			return go_(pollRolePoll)
		}
		return go_(pollRoleAsleep)
	default:
		return false
	}
	return true
}

// rest is Rest, and reports whether to look again.
func (m *pollRoleModel) rest(w Waiter) bool {
	if m.breach == noPass {
		m.role.holder = 0
		return false
	}
	next, again := m.role.Rest(w)
	m.wake(next)
	if m.breach == noThirdPoll && again {
		_, again = m.role.Rest(w)
	}
	return again
}

// explore takes the model every way there is, and returns what is wrong.
func (m *pollRoleModel) explore(seen map[uint64]struct{}) string {
	h := m.hash()
	if _, ok := seen[h]; ok {
		return ""
	}
	seen[h] = struct{}{}
	moved := false
	try := func(c *pollRoleModel) string {
		moved = true
		return c.explore(seen)
	}
	for i := range m.at {
		if c := m.clone(); c.step(i) {
			if what := try(c); what != "" {
				return what
			}
		}
		if m.coming[i] > 0 {
			c := m.clone()
			c.coming[i]--
			c.queue = append(c.queue, i)
			c.event = c.event || c.armed
			c.armed = false
			if what := try(c); what != "" {
				return what
			}
		}
	}
	if m.gives && m.at[0] == pollRoleSleep { // its time is up
		c := m.clone()
		c.at[0] = pollRoleLeave
		if m.breach == noLeaveOfSleepers {
			c.at[0] = pollRoleDone
		}
		if what := try(c); what != "" {
			return what
		}
	}
	if moved {
		return ""
	}
	if len(m.queue) > 0 {
		return "a completion lies where nobody looks"
	}
	for i, at := range m.at[:len(m.at)-1] {
		if at != pollRoleDone && !(m.gives && i == 0) && !(m.polls && i == len(m.at)-2) {
			return "a call sleeps over what was found for it"
		}
	}
	return ""
}

// TestPollRoleExplore takes calls and the goroutine every way there is: no wake-up is lost, and
// each way to lose one is found.
func TestPollRoleExplore(t *testing.T) {
	type setting struct {
		rounds              []int
		gives, polls, stirs bool
	}
	settings := []setting{{rounds: []int{2, 1}}, {rounds: []int{1, 1}, gives: true}, {rounds: []int{2, 1}, polls: true}, {rounds: []int{2, 1}, stirs: true}}
	if deep() {
		settings = append(settings, setting{rounds: []int{1, 1, 1}}, setting{rounds: []int{2, 2}}, setting{rounds: []int{1, 1, 1}, gives: true}, setting{rounds: []int{2, 2, 1}})
	}
	explore := func(s setting, b pollRoleBreach) (string, int) {
		n := len(s.rounds)
		m := &pollRoleModel{
			at: make([]pollRolePlace, n+1), rounds: append(slices.Clone(s.rounds), 0), inbox: make([]int, n+1), token: make([]bool, n+1),
			coming: append(slices.Clone(s.rounds), 0), armed: true, gives: s.gives, polls: s.polls, stirs: s.stirs, breach: b,
		}
		m.at[n] = pollRoleAsleep
		if s.polls {
			m.coming[n-1] = 0
		}
		seen := map[uint64]struct{}{}
		return m.explore(seen), len(seen)
	}
	for _, s := range settings {
		what, n := explore(s, pollRoleSound)
		t.Logf("%d states", n)
		require.Empty(t, what, "%+v", s)
	}
	for b, name := range map[pollRoleBreach]string{
		noSecondLook: "no second look before sleeping", noArm: "no arming", noSecondPoll: "no second poll",
		noLeave: "done without leaving", noLeaveOfSleepers: "given up without leaving", noWake: "handed over without waking", noPass: "rest without passing on", noThirdPoll: "no look after the queue has rung", noArmOfGoroutine: "no arming by the goroutine",
	} {
		found := ""
		for _, s := range settings {
			what, _ := explore(s, b)
			found = max(found, what)
		}
		assert.NotEmpty(t, found, name)
		t.Logf("%s: %s", name, found)
	}
}
