package rdmanet

import (
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/require"
)

// An explorer makes every choice there is, in one model after the other: each repeats the
// last one up to a choice of which something is left, and goes on from there. Where it
// comes to a state that was seen before, whichever way, it goes no further.
type explorer struct {
	path []branch
	at   int
	seen map[uint64]struct{}
	runs int

	// What lies before from and behind to goes one way only: there calm is true.
	from, to func(m *model) bool
	calm     bool
	begun    bool
}

// A branch is a choice: i of n.
type branch struct{ n, i int }

func (x *explorer) intn(n int) int {
	if n == 1 || x.calm {
		return 0
	}
	if x.at == len(x.path) {
		x.path = append(x.path, branch{n: n})
	}
	x.at++
	return x.path[x.at-1].i
}

// next goes back to the last choice that has something left; false: there is none.
func (x *explorer) next() bool {
	x.at = 0
	x.runs++
	for n := len(x.path); n > 0; n-- {
		if b := &x.path[n-1]; b.i+1 < b.n {
			b.i++
			x.path = x.path[:n]
			return true
		}
	}
	return false
}

// run takes m to its end, or to a state that was seen before.
func (x *explorer) run(m *model) {
	m.settling = true
	x.calm, x.begun = true, false
	for i := range m.weights {
		for act := range numActs {
			m.weights[i][act] = 1
		}
	}
	for {
		x.begun = x.begun || x.from == nil || x.from(m)
		if x.calm = !x.begun || x.to(m); !x.calm && x.at == len(x.path) {
			h := m.state()
			if _, ok := x.seen[h]; ok {
				return
			}
			x.seen[h] = struct{}{}
		}
		if !m.step() {
			m.checkEnd()
			return
		}
	}
}

// skips says that it makes no difference whether others go on here. What they could do
// before a post they can do as well behind it: it looks at nothing of theirs, and they
// only get more to do. And a reader between two calls is one before its first poll.
func (x *explorer) skips(t *modelThread, at place) bool {
	return at == placePost || at == placeIdle && t.act == actReader && t.at != placeIdle
}

// state is a hash of all that the future of m depends on.
func (m *model) state() uint64 {
	h := stateHash(1)
	for _, e := range m.ends {
		c, d := e.conn, &e.dev
		h.bytes(unsafe.Slice((*byte)(unsafe.Pointer(c.recv.ring)), unsafe.Sizeof(*c.recv.ring)))
		h.bytes(unsafe.Slice((*byte)(unsafe.Pointer(c.send.ring)), unsafe.Sizeof(*c.send.ring)))
		h.bytes(c.ep.memory.(*simMemory).buf[:ring.KeyedCreditLen])
		h.add(uint64(c.term.marks.Load()), c.life.word.Load(), c.recv.reported, uint64(c.recv.reaped), uint64(c.send.chunk), uint64(c.send.pending),
			c.send.sq.posted, c.send.sq.completed, c.send.sq.signaled, uint64(c.ep.peerRKey), uint64(c.ep.nextRKey), uint64(c.ep.granted))
		h.flags(c.recv.wantGrow, c.recv.busy.Load(), c.recv.done, c.send.wantBlock, c.ep.grown != nil, c.term.err() != nil)
		for _, b := range c.send.blocks.all {
			h.add(uint64(b.used), b.last)
			h.flags(b.taken, b == c.send.blocks.cur)
		}
		h.add(d.posted, d.executed, d.acked, d.freed, uint64(d.recvs.len()), uint64(d.status), uint64(len(d.mrs)), uint64(d.open.Load()))
		for n := d.acked; n < d.posted; n++ {
			w := d.wr(n)
			h.add(uint64(w.op), uint64(w.imm), w.at, uint64(len(w.data)), uint64(w.rkey))
			h.flags(w.signaled, w.placed)
			if e.ringOffset(w) < 0 {
				h.bytes(w.data)
			}
		}
		for _, q := range []*simCQ{&d.recvCQ, &d.sendCQ} {
			h.flags(q.armed)
			h.add(uint64(q.wcs.len()))
			for _, wc := range q.wcs.all() {
				h.add(wc.WRID, uint64(wc.ImmData), uint64(wc.Status))
			}
		}
		h.flags(d.ch.event, d.ch.waiting[0], d.ch.waiting[1], d.ch.ready[0], d.ch.ready[1], d.ch.past[0], d.ch.past[1], d.ch.closed)
		h.flags(d.failed, d.destroyed, d.disconnected, d.news, d.told)
		h.add(e.wrote, e.read, e.sent, e.rung, e.heard)
		h.flags(e.closed, e.closedRead, e.closedWrite, e.finished, e.killed)
		for _, t := range e.threads {
			if t == nil || t.done {
				h.flags(t == nil)
				continue
			}
			h.add(uint64(t.at)+2, t.hist)
			h.flags(e.owner == t)
		}
	}
	return uint64(h)
}

