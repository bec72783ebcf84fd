package link

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"runtime/trace"
	"slices"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
)

const (
	// cmBacklog is how many requests for lanes may be unanswered; further ones wait at their
	// dialers.
	cmBacklog = 128
)

// A Listener accepts the streams that others open. Its methods may be called concurrently.
type Listener struct {
	cfg Config
	id  *cm.ID
	ups bringUps

	shortages *shortage.Queue
	clients   ports // of the streams, by the client's address

	mu         sync.Mutex
	lanes      map[*laneEnd]struct{}
	quietLanes quietLanes
	accepted   []*stream     // opened, and not handed out
	opens      uint64        // so far
	ready      chan struct{} // holds a token while accepted is not empty
	backlog    backlog
	counts     Requests
	feeding    bool
	acceptor   acceptor
	closed     chan struct{}
	leaving    map[*laneEnd]struct{} // after Close with ReusePort: whose dialers may have opened more
	ended      chan struct{}         // closed when nothing comes to Accept any more
}

// Listen listens on addr; port 0 chooses one.
func Listen(c Config, addr netip.AddrPort) (*Listener, error) {
	l, err := Bind(c, addr)
	if err != nil {
		return nil, err
	}
	if err := l.Start(cmBacklog); err != nil {
		_ = l.id.Close()
		return nil, err
	}
	return l, nil
}

// Bind returns a Listener that has addr, and takes nobody before Start.
func Bind(c Config, addr netip.AddrPort) (*Listener, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Listener{
		cfg: c, lanes: map[*laneEnd]struct{}{}, quietLanes: quietLanes{},
		ready: make(chan struct{}, 1), backlog: newBacklog(c.Backlog, c.Places),
		closed: make(chan struct{}), ended: make(chan struct{}),
	}
	l.acceptor.call.pays.lasting = true
	id, err := cm.NewHandlerChannel(l.request).CreateID(c.CM)
	if err != nil {
		return nil, err
	}
	l.id = id
	if l.shortages = c.Shortages; l.shortages == nil {
		l.shortages = shortage.NewQueue(id.Hold)
	}
	if err = id.BindAddr(addr); err == nil {
		if ctx := id.Verbs(); ctx != nil { // it is nil where several devices listen
			_, err = carries(ctx)
		}
	}
	if err != nil {
		_ = id.Close()
		return nil, err
	}
	return l, nil
}

// Start begins to take requests for lanes, of which so many may be unanswered, cmBacklog at
// most.
func (l *Listener) Start(backlog int) error { return l.id.Listen(min(backlog, cmBacklog)) }

// ID returns the id that listens. It is the Listener's to close.
func (l *Listener) ID() *cm.ID { return l.id }

// Addr returns the address that the Listener listens on.
func (l *Listener) Addr() netip.AddrPort { return l.id.LocalAddr() }

// request takes in what the connection manager says of the listening id.
func (l *Listener) request(ev *cm.Event) {
	if ev.Type != cm.ConnectRequest {
		if l.cfg.OnEvent != nil {
			l.cfg.OnEvent(ev)
		}
		return
	}
	h := newEventHandler(make(chan *cm.Event, 4))
	if err := ev.ID.Migrate(h.channel()); err != nil {
		_ = ev.ID.Close()
		return
	}
	go func() {
		err := l.ups.begin(func(turn <-chan struct{}) error { return l.waitTurn(turn, ev.ID, h) })
		if err != nil {
			if errors.Is(err, errDialerLeft) {
				l.refuseLane(ev.ID, err, false)
			}
			_ = ev.ID.Close()
			return
		}
		if trace.IsEnabled() {
			defer traceAccept(l.id.LocalAddr()).end()
		}
		u := &arrival{patience: networkTicks}
		if !l.bringUp(ev.ID, h, &ev.Param, u) {
			l.ups.end(u)
		}
	}()
}

