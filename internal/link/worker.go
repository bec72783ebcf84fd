package link

import (
	"errors"
	"log/slog"
	"math/bits"

	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// work is what has to be done for a lane and may block. Its worker does it, a goroutine that lives
// as long as there is any. The lane's lock guards it.
type work struct {
	running bool
	notify  bool      // tell the connection manager that the dialer has spoken
	trim    bool      // give empty chunks back
	grant   int       // so many places
	wanted  int       // of them, for dials that wait
	resize  []*stream // they get a larger ring, or a small one
	stage   bool      // more send memory
}

func (w *work) any() bool { return w.notify || w.trim || w.grant > 0 || w.stage || len(w.resize) > 0 }

// startWorker starts the worker if there is work. It is to be called without mu, after whatever may
// have made some.
func (e *laneEnd) startWorker() {
	if e.unseen.Load() && e.unseen.CompareAndSwap(true, false) && e.begin() {
		e.see()
		e.tasks.Done()
	}
	if !e.hasWork.Load() {
		return
	}
	e.mu.Lock()
	start := e.work.any() && !e.work.running && e.err == nil
	if start {
		e.work.running = true
		e.tasks.Add(1)
	}
	e.mu.Unlock()
	if start {
		go e.worker()
	}
}

// worker works until nothing is left.
func (e *laneEnd) worker() {
	defer e.tasks.Done()
	for {
		e.mu.Lock()
		w := e.work
		e.work = work{running: true}
		e.making = w.grant
		if !w.any() || e.err != nil {
			e.work.running = false
			e.hasWork.Store(false)
			e.mu.Unlock()
			e.startWorker() // where there was no room to post
			return
		}
		e.mu.Unlock()
		if w.notify {
			if err := e.id.Notify(); err != nil {
				asynclog.Log(e.cfg.logger(), slog.LevelDebug, "link: notify", "err", err)
			}
		}
		e.grant(w.wanted, memory.ForStream)
		for _, s := range w.resize {
			e.resize(s)
		}
		e.grant(w.grant-w.wanted, memory.ForPlace)
		if w.stage {
			e.growStaging()
		}
		if w.trim {
			if err := errors.Join(e.slab.Trim(), e.sends.Trim()); err != nil {
				asynclog.Log(e.cfg.logger(), slog.LevelWarn, "link: giving back memory", "err", err)
			}
		}
	}
}

// growDue has a larger ring offered to the peer of a stream. mu is held.
func (e *laneEnd) growDue(s *stream) {
	if s.closed || s.st.Receiver().Ring().Size >= e.cfg.MaxRing {
		return
	}
	if s.wants = true; s.resizing || e.memory.refused {
		return
	}
	e.resizeDue(s)
}

func (e *laneEnd) resizeDue(s *stream) {
	s.resizing = true
	e.work.resize = append(e.work.resize, s)
	e.hasWork.Store(true)
}

const (
	// growthFactor is how much larger the next ring is, of one that shares a chunk and is full, or below tinyRing.
	growthFactor = 16
	tinyRing     = 16 << 10
	// chunkGrowth is that of all others: to back a chunk with pages takes as long as to move through a ring what
	// fills it, and what half of a smaller ring holds would use the pages of a whole chunk one after the other.
	chunkGrowth = 4
	// unreadGrowth is in place of it while the program has read nothing of the stream, or much of the process's memory
	// is used: of the last ring of a stream that nobody reads most may be empty, and others have to do without. It is
	// so while as few rings suffice as may hold unread bytes.
	unreadGrowth = 2
)

// larger returns the size of the ring that is offered in place of one that is too small. mu is held.
func (s *stream) larger() uint32 {
	rx, c := s.st.Receiver(), s.e.cfg
	size := rx.Ring().Size
	switch {
	case size < tinyRing, size < memory.ChunkSize && rx.Full():
		size = min(size*growthFactor, memory.ChunkSize)
	case size < memory.ChunkSize:
		size = min(size*chunkGrowth, memory.ChunkSize)
	case rx.ConsumedBytes() > 0 && c.Budget.Ample(), rx.Rings()+bits.Len32((c.MaxRing-1)/size) > lane.MaxRings:
		size *= chunkGrowth
	default:
		size *= unreadGrowth
	}
	return min(size, c.MaxRing)
}

// nextRing is the size of the ring to be offered, and what it is for: a larger one where the
// stream wants that, else the first size again. 0 means that the ring is right as it is. mu is
// held.
func (e *laneEnd) nextRing(s *stream) (size uint32, u memory.Use) {
	rx := s.st.Receiver()
	switch now := rx.Ring().Size; {
	case e.err != nil || s.closed || s.freed || s.st.Ended() || !rx.MayOffer():
	case now < s.least:
		return s.least, memory.ForGrowth
	case s.wants || rx.WantsRing(): // it may have been read by now
		switch {
		case s.holdsBack(): // another Read has begun
			s.wants = false
		case now < e.cfg.MaxRing:
			return s.larger(), memory.ForGrowth
		}
	case now > s.smallest() && rx.Buffered() == 0:
		return s.smallest(), memory.ForStream
	}
	return 0, 0
}

// resize offers the peer of a stream another ring.
func (e *laneEnd) resize(s *stream) {
	e.mu.Lock()
	size, u := e.nextRing(s)
	s.resizing = size > 0
	e.mu.Unlock()
	if size == 0 {
		return
	}
	p, err := e.slab.Alloc(size, u)
	e.mu.Lock()
	defer e.mu.Unlock()
	s.resizing = false
	if err != nil {
		e.memoryRefused()
		return
	}
	if e.err != nil || s.closed || s.freed || e.state.Offer(s.st, p.Ring()) != nil {
		e.freePiece(p)
		return
	}
	e.counts.resizes++
	if u == memory.ForGrowth {
		s.counts.count().grown++
	}
	s.wants = false
	s.pieces = append(s.pieces, p)
	e.watch(s) // the peer may have ended what it sends
	e.settle()
}

// freePiece gives memory back that the peer writes to no more. mu is held.
func (e *laneEnd) freePiece(p memory.Piece) { e.freed(e.slab.Free(p)) }

// freed does what a Slab says that something was given back to, or that has aged. mu is held.
func (e *laneEnd) freed(trim, age bool) {
	if trim {
		e.work.trim = true
		e.hasWork.Store(true)
	}
	if age {
		e.watchMemory()
	}
}

// grant makes n places, with memory for each.
func (e *laneEnd) grant(n int, u memory.Use) {
	size := e.cfg.FirstRing
	for n > 0 {
		e.mu.Lock()
		first, count := e.ids.take(min(n, int(memory.ChunkSize/size)))
		if count == 0 { // ids that were counted on are in use
			e.making -= n
			e.ungranted(n, u, noteFailed)
			e.mu.Unlock()
			return
		}
		e.making -= count
		port, got := e.ports.alloc(count)
		for count > got { // ports are one behind the other as well
			count /= 2
			e.making += count
			e.ids.give(first+lane.ID(count), count)
		}
		e.ports.free(port+uint16(count), got-count)
		if count == 0 {
			e.ids.give(first, 1)
			e.making -= n - 1
			news := e.portsUsedUp(n, u)
			e.mu.Unlock()
			if news {
				e.reportPorts()
			}
			return
		}
		e.mu.Unlock()
		p, err := e.slab.Alloc(uint32(count)*size, u)
		why := noteFailed
		e.mu.Lock()
		if err != nil {
			e.memoryRefused()
			if why = noteNoStore; u == memory.ForStream {
				why = noteDenied
			}
		} else if e.err == nil {
			r := p.Ring()
			r.Size = size
			err = e.state.Grant(first, count, r, port)
		}
		if err != nil || e.err != nil { // going away, or out of memory
			if !p.IsZero() {
				e.freePiece(p)
			}
			e.ids.give(first, count)
			e.ports.free(port, count)
			e.making -= n - count
			e.ungranted(n, u, why)
			e.mu.Unlock()
			if why == noteDenied {
				e.owner.short(err)
			}
			return
		}
		for i := range count {
			e.places.Set(first+lane.ID(i), p.Part(i, size))
			e.ports.place.Set(first+lane.ID(i), port+uint16(i))
		}
		n -= count
		e.note(noteGranted, count)
		e.settle()
		e.mu.Unlock()
	}
}

// ungranted takes n places back that could not be made. mu is held.
func (e *laneEnd) ungranted(n int, u memory.Use, why note) {
	e.note(why, n)
	if u == memory.ForStream {
		e.note(noteWanted, n)
	}
	if e.err == nil {
		e.settle() // others may be asked to give some back
	}
}

// portsUsedUp has n places asked for again for which the client's address has no port left, and
// reports whether the log is to hear of it. mu is held.
func (e *laneEnd) portsUsedUp(n int, u memory.Use) (news bool) {
	e.memory.noPorts = true
	e.watchMemory()
	if u != memory.ForStream {
		e.ungranted(n, u, noteNoStore)
		return false
	}
	e.ungranted(n, u, noteNoPorts)
	return e.ports.all.usedUp(e.ports.host)
}

// reportPorts is not owner.short, by which Accept fails: one client's ports are no concern of the others.
func (e *laneEnd) reportPorts() {
	asynclog.Log(e.cfg.logger(), slog.LevelWarn, "link: a client's address has no port left, its dials wait: close connections, dial from another address, or have another listener",
		"listener", e.id.LocalAddr(), "client", e.ports.host, "ports", numPorts)
}

// openArrived makes a stream of a place.
func (e *laneEnd) openArrived(st *lane.Stream) {
	code := lane.CodePort
	if e.refuses {
		code = lane.CodeGoingAway
	}
	if e.refuses || !e.ports.opened(st.ID(), st.Port()) {
		if err := e.state.Refuse(st, code); err != nil {
			e.failLocked(err)
			return
		}
		// The place comes back now. Its id and its ring do when the dialer releases them, which
		// a hostile one does not.
		if e.refused == nil {
			e.refused = map[lane.ID]struct{}{}
		}
		e.refused[st.ID()] = struct{}{}
		e.recalls.went++
		e.note(noteBack, 0)
		return
	}
	p := e.places.At(st.ID())
	e.places.Set(st.ID(), memory.Piece{})
	e.recalls.went++
	s := e.newStream(st, p)
	e.note(noteTaken, 0) // before it can be accepted
	e.announce(unannounced{s: s})
}

// released takes an id back, whose stream has ended or never was one.
func (e *laneEnd) released(st *lane.Stream) {
	id := st.ID()
	e.ids.give(id, 1)
	p := e.places.At(id)
	if p.IsZero() {
		if s := e.streams.At(id); s != nil {
			s.uncount()
		}
		e.note(noteReleased, 0)
		return
	}
	e.places.Set(id, memory.Piece{})
	e.ports.back(id)
	e.freePiece(p)
	if _, counted := e.refused[id]; counted {
		delete(e.refused, id)
		e.note(noteReleased, 0)
		if e.live == 0 {
			e.owner.emptied(e)
		}
		return
	}
	e.recalls.went++
	e.note(noteBack, 0)
}

// goAway takes a step of a listener that takes no more streams.
func (e *laneEnd) goAway(stage lane.Stage) {
	switch stage {
	case lane.StageAnnounce:
		e.retire()
	case lane.StageStopped:
		e.state.GoAwayFinal()
		e.final = true
		e.noteNoMoreStreams()
		if e.live == 0 {
			e.owner.emptied(e)
		}
	}
}

// freeUntaken gives back what places have that no stream was opened in and none will be, as the dialer has
// said. It may release their ids yet, if it was asked to. mu is held.
func (e *laneEnd) freeUntaken() {
	for i, p := range e.places {
		if id := lane.ID(i); !p.IsZero() && e.state.Untaken(id) {
			e.places.Set(id, memory.Piece{})
			e.ports.back(id)
			e.freePiece(p)
		}
	}
}

// leaveUnanswered goes away from a dialer that does not say how many streams it has opened, or does
// not release those that were refused, and may never.
func (e *laneEnd) leaveUnanswered() {
	e.mu.Lock()
	e.unheeded = true
	switch {
	case e.err != nil:
	case !e.final:
		e.goAway(lane.StageStopped)
	case e.live == 0:
		e.owner.emptied(e)
	}
	if e.err == nil {
		if e.inUse.Load() == 0 { // nor does it answer the ends of its streams, perhaps
			e.awaitAnswers(goAwayTime)
		}
		e.settle()
	}
	e.mu.Unlock()
	e.startWorker()
}

// retire has no stream opened any more. mu is held.
func (e *laneEnd) retire() {
	if e.away {
		return
	}
	e.away = true
	e.note(noteLeft, 0)
	for _, d := range e.dials {
		d.end(errRetired)
	}
	e.dials = nil
	e.owner.retired(e)
	if e.live == 0 {
		e.owner.emptied(e)
	}
}

// closeIdle ends a lane that has no stream, and reports whether it has none. mu is held.
func (e *laneEnd) closeIdle() bool {
	if e.live > 0 || len(e.dials) > 0 {
		return false
	}
	e.failLocked(ErrLinkClosed)
	return true
}
