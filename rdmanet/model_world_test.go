package rdmanet

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// The model checker runs two Conns, as they are, over a device that does nothing by
// itself (model_device_test.go, model_wire_test.go). The calls of the application are
// coroutines (model_app_test.go) that stop at each call to the device. A step of the
// model lets one of them go on to the next such call, or lets the transport do one
// thing; which one, a chooser says. After each step the invariants are checked
// (model_check_test.go).
//
// Threads of one end take turns where neither of the Conn's locks is held. Under a lock
// only the transport and the other end go on: whoever else wants the lock waits anyway.

// chooser makes the choices of a model.
type chooser interface {
	intn(n int) int // from 0 to n-1
}

// What can happen in a step. The first are those of the threads of an end.
const (
	actReader = iota
	actWriter
	actControl
	actDrain
	actDeliver  // the oldest request is executed
	actPlace    // something is written to the peer's memory ahead of that
	actAck      // requests complete
	actEvent    // an event wakes who waits
	actSpurious // somebody wakes for nothing
	actNews     // the connection manager tells of the end
	actFlush    // a QP in ERR flushes what is posted
	actRetry    // a request fails: the peer does not answer
	numActs
)

const numThreads = actDeliver

var actNames = [numActs]string{
	"reader", "writer", "control", "drain", "deliver", "place", "ack", "event", "spurious", "news", "flush", "retry",
}

// Where a thread stopped.
type place uint8

const (
	placeIdle place = iota // between two calls
	placePoll
	placeArm
	placePost
	placePark
)

var placeNames = [...]string{"idle", "poll", "arm", "post", "park"}

// modelSettings are what a model is made of.
type modelSettings struct {
	caps        verbs.DeviceCaps
	first, most [2]uint32 // bytes of the rings
	depth       uint32
	chunk       int // largest data message, 0 for the Conn's own choice
	plan        [2]modelPlan
	steps       int  // before all comes to its end
	small       bool // messages are small, so that slots run out before bytes
	checksum    bool
	refuses     bool // a QP in ERR takes no requests, against the specification
	beats       bool // keepalive asks now and then
	commits     bool // Reserve and Commit are called as well as Write
	late        bool // no request of one end completes before all comes to its end
}

// modelPlan is what happens to an end besides reading and writing, at which step; 0: it
// does not.
type modelPlan struct {
	fin, closeRead, close, kill, cut int
	abort                            bool // SetLinger(0)

	// In an exhaustive search: calls of Write, and their bytes; whether the end closes
	// for writing then.
	writes, unit int
	open         bool
}

// model is one run.
type model struct {
	c        chooser
	set      modelSettings
	fault    fault
	ends     [2]*modelEnd
	current  *modelThread
	steps    int
	settling bool
	over     bool
	weights  [2][numActs]int
	trace    modelTrace
	memory   *memoryPool
	seen     *modelCoverage
	explored *explorer // in an exhaustive search
}

// modelEnd is one end: a Conn, its device, what the application does, and the books
// that the model keeps of it.
type modelEnd struct {
	m       *model
	name    string
	peer    *modelEnd
	conn    *Conn
	dev     simDevice
	plan    modelPlan
	threads [numThreads]*modelThread
	owner   *modelThread // it holds a lock of the Conn
	killed  bool
	cut     bool
	salt    uint64

	// What this end has sent: bytes announced, bytes with a place, messages, and those
	// of them that have arrived.
	sent, placing uint64
	rung, heard   uint64
	said          [16]int // by kind of doorbell
	unread        []stretch

	wrote, read        uint64 // by the application
	unsure             bool   // a call failed without telling how much it sent
	readEnd            error  // what ended the reader
	closed, closedRead bool
	closedWrite        bool
	finished           bool // torn down
	buf                []byte
}

func (e *modelEnd) String() string { return e.name }

// A modelThread is a goroutine of the application.
type modelThread struct {
	e      *modelEnd
	act    int
	at     place
	dir    direction // of a park
	done   bool
	hist   uint64 // of what it has learnt since it forgot
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
}

// modelStopped unwinds a thread of a model that is over.
type modelStopped struct{}

