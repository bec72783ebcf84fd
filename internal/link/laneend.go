package link

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// wcBatch is how many completions are taken in at once.
const wcBatch = 32

// An owner is whom a laneEnd tells what is not about one stream: the link of a dialer, or a
// Listener. The calls come with the lane's lock held: they must not wait, nor call back.
type owner interface {
	opened(*stream) // by the peer; it is to be accepted, and perhaps the lane has ended
	reset(*stream)  // by the peer, or since the peer broke a rule of it
	// note says what has become of places; the answer is what to do about them.
	note(e *laneEnd, what note, n int) allotment
	retired(*laneEnd)        // no stream can be opened any more
	heard(*laneEnd)          // the first message has arrived, at a listener
	filled(*laneEnd)         // the first stream has come
	used(*laneEnd)           // the first that the program has open
	unused(*laneEnd)         // the program has closed the last; its end may not be answered yet
	emptied(*laneEnd)        // the last stream has gone
	gone(*laneEnd)           // the lane has ended, for err
	destroyed(*laneEnd)      // and nothing is left of it; mu is not held
	takesOver(*laneEnd) bool // whether somebody else polls now, for streams that may come
	short(error)             // there is no memory for places that dials wait for; mu is not held
	endsGivenUp(*laneEnd) *endsGivenUp
}

// laneEnd is one end of a lane.
//
// # Locks
//
// mu guards the state machine, the poll role, the send queue, and what streams have of those.
// Under it nothing is allocated from the device, registered or resolved: that is for the
// worker (worker.go). A message is posted under it, in the order in which
// the machine has counted them. Completions are polled without it, by whoever has the poll role,
// but for one poll of a call that holds it in any case (pollKept). Of several locks mu comes
// first, then those of the owner and of the slab; before mu that of a stream's redial.
type laneEnd struct {
	cfg   *Config
	role  lane.Role
	owner owner
	id    *cm.ID
	p     *endpoint
	slab  *memory.Slab // of rings
	peer  hello.Word
	epoch uint32
	place placeInList

	failed  atomic.Bool           // err is set, or is about to be
	ending  atomic.Pointer[error] // the lane has ended: what has arrived is taken in yet
	blocks  atomic.Bool           // somebody waits for the send queue
	unseen  atomic.Bool           // likewise, since somebody has armed the queue of completions
	hasWork atomic.Bool           // for the worker
	inUse   atomic.Int32          // streams that the program has not closed; changed under mu
	taken   atomic.Int32          // ids of streams: what live says

	pollWaiters pollWaiters

	mu      laneLock
	state   *lane.Lane
	polling polling

	// What is sent.
	sq          sendQueue
	stuck       bool      // a message waits for the send queue
	blocked     []*stream // likewise, their data
	writes      uint      // calls, that poll now and then
	unyielded   int       // bytes that were written ahead since a Write let other goroutines run
	peerMemory  peerMemory
	staging     staging
	buffers     buffers
	wrs         [3]verbs.SendWR
	sge         [1]verbs.SGE
	record      [lane.RecordLen]byte
	bell        [bellLen]byte
	frame       [ring.FrameHeaderLen + smallFrame]byte
	abortPosted uint64 // sendQueue.posted after ABORT; 0: none was sent

	// What arrives.
	heard     bool   // a message has
	got       uint32 // records
	repostNow bool   // one was among what has just arrived

	streams     lane.Table[*stream]
	live        int           // of them
	unannounced []unannounced // that the device cannot write to yet
	ends        laneEnds
	maxID       lane.ID
	away        bool // no stream can be opened any more

	dialer   dialerPart   // of a dialer's lane
	listener listenerPart // of a listener's

	work      work
	memory    memoryWatch
	alive     keepAlive
	counts    laneCounts
	countsFor *stream // whom messages wake, until there is one about another: see countFor

	err     error
	torn    bool
	tasks   sync.WaitGroup // calls and goroutines that use the verbs objects
	unheld  chan struct{}  // closed when a lane out of reach need not stay (outofreach.go)
	release sync.Once
	done    chan struct{} // closed when nothing is left
}