// bringUp answers a request, and reports whether there is a lane, which then ends u.
func (l *Listener) bringUp(id *cm.ID, h *eventHandler, first *cm.ConnParam, u *arrival) bool {
	peer, err := hello.Parse(first.PrivateData)
	if err != nil { // not one of ours: nothing is spent on it
		l.refuseLane(id, err, false)
		_ = id.Close()
		return false
	}
	e, err := l.prepare(id, h)
	if err != nil {
		l.refuseLane(id, err, false)
		_ = id.Close()
		return false
	}
	e.listener.coming = u
	u.evict = func() bool { return l.evict(e) }
	if e.p.solicited { // on this host
		u.patience = silentTicks
	}
	from := id.RemoteAddr()
	e.listener.ports.all, e.listener.ports.host = &l.clients, from.Addr().Unmap()
	if to := id.LocalAddr(); to.Addr() == from.Addr() {
		e.listener.ports.own = to.Port()
	}
	mine := e.p.hello(&l.cfg, min(l.cfg.Streams, peer.Streams), peer.Epoch, peer.Link)
	if err := mine.Match(&peer); err != nil {
		l.refuseLane(id, err, false)
		e.discard()
		return false
	}
	e.p.boundReads(first)
	if err := e.start(peer, mine.Streams, mine.Epoch); err != nil {
		l.refuseLane(id, err, false)
		e.discard()
		return false
	}
	// From here on the lane may be ended by others, but not destroyed under Accept.
	if !e.begin() {
		l.noteAnswer(e)
		return false
	}
	defer e.tasks.Done()
	if !l.add(e) {
		e.fail(net.ErrClosed)
		l.noteAnswer(e)
		return true
	}
	l.awaitFormer(e, from)
	e.mu.Lock()
	if e.err == nil && l.clients.take(e.listener.ports.host, from.Port()) {
		e.listener.ports.bound = from.Port()
	}
	if e.err == nil {
		e.listener.timer = runtimer.After(e.cfg.HandshakeTimeout, e.listener.unheard)
	}
	e.mu.Unlock()
	if err := id.Accept(&cm.ConnParam{
		PrivateData: mine.Encode(), RetryCount: uint8(max(l.cfg.Retries, 0)), RNRRetryCount: rnrRetries,
		ResponderResources: e.p.maxReads(), InitiatorDepth: e.p.maxReads(),
	}); err != nil {
		e.mu.Lock()
		if errors.Is(e.err, net.ErrClosed) { // Close has ended the lane, which has Accept fail
			err = e.err
		}
		e.mu.Unlock()
		l.refuseLane(id, err, true)
		e.fail(err)
		return true
	}
	l.noteAnswer(e)
	h.handOver(e)
	l.ups.answered(u)
	return true
}

// awaitFormer waits for the end of an earlier lane from the same port, for portPatience at most: its dialer has left
// it, which may not be taken in yet, and what is opened from the port would be refused.
func (l *Listener) awaitFormer(e *laneEnd, from netip.AddrPort) {
	if !l.clients.uses(e.listener.ports.host, from.Port()) {
		return
	}
	var former *laneEnd
	l.mu.Lock()
	for o := range l.lanes {
		if o != e && o.id.RemoteAddr() == from {
			former = o
		}
	}
	l.mu.Unlock()
	if former == nil {
		return // a place or a stream has it
	}
	patience := time.NewTimer(portPatience)
	defer patience.Stop()
	select {
	case <-former.done:
	case <-patience.C:
	}
}

// evict has a lane end that is to give way to others, and reports whether it has ended.
func (l *Listener) evict(e *laneEnd) (ended bool) {
	ended = e.listener.silent(errGaveWay)
	l.mu.Lock()
	told := e.listener.coming.gaveWay
	e.listener.coming.gaveWay = false
	l.mu.Unlock()
	if told && l.cfg.OnEvict != nil {
		l.cfg.OnEvict() // not where it is counted, under the lane's lock: it may ask for Requests
	}
	return ended
}

// add notes a lane, unless the Listener is closed or the lane has ended.
func (l *Listener) add(e *laneEnd) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return false
	}
	if e.listener.share.gone {
		return false
	}
	l.lanes[e] = struct{}{}
	l.backlog.join(e.listener.share, dialerKey{e.listener.ports.host, e.peer.Link})
	return true
}

func (l *Listener) remove(e *laneEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lanes, e)
	l.quietLanes.remove(e)
	l.acceptor.forget(e)
	l.left(e)
	if e.listener.coming.answered {
		e.listener.coming.gaveWay = l.counts.ended(e, e.err)
	} else {
		e.listener.coming.why = e.err
	}
}

// noteAnswer has the end of a lane count, as it does not while an answer that fails counts.
func (l *Listener) noteAnswer(e *laneEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.listener.coming.answered = true
	if _, stands := l.lanes[e]; !stands {
		e.listener.coming.gaveWay = l.counts.ended(e, e.listener.coming.why)
	}
}

