package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/asktwice"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

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
	e.dialer.port = t.Src.Port()
	if err := e.dialer.connect(ctx, events, r); err != nil {
		e.discard()
		k.destroyed(e)
		return nil, err
	}
	h.handOver(e)
	// The listener grants the first places when it has heard the dialer, who speaks first
	// (RFC 5044, section 7.1): then it has taken the confirmation, too.
	n := k.waiting(e.dialer.agreedLanes())
	e.mu.Lock()
	e.dialer.last = time.Since(epoch)
	e.dialer.wantPlaces(min(n, int(e.maxID)))
	e.settle()
	e.mu.Unlock()
	if err := e.dialer.awaitUp(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// firstWordTime is how long an iWARP listener may take to answer the first message before it gets
// another. siw hears nothing of what comes while it makes a connection of the one that it has accepted:
// it looks again when more comes.
const firstWordTime = 500 * time.Millisecond

// awaitUp waits until the listener has granted a place.
func (dp *dialerPart) awaitUp(ctx context.Context) error {
	e := dp.e
	var again <-chan time.Time
	if e.p.confirm != nil {
		ticker := time.NewTicker(firstWordTime)
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		select {
		case <-dp.up:
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
func (dp *dialerPart) connect(ctx context.Context, events <-chan *cm.Event, r *asktwice.Request) error {
	e := dp.e
	mine := e.p.hello(e.cfg, e.cfg.Streams, rand.Uint32(), e.cfg.Secret.Link(e.id.RemoteAddr()))
	param := cm.ConnParam{
		PrivateData: mine.Encode(), RetryCount: e.cfg.retries(), RNRRetryCount: rnrRetries,
		ResponderResources: e.p.maxReads(), InitiatorDepth: e.p.maxReads(),
	}
	if err := e.id.Connect(&param, 0); err != nil {
		return err
	}
	ev, err := dp.response(ctx, events, r)
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
func (dp *dialerPart) response(ctx context.Context, events <-chan *cm.Event, r *asktwice.Request) (*cm.Event, error) {
	e := dp.e
	if dp.mayBeLost() {
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
func (dp *dialerPart) mayBeLost() bool {
	e := dp.e
	return !e.p.sameHost && e.p.writeImm
}

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