// newLaneEnd makes one end of a lane on id. It is to be started when the peer's hello is
// known, or destroyed.
func newLaneEnd(cfg *Config, role lane.Role, id *cm.ID, o owner) (*laneEnd, error) {
	p, err := newEndpoint(id, cfg)
	if err != nil {
		return nil, err
	}
	e := &laneEnd{
		cfg: cfg, role: role, owner: o, id: id, p: p, slab: p.rings,
		sq:   sendQueue{qp: p.qp, cq: p.sendCQ, cap: sendDepth, confirm: p.confirm},
		done: make(chan struct{}), unheld: make(chan struct{}),
	}
	e.sq.counter, _ = p.qp.(driver.QPStatter)
	e.polling = newPolling(e)
	e.peerMemory = newPeerMemory(e)
	e.buffers = buffers{slab: newSends(p, cfg.Budget)}
	e.ends = newLaneEnds(e)
	e.dialer = dialerPart{e: e, up: make(chan struct{})}
	e.listener = listenerPart{e: e, ids: freeIDs{next: 1}}
	if role == lane.RoleListener {
		e.listener.share = &share{e: e}
	}
	if !p.synchronous {
		e.useFirstStaging()
	}
	return e, nil
}

// start begins the lane with what the peer has told. Nothing was posted before.
func (e *laneEnd) start(peer hello.Word, streams lane.ID, epoch uint32) (err error) {
	e.peer, e.maxID, e.listener.ids.last, e.epoch = peer, streams, streams, epoch
	if c := e.p.confirm; c != nil {
		c.addr, c.rkey = peer.Records, peer.RKey
	}
	mine := e.p.hello(e.cfg, streams, epoch, peer.Link)
	records, own, theirs := mine.Agreed(&peer)
	checksums, err := cm.Checksums(mine.Checksums, peer.Checksums)
	if err != nil {
		return err
	}
	e.p.lot = min(wcBatch, own/8) // at most a quarter, which lane.Config permits
	e.state, err = lane.New(lane.Config{
		Role: e.role, Epoch: epoch, Streams: streams, Receives: own, PeerReceives: theirs, Places: records,
		Checksums: checksums,
	})
	if err != nil {
		return err
	}
	allLanes.add(e)
	e.tasks.Add(1)
	go e.serve()
	return nil
}

// serve is the lane's goroutine. It sleeps in the channel while nobody has the poll role, and
// leaves that to the calls that do.
func (e *laneEnd) serve() {
	defer e.tasks.Done()
	recheck := func() bool { return !e.attend(false) || e.failed.Load() }
	for {
		if err := e.p.channel.WaitRead(recheck); err != nil {
			e.end(err)
		}
		if e.failed.Load() {
			return
		}
		<-e.polling.rested
	}
}

// attend sees that somebody polls: the caller, if nobody does, which it reports. A call that
// is expected back will poll, unless now says that it is not to be waited for: the queue was
// armed before, and to arm it again would wake this end with every message of a conversation.
func (e *laneEnd) attend(now bool) bool {
	e.mu.Lock()
	n := lane.Waiter(0)
	if now {
		n = e.polling.dropKept()
	}
	poll := n != 0
	if n == 0 {
		n = lane.Goroutine
		poll = e.polling.role.Event()
	}
	if poll {
		e.counts.wakeups++
	}
	e.mu.Unlock()
	if !poll {
		return false
	}
	for range maxBatches {
		if !e.poll() {
			break
		}
	}
	e.leave(n)
	return true
}

// begin reports whether the lane stands; then its verbs objects stay until finish.
func (e *laneEnd) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return false
	}
	e.tasks.Add(1)
	return true
}