func (l *Listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Accept returns the next stream that was opened, until ctx ends. After Close the error is
// net.ErrClosed, with ReusePort when all were returned that were opened.
func (l *Listener) Accept(ctx context.Context) (*Stream, error) {
	l.BeginAccept()
	defer l.EndAccept()
	for {
		if s, err := l.next(); s != nil || err != nil {
			return newHandle(s), err
		}
		l.Poll()
		select {
		case <-l.ready:
		case <-l.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Ready returns a channel that holds a token while there is something for TryAccept, or for Poll.
func (l *Listener) Ready() <-chan struct{} { return l.ready }

// Ended returns a channel that is closed when nothing more is opened: after Close and, with ReusePort, when
// each dialer has said that it opens no more here, or Abandon was called. TryAccept returns what was.
func (l *Listener) Ended() <-chan struct{} { return l.ended }

// TryAccept is Accept without waiting: the stream is nil if there is none.
func (l *Listener) TryAccept() (*Stream, error) {
	s, err := l.next()
	return newHandle(s), err
}

// Opened returns how many streams wait for Accept, and how many were opened so far.
func (l *Listener) Opened() (waiting int, all uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted), l.opens
}

// next takes the first stream, if there is one.
func (l *Listener) next() (*stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.accepted) == 0 {
		if l.isClosed() && len(l.leaving) == 0 {
			return nil, net.ErrClosed
		}
		return nil, nil
	}
	s := pop(&l.accepted)
	l.signal()
	s.waiting = false
	if s.wasReset {
		l.backlog.resetAccepted(s.e.listener.share)
	}
	l.backlog.accepted(s.e.listener.share)
	l.feed()
	return s, nil
}

// signal keeps the promise of ready. mu is held.
func (l *Listener) signal() {
	if len(l.accepted) > 0 {
		l.tell()
	}
}

// Close stops listening. Streams that nobody has accepted are reset; those that were stay, and
// their lanes with them. With ReusePort Accept goes on to return what was opened, until each
// dialer has said that it opens no more here; Abandon ends that.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.isClosed() {
		l.mu.Unlock()
		return net.ErrClosed
	}
	close(l.closed)
	var unaccepted []*stream
	if l.cfg.CM.ReusePort {
		l.leaving = maps.Clone(l.lanes)
		maps.DeleteFunc(l.leaving, func(e *laneEnd, _ struct{}) bool { return e.listener.share.final })
	} else {
		unaccepted, l.accepted = l.accepted, nil
	}
	l.endIfLeft()
	lanes := slices.Collect(maps.Keys(l.lanes))
	l.mu.Unlock()
	err := l.id.Close()
	for _, s := range unaccepted {
		_ = s.close(true)
	}
	for _, e := range lanes {
		e.listener.leave(!l.cfg.CM.ReusePort)
	}
	return err
}

// left records that no stream is opened on a lane any more. mu is held.
func (l *Listener) left(e *laneEnd) {
	e.listener.share.final = true
	if _, ok := l.leaving[e]; ok {
		delete(l.leaving, e)
		l.endIfLeft()
	}
}

// endIfLeft ends Accept, for when it has returned what was opened. mu is held.
func (l *Listener) endIfLeft() {
	if len(l.leaving) == 0 {
		close(l.ended)
	}
}

// Abandon ends a Listener that was closed: what nobody has accepted is reset.
func (l *Listener) Abandon() {
	l.mu.Lock()
	if !l.isClosed() {
		l.mu.Unlock()
		return
	}
	unaccepted := l.accepted
	l.accepted = nil
	if len(l.leaving) > 0 {
		l.leaving = nil
		l.endIfLeft()
	}
	l.mu.Unlock()
	for _, s := range unaccepted {
		_ = s.close(true)
	}
}

// What a lane tells its Listener.

func (l *Listener) opened(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, leaving := l.leaving[s.e]; l.isClosed() && !leaving {
		go s.close(true) // the lane's lock is held
		return
	}
	l.opens++
	l.accepted = append(l.accepted, s)
	s.waiting = true
	l.acceptor.opened(s.e)
	l.signal()
}

func (l *Listener) reset(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.waiting && !s.wasReset {
		s.wasReset = true
		l.backlog.reset(s.e.listener.share)
	}
}

// endsGivenUp is one for each client address: what one takes in is nothing to others.
func (l *Listener) endsGivenUp(e *laneEnd) *endsGivenUp {
	return l.clients.endsGivenUp(e.listener.ports.host)
}

func (l *Listener) filled(*laneEnd)   {}
func (l *Listener) used(e *laneEnd)   { l.busy(e) }
func (l *Listener) unused(e *laneEnd) { l.quiet(e) }
func (l *Listener) retired(*laneEnd)  {}
func (l *Listener) heard(e *laneEnd) {
	l.ups.end(e.listener.coming)
	if e.inUse.Load() == 0 {
		l.quiet(e)
	}
}
func (l *Listener) short(err error)      { l.reportShortage(err) }
func (l *Listener) gone(e *laneEnd)      { l.remove(e) }
func (l *Listener) destroyed(e *laneEnd) { l.ups.end(e.listener.coming) }
func (l *Listener) emptied(e *laneEnd) {
	// The dialer ends a lane that it has no use for. One that goes away ends by itself when
	// the dialer has sent its last record about it, and has heard what was refused.
	if e.listener.final && (len(e.listener.refused) == 0 || e.listener.unheeded) {
		e.failLocked(ErrLinkClosed)
		return
	}
	if e.inUse.Load() == 0 {
		l.quiet(e)
	}
}
