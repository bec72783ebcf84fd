package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/asktwice"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

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

// open opens a stream, and waits for a place if there is none. The error is errRetired, with
// the lane's end if it has ended, that of ctx, or about memory. from is a stream that is to be
// dialled again, if it is not nil.
func (e *laneEnd) open(ctx context.Context, from *stream) (*Stream, error) {
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
	e.lookForListener()
	e.tasks.Done()
	switch {
	case e.err != nil:
		d.end(e.retiredErr())
	case e.away:
		d.end(errRetired)
	default:
		if e.only != 0 && (e.busy && e.inUse.Load() > 0 || len(e.dials) > 0) {
			d.end(&AddressError{driver.Explain("another connection of this process to that listener has the port", syscall.EADDRINUSE)})
			break
		}
		if e.only != 0 { // whose stream, if there is one, was closed: when it has ended
			d.port = e.only
		}
		e.dials = append(e.dials, d)
		if e.fill(); e.err == nil {
			if e.asked == 0 { // else the next places that come have it asked for the others together
				e.wantPlaces(len(e.dials))
			}
			e.startTicks()
			if len(e.dials) > 0 {
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
			e.giveUp(d, context.Cause(ctx))
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
func (e *laneEnd) lookForListener() {
	if !e.p.synchronous {
		return
	}
	if e.inUse.Load() == 0 {
		e.pollOnce()
	} else {
		e.pollUnpolled()
	}
	now := time.Since(epoch)
	if e.err == nil && now-e.dialled >= peerCheckPause && e.id.PeerGone() {
		e.retire()
	}
	e.dialled = now
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

// giveUp ends a dial that does not want to wait any more, unless it has a stream by now.
func (e *laneEnd) giveUp(d *dial, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, o := range e.dials {
		if o == d {
			e.dials = append(e.dials[:i], e.dials[i+1:]...)
			d.end(err)
			return
		}
	}
}

// wantPlaces sees that for n dials there are places in store, or were asked for and have not come. What has come
// to dials that have left meanwhile stays in store. mu is held.
func (e *laneEnd) wantPlaces(n int) {
	if n -= e.state.Places(); n > e.asked {
		e.state.Want(n - e.asked)
		e.asked = n
	}
}

// fill gives places to the dials that wait, in order. mu is held.
func (e *laneEnd) fill() {
	select {
	case <-e.up:
	default:
		close(e.up)
	}
	for len(e.dials) > 0 && !e.busy {
		d := e.dials[0]
		st, err := e.state.Open(d.ring.Ring(), d.port)
		if errors.Is(err, lane.ErrNoPlace) {
			return
		}
		pop(&e.dials)
		if err == nil {
			e.busy = e.only != 0
			d.stream = e.newStream(st, d.ring)
			e.awaitAnswer(d.stream)
			d.stream.re = d.redial(e.only)
			e.announce(unannounced{d.stream, d})
			continue
		}
		d.end(fmt.Errorf("%w: %w", errRetired, err))
	}
}

// refill is fill for a dial that has waited for its port: the place that there was for it may have been asked back
// meanwhile. mu is held.
func (e *laneEnd) refill() {
	e.fill()
	e.wantPlaces(len(e.dials))
}

// bringUp makes a lane to t, and returns when it can carry streams. A request that a network has
// perhaps lost is made again beside the first, and one of the two is confirmed: the owner hears of
// that one only.
func bringUp(ctx context.Context, cfg *Config, t Target, k *linkLane) (*laneEnd, error) {
	return asktwice.Dial(ctx, t.Dst, func(ctx context.Context, r *asktwice.Request) (*laneEnd, error) {
		return ask(ctx, cfg, t, k, r)
	})
}

// ask makes one request for a lane.
func ask(ctx context.Context, cfg *Config, t Target, k *linkLane, r *asktwice.Request) (*laneEnd, error) {
	if t.Src.Port() != 0 {
		r.Only() // a second id would need the same port
	}
	events := make(chan *cm.Event, 4)
	h := newEventHandler(events)
	k.binds()
	id, err := k.resolve(ctx, h.channel(), t)
	if err != nil {
		k.unbind()
		return nil, err
	}
	e, err := newLaneEnd(cfg, lane.RoleDialer, id, k)
	if err != nil {
		err = errors.Join(err, id.Close())
		k.unbind()
		return nil, err
	}
	e.only = t.Src.Port()
	if err := e.connect(ctx, events, r); err != nil {
		e.discard()
		k.destroyed(e)
		return nil, err
	}
	h.handOver(e)
	// The listener grants the first places when it has heard the dialer, who speaks first
	// (RFC 5044, section 7.1): then it has taken the confirmation, too.
	n := k.waiting(e.agreedLanes())
	e.mu.Lock()
	e.dialled = time.Since(epoch)
	e.wantPlaces(min(n, int(e.maxID)))
	e.settle()
	e.mu.Unlock()
	if err := e.awaitUp(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// firstWordTime is how long an iWARP listener may take to answer the first message before it gets
// another. siw hears nothing of what comes while it makes a connection of the one that it has accepted:
// it looks again when more comes.
const firstWordTime = 500 * time.Millisecond

// awaitUp waits until the listener has granted a place.
func (e *laneEnd) awaitUp(ctx context.Context) error {
	var again <-chan time.Time
	if e.p.confirm != nil {
		ticker := time.NewTicker(firstWordTime)
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		select {
		case <-e.up:
			return nil
		case <-e.done:
			if lied(e.err) {
				return ended(e.err)
			}
			return fmt.Errorf("%w: %w", verbs.ErrTryAgain, e.err)
		case <-ctx.Done():
			e.fail(context.Cause(ctx))
			return context.Cause(ctx)
		case <-again:
			e.mu.Lock()
			if e.err == nil {
				e.ask()
			}
			e.mu.Unlock()
			e.startWorker()
		}
	}
}

// connect exchanges first words with the listener and starts the lane.
func (e *laneEnd) connect(ctx context.Context, events <-chan *cm.Event, r *asktwice.Request) error {
	mine := e.p.hello(e.cfg, e.cfg.Streams, rand.Uint32(), e.cfg.Secret.Link(e.id.RemoteAddr()))
	param := cm.ConnParam{
		PrivateData: mine.Encode(), RetryCount: e.cfg.retries(), RNRRetryCount: rnrRetries,
		ResponderResources: e.p.maxReads(), InitiatorDepth: e.p.maxReads(),
	}
	if err := e.id.Connect(&param, 0); err != nil {
		return err
	}
	ev, err := e.response(ctx, events, r)
	if err != nil {
		return err
	}
	peer, err := hello.Parse(ev.Param.PrivateData)
	if err == nil {
		err = mine.Match(&peer)
	}
	if err == nil && (peer.Epoch != mine.Epoch || peer.Link != mine.Link || peer.Streams > mine.Streams) {
		err = fmt.Errorf("%w: it answers for another lane", hello.ErrMalformed)
	}
	if err != nil {
		return err
	}
	e.p.boundReads(&ev.Param)
	return e.start(peer, peer.Streams, mine.Epoch)
}

// response waits for the answer and confirms it, where that is to be done.
func (e *laneEnd) response(ctx context.Context, events <-chan *cm.Event, r *asktwice.Request) (*cm.Event, error) {
	if e.mayBeLost() {
		stop := r.Sent()
		defer stop()
	}
	ev, err := established(ctx, events)
	if err != nil {
		return nil, err
	}
	if !r.Answered() {
		return nil, asktwice.ErrOtherAnswer
	}
	if ev.Type != cm.ConnectResponse {
		return ev, nil
	}
	if ctx.Err() != nil { // nobody waits any more, and the answer was claimed to say so
		return nil, context.Cause(ctx)
	}
	if err := e.id.Accept(nil); err != nil {
		return nil, err
	}
	_, err = established(ctx, events)
	return ev, err
}

// mayBeLost reports whether the network may lose a request: iWARP's go over TCP, which repeats
// them itself.
func (e *laneEnd) mayBeLost() bool { return !e.p.sameHost && e.p.writeImm }

// established waits for the outcome of a connect or an accept, or for an answer to be confirmed.
func established(ctx context.Context, events <-chan *cm.Event) (*cm.Event, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case ev := <-events:
		switch {
		case ev.Type == cm.Established, ev.Type == cm.ConnectResponse:
			return ev, nil
		case ev.Err != nil:
			return nil, ev.Err
		}
		return nil, fmt.Errorf("%w: %v while connecting", verbs.ErrPeerGone, ev)
	}
}

// A Target says where a dial goes. Dials of one Target share a link. With a port in Src a link
// has one stream at a time, which has that port.
type Target struct {
	Src netip.AddrPort // the zero value if any will do
	Dst netip.AddrPort

	// Alone, if it is not 0, is a number that no other dial has: the lane that comes up for this
	// one has room for one stream, and is closed as soon as that has ended.
	Alone uint64
}