type stateHash uint64

func (h *stateHash) add(values ...uint64) {
	for _, v := range values {
		x := (uint64(*h) ^ v) * 0x9e3779b97f4a7c15
		*h = stateHash(x ^ x>>31)
	}
}

func (h *stateHash) flags(values ...bool) {
	bits := uint64(1)
	for _, v := range values {
		bits <<= 1
		if v {
			bits |= 1
		}
	}
	h.add(bits)
}

func (h *stateHash) bytes(b []byte) {
	for _, v := range b {
		h.add(uint64(v))
	}
}

// TestModelExhaustive takes small models every way there is.
func TestModelExhaustive(t *testing.T) {
	const always, often, night = 0, 1, 2
	when := often
	switch {
	case os.Getenv(modelStepsVar) != "":
		when = night
	case raceEnabled || testing.Short():
		when = always // no two threads run at once, so there is nothing for the detector
	}
	nic, soft := verbs.CapWriteImm, verbs.CapWriteImm|verbs.CapSynchronous|verbs.CapSameHost
	small := func(caps verbs.DeviceCaps, a, b modelPlan) modelSettings {
		return modelSettings{
			caps: caps, first: [2]uint32{4096, 4096}, most: [2]uint32{4096, 4096}, depth: ring.MinDepth,
			chunk: 4096, plan: [2]modelPlan{a, b},
		}
	}
	// Where the search begins and where it ends.
	read := func(m *model) bool { return m.ends[1].readEnd != nil }
	first := func(m *model) bool { return m.ends[0].wrote > 0 }
	second := func(m *model) bool { return m.ends[0].wrote > 4096 }
	for _, test := range []struct {
		name     string
		set      modelSettings
		from, to func(m *model) bool
		when     int
	}{
		{"one message", small(soft, modelPlan{writes: 1, unit: 2048}, modelPlan{open: true}), nil, read, often},
		{"one message, NIC", small(nic, modelPlan{writes: 1, unit: 100}, modelPlan{open: true}), nil, read, often},
		{"a writer waits for credit", small(soft, modelPlan{writes: 2, unit: 4096}, modelPlan{open: true}), first, second, always},
		{"a writer waits for credit, NIC", small(nic, modelPlan{writes: 2, unit: 4096}, modelPlan{open: true}), first, second, always},
		{"Close", small(soft, modelPlan{writes: 1, unit: 2048, open: true, close: 1}, modelPlan{open: true}), nil, read, night},
		{"Close, NIC", small(nic, modelPlan{writes: 1, unit: 2048, open: true, close: 1}, modelPlan{open: true}), nil, read, night},
		{"reset", small(soft, modelPlan{writes: 1, unit: 2048, open: true, close: 1, abort: true}, modelPlan{open: true}), nil, read, night},
	} {
		if test.when > when {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			x := &explorer{seen: map[uint64]struct{}{}, from: test.from, to: test.to}
			lab := modelLab{explores: true}
			began := time.Now()
			if failure := lab.explore(x, test.set, faultNone); failure != nil {
				again := &explorer{path: x.path, seen: map[uint64]struct{}{}, from: test.from, to: test.to}
				lab.trace = true
				lab.runWith(again, test.set, faultNone, again)
				require.Fail(t, failure.what, "after\n"+strings.Join(lab.lines, "\n"))
			}
			t.Logf("%d states, %d runs, %d steps, in %v", len(x.seen), x.runs, lab.steps, time.Since(began))
		})
	}
}

// explore runs every way there is until one fails.
func (l *modelLab) explore(x *explorer, set modelSettings, f fault) *modelFailure {
	for {
		if failure := l.runWith(x, set, f, x); failure != nil || !x.next() {
			return failure
		}
	}
}

// TestModelExhaustiveFindsFaults sees that a way to lose a wake-up is found if there is one.
func TestModelExhaustiveFindsFaults(t *testing.T) {
	set := modelSettings{
		caps: verbs.CapWriteImm, first: [2]uint32{4096, 4096}, most: [2]uint32{4096, 4096}, depth: ring.MinDepth,
		plan: [2]modelPlan{{writes: 1, unit: 100}, {open: true}},
	}
	for _, f := range []fault{faultNoSecondPoll, faultNoArm, faultLostEvent, faultLost} {
		t.Run(f.String(), func(t *testing.T) {
			x := &explorer{seen: map[uint64]struct{}{}, to: func(m *model) bool { return m.ends[1].readEnd != nil }}
			lab := modelLab{explores: true}
			failure := lab.explore(x, set, f)
			require.NotNil(t, failure, "%d states and nothing found", len(x.seen))
			t.Logf("after %d states: %s", len(x.seen), failure.what)
		})
	}
}