// modelFailure is what a model found.
type modelFailure struct {
	what string
	step int
}

func (m *model) fail(format string, args ...any) {
	panic(modelFailure{fmt.Sprintf(format, args...), m.steps})
}

// newModel connects two ends.
func newModel(c chooser, set modelSettings, f fault, l *modelLab) *model {
	m := &model{c: c, set: set, fault: f, memory: &l.memory, seen: &l.seen}
	var handshakes [2]handshakeOf
	for i := range m.ends {
		e := &modelEnd{m: m, name: string(rune('A' + i)), plan: set.plan[i], salt: 2*l.salt + uint64(i)}
		e.dev = simDevice{m: m, end: e, caps: set.caps}
		e.buf = m.memory.take(2 * modelMost)
		m.ends[i] = e
		s := sizes{
			host:  ringSizes{set.first[i], set.most[i]},
			net:   ringSizes{set.first[i], set.most[i]},
			depth: set.depth, checksum: set.checksum,
		}
		ep, err := newEndpoint(simID{&e.dev}, s, quiet)
		if err != nil {
			m.fail("newEndpoint: %v", err)
		}
		handshakes[i] = handshakeOf{ep, s}
	}
	for i, e := range m.ends {
		e.peer = m.ends[1-i]
		e.dev.peer = e.peer
		h, other := handshakes[i], handshakes[1-i]
		peer := other.ep.handshake(other.sizes, false)
		if err := h.ep.meet(h.sizes, peer); err != nil {
			m.fail("meet: %v", err)
		}
		conn, err := newConn(h.ep, "rdma", netip.AddrPort{}, netip.AddrPort{}, h.sizes, peer)
		if err != nil {
			m.fail("newConn: %v", err)
		}
		conn.busyPoll.Store(-1)                         // each wait is an arm, a last look, and a park
		conn.keepAlive.timer = time.NewTimer(time.Hour) // so that no other is started
		conn.keepAlive.timer.Stop()
		conn.send.gathered = &gathered{timer: time.NewTimer(time.Hour)} // control has it fire
		conn.send.gathered.timer.Stop()
		conn.life.incref() // for the thread that drains and tears down
		if set.chunk > 0 {
			conn.send.chunk = uint32(set.chunk)
		}
		e.conn = conn
		for d := dirRead; d <= dirWrite; d++ {
			conn.waiter(d).arm = f.arm(e, d)
		}
	}
	for _, e := range m.ends {
		e.start(actReader, e.reader)
		e.start(actWriter, e.writer)
		e.start(actControl, e.control)
	}
	return m
}

type handshakeOf struct {
	ep    *endpoint
	sizes sizes
}

// start starts a thread.
func (e *modelEnd) start(act int, body func()) {
	t := &modelThread{e: e, act: act}
	t.resume, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			t.done = true
			if v := recover(); v != nil {
				if _, ok := v.(modelStopped); !ok {
					panic(explain(v))
				}
			}
		}()
		if !yield(struct{}{}) {
			return
		}
		body()
	})
	e.threads[act] = t
	t.resume()
}

// explain adds the stack to a panic that is not the model's.
func explain(v any) any {
	switch v.(type) {
	case modelFailure:
		return v
	}
	return modelFailure{what: fmt.Sprintf("panic: %v\n%s", v, debug.Stack())}
}

// yield lets others go on before the thread that runs does what it is about to.
func (m *model) yield(at place) {
	t := m.current
	if t == nil || m.explored != nil && m.explored.skips(t, at) {
		return
	}
	t.at = at
	t.learn(uint64(at) + 1)
	e := t.e
	if e.owner = t; !e.locked() {
		e.owner = nil
	}
	if !t.yield(struct{}{}) {
		panic(modelStopped{})
	}
	if e.owner == t {
		e.owner = nil // until the next stop
	}
}

// locked says that a lock of the Conn is held, by the thread that runs.
func (e *modelEnd) locked() bool {
	if !e.conn.recv.mu.TryLock() {
		return true
	}
	e.conn.recv.mu.Unlock()
	if !e.conn.send.mu.TryLock() {
		return true
	}
	e.conn.send.mu.Unlock()
	return false
}

