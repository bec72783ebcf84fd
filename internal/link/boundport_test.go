package link

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// freeAddr is an address of the device with a port that nobody has.
func (b *bed) freeAddr() netip.AddrPort {
	b.t.Helper()
	l, err := Listen(b.links.cfg, testAddr())
	require.NoError(b.t, err)
	defer l.Close()
	return l.Addr()
}

// TestPortOfALaneThatEnds: a dial waits for its port where a lane that has ended still has it, and not where
// somebody else has.
func TestPortOfALaneThatEnds(t *testing.T) {
	needFailing(t) // it takes a port that is free on this host
	b := newBed(t, Config{})
	b.links.portPatience = patience
	to := Target{Src: b.freeAddr(), Dst: b.l.Addr()}
	holder, err := cm.NewHandlerChannel(func(*cm.Event) {}).CreateID(b.links.cfg.CM)
	require.NoError(t, err)
	require.NoError(t, holder.Resolve(b.ctx(), to.Src, to.Dst))
	dial := func(ctx context.Context) <-chan error { return b.dialFrom(ctx, to) }
	require.ErrorIs(t, <-dial(b.ctx()), syscall.EADDRINUSE)

	stands := &linkLane{l: b.links, link: &link{target: to}, busy: true, dropped: true}
	stands.binds()
	close(stands.unbound) // a dial that waited for it would go on for ever
	require.ErrorIs(t, <-dial(b.ctx()), syscall.EADDRINUSE)
	stands.unbound = make(chan struct{})
	stands.unbind()

	k := &linkLane{l: b.links, link: &link{target: to}, busy: true, ended: true}
	k.binds()
	short, stop := context.WithTimeout(b.ctx(), 10*time.Millisecond)
	defer stop()
	require.ErrorIs(t, <-dial(short), context.DeadlineExceeded)
	waits := dial(b.ctx())
	requireWaits(t, waits)
	require.NoError(t, holder.Close())
	k.unbind()
	require.NoError(t, <-waits)
	require.NoError(t, b.accept().Close())
	b.awaitUnbound()
}

// longFreeAddr is freeAddr for which the software device does not wait: as it does, for a second, for a port that
// this process has just left.
func (b *bed) longFreeAddr() netip.AddrPort {
	addr := b.freeAddr()
	time.Sleep(1100 * time.Millisecond)
	return addr
}

// dialFrom dials to and closes what it gets.
func (b *bed) dialFrom(ctx context.Context, to Target) <-chan error {
	done := make(chan error, 1)
	go func() {
		s, err := b.links.Dial(ctx, to)
		if err == nil {
			err = s.Close()
		}
		done <- err
	}()
	return done
}

// requireWaits sees that a dial does not return yet.
func requireWaits(t *testing.T, dial <-chan error) {
	t.Helper()
	select {
	case err := <-dial:
		require.Fail(t, "the dial did not wait", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
}

// TestPortOfADialThatIsGivenUp: the port that a program has bound is free again as soon as its dial has
// returned, although what that has made is destroyed later.
func TestPortOfADialThatIsGivenUp(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{CM: cm.Options{Device: failing.Name()}})
	b.links.portPatience = patience
	left, leave := context.WithCancel(b.ctx())
	defer leave()
	silent, err := cm.NewHandlerChannel(func(ev *cm.Event) {
		t.Cleanup(func() { _ = ev.ID.Close() })
		leave() // the dial has its port
	}).CreateID(b.links.cfg.CM)
	require.NoError(t, err)
	defer silent.Close()
	require.NoError(t, silent.BindAddr(testAddr()))
	require.NoError(t, silent.Listen(1))
	src := b.longFreeAddr()
	destroyed := make(chan struct{})
	destroy := sync.OnceFunc(func() { close(destroyed) })
	defer destroy()
	failing.OnClose(func() error {
		<-destroyed
		return nil
	})
	defer failing.OnClose(nil)
	_, err = b.links.Dial(left, Target{Src: src, Dst: silent.LocalAddr()})
	require.ErrorIs(t, err, context.Canceled)
	waits := b.dialFrom(b.ctx(), Target{Src: src, Dst: b.l.Addr()})
	requireWaits(t, waits)
	destroy()
	require.NoError(t, <-waits)
	require.NoError(t, b.accept().Close())
	b.awaitUnbound()
}

// TestPortOfALaneThatIsLeft: a listener that has left leaves no port in use. A dial that finds its lane taking
// no more streams waits for the end of that.
func TestPortOfALaneThatIsLeft(t *testing.T) {
	needFailing(t)
	mostlyWaits(t)
	b := newBed(t, Config{Idle: time.Minute})
	b.links.portPatience = patience
	to := Target{Src: b.longFreeAddr(), Dst: b.l.Addr()}
	client, err := b.links.Dial(b.ctx(), to)
	require.NoError(t, err)
	e := client.now().e
	server := b.accept()
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	require.Eventually(t, func() bool { return e.taken.Load() == 0 }, patience, time.Millisecond)
	e.mu.Lock() // it cannot end yet
	e.retire()  // as the listener has it
	waits := b.dialFrom(b.ctx(), to)
	requireWaits(t, waits)
	e.mu.Unlock()
	require.NoError(t, <-waits)
	require.NoError(t, b.accept().Close())
}

// awaitUnbound waits until no lane has a port that was bound.
func (b *bed) awaitUnbound() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		b.links.mu.Lock()
		defer b.links.mu.Unlock()
		return len(b.links.bound) == 0
	}, patience, time.Millisecond)
}

