package link

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// dialerPart is what a dialer's end of a lane has beside what both have: the dials that wait for a place, and
// the streams that the listener has not answered. The lane's lock guards it.
type dialerPart struct {
	e *laneEnd

	waiting []*dial       // for a place, in order
	asked   int           // places that were asked for and have not come
	last    time.Duration // when the last dial came, since epoch
	up      chan struct{} // closed when the first place has come, or none will

	port uint16 // the one port of streams, if it is not 0
	busy bool   // a stream has it

	answers answers
	owed    atomic.Bool                    // there are streams that the listener has not answered; changed under mu
	again   func(context.Context, *stream) // dials a stream again
}

// A dial waits for a place.
type dial struct {
	ring   memory.Piece
	port   uint16  // that the caller has bound, or that the stream had elsewhere, or 0
	from   *stream // that is dialled again, or nil
	stream *stream
	err    error
	ended  bool          // it has a stream or an error
	done   chan struct{} // closed then; nil while its call does not wait
}

// end ends the wait with an error. The lane's lock is held.
func (d *dial) end(err error) {
	d.err = err
	d.finish()
}

// finish ends the wait. The call may have left, with the stream if it has one. The lane's lock is held.
func (d *dial) finish() {
	d.ended = true
	if d.done != nil {
		close(d.done)
	}
}

// redial is what the stream needs to be dialled again.
func (d *dial) redial(only uint16) *redial {
	re := &redial{}
	re.home = re
	if d.from != nil {
		re.home, re.replays, re.proposed = d.from.re.home, true, d.port != 0 && d.port != only
	}
	return re
}

// open opens a stream, and waits for a place if there is none. The error is errRetired, with
// the lane's end if it has ended, that of ctx, or about memory. from is a stream that is to be
// dialled again, if it is not nil.
func (dp *dialerPart) open(ctx context.Context, from *stream) (*Stream, error) {
	e := dp.e
	if !e.begin() {
		e.mu.Lock()
		defer e.mu.Unlock()
		return nil, e.retiredErr()
	}
	ring, err := e.slab.Alloc(e.cfg.FirstRing, memory.ForStream)
	if err != nil {
		e.tasks.Done()
		return nil, err
	}
	d := &dial{ring: ring, from: from}
	if from != nil && !from.re.refused {
		d.port = from.port
	}
	e.mu.Lock()
	dp.lookForListener()
	e.tasks.Done()
	switch {
	case e.err != nil:
		d.end(e.retiredErr())
	case e.away:
		d.end(errRetired)
	default:
		if dp.port != 0 && (dp.busy && e.inUse.Load() > 0 || len(dp.waiting) > 0) {
			d.end(&AddressError{driver.Explain("another connection of this process to that listener has the port", syscall.EADDRINUSE)})
			break
		}
		if dp.port != 0 { // whose stream, if there is one, was closed: when it has ended
			d.port = dp.port
		}
		dp.waiting = append(dp.waiting, d)
		if dp.fill(); e.err == nil {
			if dp.asked == 0 { // else the next places that come have it asked for the others together
				dp.wantPlaces(len(dp.waiting))
			}
			e.startTicks()
			if len(dp.waiting) > 0 {
				e.giveUpKept()
			}
		}
		e.settle()
	}
	waits := !d.ended
	if waits {
		d.done = make(chan struct{})
	}
	e.mu.Unlock()
	e.startWorker()
	if waits {
		select {
		case <-d.done:
		case <-ctx.Done():
			dp.giveUp(d, context.Cause(ctx))
		}
	}
	if d.err != nil {
		e.mu.Lock()
		e.freePiece(d.ring)
		e.mu.Unlock()
		e.startWorker()
	}
	return newHandle(d.stream), d.err
}

// peerCheckPause is for how long after a dial the next one does not look whether the peer is there: that is a
// system call, a good part of what a dial takes where they follow one another.
const peerCheckPause = 100 * time.Microsecond

// lookForListener takes in what there is for a dial to know before it opens a stream: within a host a listener
// that has closed has said so by then, and a process that has ended has hung up. Where streams keep others
// polling it does not wait for those. mu is held when it is called and when it returns.
func (dp *dialerPart) lookForListener() {
	e := dp.e
	if !e.p.synchronous {
		return
	}
	if e.inUse.Load() == 0 {
		e.pollOnce()
	} else {
		e.pollUnpolled()
	}
	now := time.Since(epoch)
	if e.err == nil && now-dp.last >= peerCheckPause && e.id.PeerGone() {
		e.retire()
	}
	dp.last = now
}

// giveUp ends a dial that does not want to wait any more, unless it has a stream by now.
func (dp *dialerPart) giveUp(d *dial, err error) {
	dp.e.mu.Lock()
	defer dp.e.mu.Unlock()
	for i, o := range dp.waiting {
		if o == d {
			dp.waiting = append(dp.waiting[:i], dp.waiting[i+1:]...)
			d.end(err)
			return
		}
	}
}

// endDials ends all dials that wait. mu is held.
func (dp *dialerPart) endDials(err error) {
	for _, d := range dp.waiting {
		d.end(err)
	}
	dp.waiting = nil
}

// granted takes in n places that have come. mu is held.
func (dp *dialerPart) granted(n int) {
	dp.asked = max(dp.asked-n, 0)
	dp.refill()
}

// wantPlaces sees that for n dials there are places in store, or were asked for and have not come. What has come
// to dials that have left meanwhile stays in store. mu is held.
func (dp *dialerPart) wantPlaces(n int) {
	if n -= dp.e.state.Places(); n > dp.asked {
		dp.e.state.Want(n - dp.asked)
		dp.asked = n
	}
}

// fill gives places to the dials that wait, in order. mu is held.
func (dp *dialerPart) fill() {
	select {
	case <-dp.up:
	default:
		close(dp.up)
	}
	for len(dp.waiting) > 0 && !dp.busy {
		d := dp.waiting[0]
		st, err := dp.e.state.Open(d.ring.Ring(), d.port)
		if errors.Is(err, lane.ErrNoPlace) {
			return
		}
		pop(&dp.waiting)
		if err == nil {
			dp.busy = dp.port != 0
			d.stream = dp.e.newStream(st, d.ring)
			d.stream.re = d.redial(dp.port)
			dp.awaitAnswer(d.stream)
			dp.e.announce(unannounced{d.stream, d})
			continue
		}
		d.end(fmt.Errorf("%w: %w", errRetired, err))
	}
}

// refill is fill that asks for more places if there are too few. mu is held.
func (dp *dialerPart) refill() {
	dp.fill()
	dp.wantPlaces(len(dp.waiting))
}

func (dp *dialerPart) retireNow() {
	dp.e.mu.Lock()
	defer dp.e.mu.Unlock()
	dp.e.retire()
}

func (dp *dialerPart) closeIfIdle() bool {
	e := dp.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live > 0 || len(dp.waiting) > 0 {
		return false
	}
	e.failLocked(ErrLinkClosed)
	return true
}

func (dp *dialerPart) load() (streams, room int) {
	return int(dp.e.inUse.Load()), int(dp.e.maxID) - int(dp.e.taken.Load())
}

func (dp *dialerPart) agreedLanes() int {
	e := dp.e
	return min(e.cfg.lanes(e.p.sameHost), e.peer.Lanes)
}