// park waits for an event or a deadline.
func (m *model) park(d direction) {
	m.current.dir = d
	m.yield(placePark)
}

// note tells the thread that runs apart from what it would be had it learnt otherwise.
func (m *model) note(values ...uint64) {
	if m.explored == nil || m.current == nil {
		return
	}
	for _, v := range values {
		m.current.learn(v)
	}
}

func (t *modelThread) learn(v uint64) {
	t.hist = (t.hist ^ v) * 0x9e3779b97f4a7c15
	t.hist ^= t.hist >> 29
}

// forget says that nothing the thread has learnt matters any more.
func (m *model) forget() {
	if m.current != nil {
		m.current.hist = uint64(m.current.dir) // and where it is in its call, which the Conn knows
	}
}

// asleep says that a thread waits for an event and none has come.
func (t *modelThread) asleep() bool {
	ch := &t.e.dev.ch
	return !t.done && t.at == placePark && !ch.ready[t.dir] && !ch.past[t.dir] && !ch.closed
}

// enabled says whether an action is possible at an end.
func (m *model) enabled(e *modelEnd, act int) bool {
	d := &e.dev
	switch act {
	case actReader, actWriter, actControl, actDrain:
		t := e.threads[act]
		if t == nil || t.done || e.killed || e.owner != nil && e.owner != t || t.asleep() {
			return false
		}
		return t.at != placeIdle || e.mayBegin(act)
	case actDeliver:
		return d.executed < d.posted && e.mayPlace()
	case actPlace:
		return d.executed < d.posted && e.mayPlace() && m.explored == nil
	case actAck:
		return d.acked < d.executed && (m.explored == nil || d.signalledBefore(d.executed))
	case actEvent:
		return d.ch.event
	case actSpurious:
		return !m.settling && m.explored == nil && (d.ch.waiting[0] && !d.ch.ready[0] || d.ch.waiting[1] && !d.ch.ready[1])
	case actNews:
		return d.news && !d.told && !d.destroyed && !e.killed
	case actFlush:
		return d.failed && !d.destroyed && (d.acked < d.posted || d.recvs.len() > 0)
	case actRetry:
		return !d.failed && e.peer.dev.failed && d.executed < d.posted
	}
	return false
}

// do takes a step.
func (m *model) do(e *modelEnd, act int) {
	m.steps++
	m.trace.begin(m.steps, e, act)
	d := &e.dev
	switch act {
	case actReader, actWriter, actControl, actDrain:
		t := e.threads[act]
		m.current = t
		t.resume()
		m.current = nil
	case actDeliver:
		e.deliver()
	case actPlace:
		e.placeAhead()
	case actAck:
		if m.explored == nil {
			e.ack(1 + uint64(m.c.intn(8)))
			break
		}
		for completed := d.sendCQ.wcs.len(); d.sendCQ.wcs.len() == completed; {
			e.ack(1) // of those that are not signalled nobody learns
		}
	case actEvent:
		d.ch.event = false
		for i := range d.ch.ready {
			d.ch.ready[i] = d.ch.waiting[i]
		}
	case actSpurious:
		d.ch.ready[m.c.intn(2)] = true
	case actNews:
		e.hear()
	case actFlush:
		d.flushSends()
		d.flushRecvs()
	case actRetry:
		d.failed, d.status = true, verbs.WCRetryExcErr
	}
	for _, e := range m.ends {
		e.retire()
		if e.dev.asked.Load() && e.dev.asked.Swap(false) {
			e.disconnect()
		}
		e.befall()
		e.retire()
	}
	m.check()
}

// befall has happen to an end what its plan says happens by now.
func (e *modelEnd) befall() {
	m := e.m
	if e.finished {
		return
	}
	if at := e.plan.kill; at > 0 && m.steps >= at && !e.killed && !e.dev.destroyed {
		e.killed, e.owner = true, nil
		e.disconnect()
	}
	if at := e.plan.cut; at > 0 && m.steps >= at && !e.cut {
		for _, e := range m.ends {
			e.cut = true
			if !e.dev.failed {
				e.dev.status = verbs.WCRetryExcErr
			}
			e.disconnect()
		}
	}
	if m.fault == faultEarlyKey && e.conn.ep.grown != nil {
		e.conn.ep.mr.(*simMR).closed = true
	}
	if t := e.threads[actDrain]; t == nil && e.closed && e.threads[actReader].done && e.threads[actWriter].done && e.threads[actControl].done && !e.killed {
		e.start(actDrain, e.drain)
	}
}