// TestPortOfAFailedLane: the port that a program has bound is free as soon as a call has told it that the
// connection has failed, although what the lane had is destroyed later.
func TestPortOfAFailedLane(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{})
	b.links.portPatience = patience
	to := Target{Src: b.freeAddr(), Dst: b.l.Addr()}
	for range 100 {
		client, err := b.links.Dial(b.ctx(), to)
		require.NoError(t, err)
		server := b.accept()
		say(t, client, server)
		server.now().e.fail(errors.New("the peer fails"))
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
	b.awaitUnbound()
}

// TestPortOfAStreamThatTheServerHas: a server that has not closed a connection which has ended is no hindrance
// to the next one from the port that the client has bound, as over TCP. What it closes later takes nothing of that.
func TestPortOfAStreamThatTheServerHas(t *testing.T) {
	needFailing(t)
	for name, end := range map[string]func(t *testing.T, client, server *Stream){
		"reset":  func(t *testing.T, client, _ *Stream) { require.NoError(t, client.Reset()) },
		"closed": func(t *testing.T, client, _ *Stream) { require.NoError(t, client.Close()) },
		"shut both ways": func(t *testing.T, client, server *Stream) {
			require.NoError(t, server.CloseWrite())
			require.NoError(t, client.CloseWrite())
			require.NoError(t, client.Close())
		},
		"failed": func(t *testing.T, client, server *Stream) {
			server.now().e.fail(errors.New("the lane fails"))
			require.NoError(t, client.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Config{Idle: patience})
			to := Target{Src: b.freeAddr(), Dst: b.l.Addr()}
			client, err := b.links.Dial(b.ctx(), to)
			require.NoError(t, err)
			server := b.accept()
			say(t, client, server)
			end(t, client, server)

			second, err := b.links.Dial(b.ctx(), to)
			require.NoError(t, err)
			accepted := b.accept()
			require.Equal(t, to.Src.String(), accepted.RemoteAddr().String())
			require.NoError(t, server.Close())
			say(t, second, accepted)
			require.False(t, b.l.clients.take(to.Src.Addr(), to.Src.Port()), "the port is free beside its stream")
			require.NoError(t, second.Close())
			require.NoError(t, accepted.Close())
		})
	}
}

// TestPlaceOfADialThatWaitsForItsPort: a dial that waits for the end of the stream which has its port asks for no
// other place while there is one for it, and asks again if the listener has had that back meanwhile.
func TestPlaceOfADialThatWaitsForItsPort(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{Idle: patience})
	p := newWirePeer(t, lane.RoleListener, wireConfig{device: b.l.cfg.CM.Device})
	to := Target{Src: b.freeAddr(), Dst: p.listen()}
	dial := func() <-chan dialled {
		done := make(chan dialled, 1)
		go func() {
			s, err := b.links.Dial(b.ctx(), to)
			done <- dialled{s, err}
		}()
		return done
	}
	hears := func(k lane.Kind) {
		t.Helper()
		m := p.hear()
		for m.Type != lane.TypeControl {
			m = p.hear()
		}
		require.Equal(t, k, m.record.Kind)
	}
	first := dial()
	p.request()
	p.accept()
	s := p.serve(1)
	d := <-first
	require.NoError(t, d.err)
	require.NoError(t, d.s.Close())
	hears(lane.KindClose)

	second := dial()
	hears(lane.KindWant)
	p.grant(2)
	p.say(lane.Record{Kind: lane.KindRecall, Count: 1})
	hears(lane.KindRelease)
	p.say(lane.Record{Kind: lane.KindClose, Stream: s.id})
	hears(lane.KindWant)
	s = p.serve(1)
	d = <-second
	require.NoError(t, d.err)
	require.NoError(t, d.s.Close())
	hears(lane.KindClose)
	p.say(lane.Record{Kind: lane.KindClose, Stream: s.id})
}

// TestPortOfALaneThatTheServerHas: a listener that has not taken in yet that a client has left its lane waits for that
// before it has another lane from the port that the client has bound, whose streams it would refuse.
func TestPortOfALaneThatTheServerHas(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{Idle: patience})
	b.links.portPatience = patience
	to := Target{Src: b.freeAddr(), Dst: b.l.Addr()}
	client, err := b.links.Dial(b.ctx(), to)
	require.NoError(t, err)
	server := b.accept()
	say(t, client, server)
	e := server.now().e
	e.mu.Lock()
	client.now().e.fail(errors.New("the client leaves"))
	require.NoError(t, client.Close())
	b.awaitUnbound()
	second := make(chan dialled, 1)
	go func() {
		s, err := b.links.Dial(b.ctx(), to)
		second <- dialled{s, err}
	}()
	time.Sleep(50 * time.Millisecond) // as good as any time below portPatience
	e.mu.Unlock()
	d := <-second
	require.NoError(t, d.err)
	accepted := b.accept()
	require.Equal(t, to.Src.String(), accepted.RemoteAddr().String())
	say(t, d.s, accepted)
	require.NoError(t, d.s.Close())
}