// event takes in what the connection manager says.
func (e *laneEnd) event(ev *cm.Event) {
	var err error
	switch ev.Type {
	case cm.Disconnected, cm.ConnectError, cm.Rejected, cm.Unreachable:
		err = goneBy(ev.Err)
	case cm.DeviceRemoval:
		if err = errRemoved; ev.Err != nil {
			err = fmt.Errorf("%w: %w", errRemoved, ev.Err)
		}
	default:
		return
	}
	e.unhold()
	e.end(err)
}

// end ends the lane when all that has arrived was taken in: what the peer said before it left is
// in the receive queue, so that is asked first.
func (e *laneEnd) end(err error) {
	if e.ending.CompareAndSwap(nil, &err) {
		go e.last()
	}
}

// last sees that somebody polls once more, now that the lane has ended.
func (e *laneEnd) last() {
	if !e.begin() {
		return
	}
	defer e.tasks.Done()
	e.see()
}

// see has whoever polls, perhaps a call that sleeps in the channel, check once more what no
// completion tells, and arm the queues anew.
func (e *laneEnd) see() {
	if !e.attend(true) {
		e.endChannelSleep()
	}
}

// fail ends the lane.
func (e *laneEnd) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failLocked(err)
}

func (e *laneEnd) failLocked(err error) {
	if e.failed.Swap(true) { // perhaps within sendAbort, which takes in what has completed
		return
	}
	e.sendAbort(err)
	e.err = err
	for _, s := range e.streams {
		if s != nil {
			s.in.waiter.wake(e)
			s.out.waiter.wake(e)
			s.end.portless = s.end.portless || e.role == lane.RoleListener && s.port == e.listener.ports.bound // it goes below
		}
	}
	e.ends.safe()
	e.dialer.endDials(e.retiredErr())
	e.dialer.answerless()
	e.announceReady(true)
	for _, w := range e.polling.calls {
		if w != nil {
			w.unpark(e)
		}
	}
	e.pollWaiters.polled(e.pollWaiters.begun(), true) // nothing comes any more
	e.polling.rest()
	e.memory.stop()
	e.alive.stop()
	e.ends.timer.stop()
	if e.role == lane.RoleListener {
		e.listener.end()
	}
	e.owner.gone(e)
	go e.teardown()
}

// retiredErr is what a dial is told that comes too late for the lane.
func (e *laneEnd) retiredErr() error {
	switch {
	case e.err == nil, errors.Is(e.err, ErrLinkClosed):
		return errRetired
	case lied(e.err):
		return ended(e.err)
	}
	return fmt.Errorf("%w: %w", errRetired, e.err)
}

// teardown destroys everything but what streams may still read.
func (e *laneEnd) teardown() {
	e.awaitSent()
	away := e.outOfReach()
	if away {
		e.stopAnswering()
	} else if err := e.id.Disconnect(); err != nil { // by which the peer learns it, and all that is posted is flushed
		asynclog.Log(e.cfg.logger(), slog.LevelDebug, "link: disconnect", "err", err)
	}
	_ = e.p.channel.SetReadDeadline(time.Unix(1, 0)) // the lane's goroutine leaves
	e.waitsAreTasks()
	e.tasks.Wait()
	if away {
		e.hold()
	}
	e.destroy()
	e.mu.Lock()
	e.torn = true
	for _, s := range e.streams {
		if s != nil {
			s.free()
		}
	}
	e.dropTables()
	e.mu.Unlock()
	allLanes.remove(e)
	e.owner.destroyed(e)
	close(e.done)
}

// dropTables lets go of what the lane has by id when it is torn and its streams have gone. A program
// may keep a connection long after it has closed it. mu is held.
func (e *laneEnd) dropTables() {
	if e.torn && e.live == 0 {
		e.streams, e.listener.places = nil, nil
	}
}

// discard destroys a lane that was not started.
func (e *laneEnd) discard() { e.destroy() }

func (e *laneEnd) destroy() {
	if err := errors.Join(e.p.destroy(e.buffers.slab.Close), e.id.Close()); err != nil {
		asynclog.Log(e.cfg.logger(), slog.LevelWarn, "link: destroying a lane's RDMA objects", "err", err)
	}
	shortage.Freed()
}