// step chooses what happens next among what may; false: nothing may.
func (m *model) step() bool {
	total := 0
	var can [2 * numActs]int
	for i, e := range m.ends {
		for act := range numActs {
			w := m.weights[i][act]
			if w > 0 && m.enabled(e, act) {
				total += w
			} else {
				w = 0
			}
			can[i*numActs+act] = w
		}
	}
	if total == 0 {
		return false
	}
	pick := m.c.intn(total)
	for k, w := range can {
		if pick -= w; pick < 0 {
			m.do(m.ends[k/numActs], k%numActs)
			break
		}
	}
	return true
}

// run takes the steps of the settings in phases: in each, some things are frequent and
// some do not happen, so that every kind of backlog builds up. Then all comes to its end.
func (m *model) run() {
	for m.steps < m.set.steps {
		for i := range m.weights {
			for act := range numActs {
				m.weights[i][act] = [...]int{0, 1, 4, 16}[m.c.intn(4)]
			}
			m.weights[i][actControl] = m.c.intn(2)
			m.weights[i][actSpurious] = m.c.intn(2)
			m.weights[i][actDrain] = 1 + m.c.intn(4)
			if m.set.late {
				for act := range actSpurious {
					m.weights[i][act] = max(m.weights[i][act], 4)
				}
				m.weights[i][actControl] = m.c.intn(2)
			}
		}
		if m.set.late {
			m.weights[0][actAck] = 0
		}
		m.set.small = m.set.late || m.c.intn(2) == 0
		for n := m.steps + 1 + m.c.intn(300); m.steps < n && m.step(); {
		}
		if m.c.intn(16) == 0 {
			m.steps++ // also if nothing may happen
		}
	}
	m.settle()
}

// retire has smaller rings be deregistered, which happens beside what the calls do, before
// anything else does.
func (e *modelEnd) retire() {
	if e.conn != nil && e.conn.ep.retiring != nil {
		e.conn.ep.retiring.Wait()
	}
}

// settleSteps are more than any model needs to come to its end.
const settleSteps = 200_000

// settle lets everything happen until nothing can.
func (m *model) settle() {
	m.settling = true
	for i := range m.weights {
		for act := range numActs {
			m.weights[i][act] = 1
		}
	}
	for limit := m.steps + settleSteps; m.step(); {
		if m.steps > limit {
			m.fail("no end after %d steps: %v", settleSteps, m.stuck())
		}
	}
	m.checkEnd()
	m.over = true
}

// stuck lists the threads that have not come to their end.
func (m *model) stuck() (all []string) {
	for _, e := range m.ends {
		for act, t := range e.threads {
			if t != nil && !t.done && !e.killed {
				all = append(all, fmt.Sprintf("%s of %v at %s", actNames[act], e, placeNames[t.at]))
			}
		}
	}
	return all
}

// discard gives back what a model holds, wherever it is.
func (m *model) discard() {
	for _, e := range m.ends {
		if e == nil {
			continue
		}
		for _, t := range e.threads {
			if t != nil {
				t.stop()
			}
		}
		if e.conn != nil {
			e.conn.ep.pinned.releasePins()
			if !e.finished {
				_ = e.conn.ep.pinned.release()
			}
		}
	}
	m.memory.recycle()
}

// modelStream is what all streams are cut from.
var modelStream = func() []byte {
	b := make([]byte, modelPeriod+2*modelMost)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b[:modelPeriod] {
		b[i] = byte(r.Uint32())
	}
	copy(b[modelPeriod:], b)
	return b
}()

const (
	modelPeriod = 65521 // a prime
	modelMost   = 16 << 10
)

// stream is n bytes of what e sends, from a position on.
func (e *modelEnd) stream(at uint64, n int) []byte {
	return modelStream[(at+e.salt*2357)%modelPeriod:][:n]
}
