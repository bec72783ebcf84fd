package rdmanet

import (
	"testing"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/require"
)

// until repeats an action of an end of a scripted model.
func (m *model) until(t *testing.T, e *modelEnd, act int, done func() bool) {
	t.Helper()
	for range 100 {
		if done() {
			return
		}
		require.True(t, m.enabled(e, act), "%s of %v", actNames[act], e)
		m.do(e, act)
	}
	require.Fail(t, "no end", "%s of %v", actNames[act], e)
}

// TestModelCloseThenRefusal has the news of a disconnect come while receives are being
// posted again, on a device that refuses that then, and behind the last look at the queue
// the peer's Close. What is written after that fails as it does where the peer has closed.
func TestModelCloseThenRefusal(t *testing.T) {
	var lab modelLab
	set := modelSettings{first: [2]uint32{4096, 4096}, most: [2]uint32{4096, 4096}, depth: ring.MinDepth, small: true, refuses: true}
	set.plan[1].close = 1
	m := newModel(&modelScript{}, set, faultNone, &lab)
	defer m.discard()
	defer func() {
		if v, ok := recover().(modelFailure); ok {
			require.Fail(t, v.what)
		}
	}()
	a, b := m.ends[0], m.ends[1]
	ended := func(e *modelEnd, act int) func() bool { return func() bool { return e.threads[act].done } }

	m.until(t, b, actWriter, func() bool { return b.wrote == 1 })
	m.until(t, b, actDeliver, func() bool { return b.heard == 1 })
	m.until(t, a, actReader, func() bool { return a.threads[actReader].at == placePost })
	for _, act := range []int{actControl, actWriter, actReader} {
		m.until(t, b, act, ended(b, act))
	}
	m.until(t, b, actDeliver, func() bool { return b.dev.executed == b.dev.posted })
	m.until(t, b, actAck, func() bool { return b.dev.acked == b.dev.posted })
	m.until(t, b, actDrain, ended(b, actDrain))
	m.until(t, a, actNews, func() bool { return a.dev.told })
	m.until(t, a, actReader, func() bool { return a.read == 1 })
	m.until(t, a, actWriter, ended(a, actWriter)) // judgeWrite wants EPIPE
}
