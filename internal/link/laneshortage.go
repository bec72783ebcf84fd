package link

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// errDialerLeft is a dialer that left before there was a lane for it.
var errDialerLeft = errors.New("link: the dialer left before it was answered")

// prepare is newLaneEnd for a dialer, who waits as long as there is nothing to make it of.
func (l *Listener) prepare(id *cm.ID, h *eventHandler) (e *laneEnd, err error) {
	err = l.shortages.Serve(id.HoldsDescriptor, func() (err error) {
		e, err = newLaneEnd(&l.cfg, lane.RoleListener, id, l)
		return err
	}, l.reportShortage, func(turn <-chan struct{}) error { return l.waitTurn(turn, id, h) })
	return e, err
}

// waitTurn waits until a dialer may have its lane brought up, or is to be tried again. It fails with errDialerLeft,
// shortage.ErrGivenBack or net.ErrClosed.
func (l *Listener) waitTurn(turn <-chan struct{}, id *cm.ID, h *eventHandler) error {
	left := make(chan struct{})
	defer id.OnLeave(func() { close(left) })()
	select {
	case _, mine := <-turn:
		switch {
		case !mine:
			return shortage.ErrGivenBack
		case !id.Waits():
			return errDialerLeft
		}
		return nil
	case <-left:
		return errDialerLeft
	case ev := <-h.setup:
		return fmt.Errorf("%w: %v", errDialerLeft, ev)
	case <-l.closed:
		return net.ErrClosed
	}
}

// reportShortage reports that dialers have to wait, for a lane or for places.
func (l *Listener) reportShortage(err error) {
	if l.cfg.OnShortage != nil {
		l.cfg.OnShortage(err)
		return
	}
	level := slog.LevelDebug
	if l.shortages.Tell(err) {
		level = slog.LevelWarn
	}
	asynclog.Log(l.cfg.logger(), level, "link: no resources, dialers wait", "listener", l.Addr(), "err", err)
}

// refuseLane refuses a dialer for whom no lane could be made. Answered says that Accept has failed.
func (l *Listener) refuseLane(id *cm.ID, err error, answered bool) {
	level := slog.LevelDebug
	if shortage.Is(err) {
		l.reportShortage(err) // prepare, which has the dialer wait, does not fail by that
	}
	left := errors.Is(err, errDialerLeft) || errors.Is(err, verbs.ErrPeerGone)
	if !left && refusal(err) == cm.RefusedFailure {
		level = slog.LevelWarn
	}
	// What is counted stays so. Who was not answered and is there knows of the refusal only when it is counted;
	// whether Reject reaches a dialer behind an Accept that has failed is not known before. If that was by a
	// shortage, some devices have told the dialer.
	switch {
	case left, !answered && id.State() != cm.StateRequest:
		l.count(&l.counts.Failed)
	case !answered:
		l.count(&l.counts.Refused)
		refuse(id, err)
	case refuse(id, err), shortage.Is(err):
		l.count(&l.counts.Refused)
	default:
		l.count(&l.counts.Failed)
	}
	asynclog.Log(l.cfg.logger(), level, "link: no lane for a dialer", "from", id.RemoteAddr(), "err", err)
}

// count adds a request that has got no lane to one of the counts.
func (l *Listener) count(n *uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*n++
}

// refusal is the code by which a dialer learns why there is no lane for it.
func refusal(why error) cm.RefusalCode {
	switch {
	case errors.Is(why, cm.ErrVersion):
		return cm.RefusedVersion
	case errors.Is(why, hello.ErrMalformed):
		return cm.RefusedMalformed
	case errors.Is(why, cm.ErrNoChecksum):
		return cm.RefusedChecksum
	case errors.Is(why, net.ErrClosed):
		return cm.RefusedShutdown
	case errors.Is(why, shortage.ErrGivenBack), shortage.Is(why):
		return cm.RefusedResources // it may be asked again
	}
	return cm.RefusedFailure
}

// refuse tells a dialer why there is no lane for it, and reports whether it was still there.
func refuse(id *cm.ID, why error) bool {
	r := cm.NewRefusal(refusal(why), why.Error())
	if r.Code == cm.RefusedVersion {
		r.Text = "update the older one" // the refusal has the versions, and "this end" is another one there
	}
	private, err := r.MarshalBinary()
	if err == nil {
		err = id.Reject(private)
	}
	return err == nil
}
