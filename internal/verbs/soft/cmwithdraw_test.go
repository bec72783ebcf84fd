//go:build linux && (amd64 || arm64)

package soft

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func (id *testID) withdraw() bool { return id.CMID.(driver.Withdrawer).Withdraw() }

// decisionOf is the word of an accepted id.
func decisionOf(id *testID) *uint32 { return id.qp.(*qp).in.Decision }

// TestWithdraw has a listener give a dialer up that has not confirmed.
func TestWithdraw(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	require.True(t, l.withdraw(), "it was never accepted")
	a := newActor(t)
	d := dialTo(t, a.addr)
	s, _, _ := a.accept()
	b, fds := offerOf(t, driver.ConnParam{})
	// The answer lies in the dialer's socket, of which it knows nothing yet.
	in := mapInbox(t, fds[0], b)
	require.True(t, in.Withdraw())
	require.True(t, in.Withdraw(), "that is decided")
	require.NoError(t, s.Send(b, fds))
	require.ErrorIs(t, d.next(driver.CMConnectError).Err, verbs.ErrTryAgain)
	require.Equal(t, verbs.QPErr, d.qp.State())
	buf := make([]byte, control.MaxMessage)
	_, _, err := s.Recv(buf)
	require.NoError(t, err)
	require.EqualValues(t, msgBye, buf[0], "and no RTU")
	_, _, err = s.Recv(buf)
	require.Error(t, err)

	p := play(t, l)
	c, _ := l.request()
	c.createQP()
	require.True(t, c.withdraw(), "it has not been answered")
	require.NoError(t, c.Accept(nil))
	p.rep()
	require.True(t, c.withdraw())
	require.Equal(t, shm.DecisionWithdrawn, atomic.LoadUint32(decisionOf(c)))
	c.nothing()
	honest(t, l)
}

// mapInbox maps the inbox of a REP as its owner has it.
func mapInbox(t *testing.T, fd int, rep []byte) *shm.Inbox {
	t.Helper()
	m, err := control.ParseREP(rep)
	require.NoError(t, err)
	fd, err = unix.Dup(fd)
	require.NoError(t, err)
	defer unix.Close(fd)
	o, err := shm.OpenOutbox(fd, shm.Geometry{Shift: m.Offer[2], BounceShift: m.Offer[3]})
	require.NoError(t, err)
	t.Cleanup(o.Unmap)
	return &shm.Inbox{Mapping: o.Mapping}
}

// TestConfirmedUnread has a dialer confirm whose RTU lies unread: whatever makes the
// listener give it up finds that it stands.
func TestConfirmedUnread(t *testing.T) {
	for name, giveUp := range map[string]func(id *testID){
		"withdrawn": func(id *testID) { require.False(id.t, id.withdraw()) },
		"too late":  func(id *testID) { id.CMID.(*cmID).rtuLate() },
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{HandshakeTimeout: time.Hour})
			p := play(t, l)
			a, _ := l.request()
			a.createQP()
			require.NoError(t, a.Accept(nil))
			p.rep()
			require.True(t, atomic.CompareAndSwapUint32(decisionOf(a), shm.DecisionOpen, shm.DecisionConfirmed))
			giveUp(a)
			a.next(driver.CMEstablished)
			require.False(t, a.withdraw())
			a.nothing()

			rtu := []byte{control.MsgRTU, control.WireVersion}
			require.NoError(t, p.Send(rtu, nil))
			require.Never(t, func() bool { return len(a.events) > 0 }, 300*time.Millisecond, time.Millisecond, "RTU is no news, and no lie")
			require.Equal(t, verbs.QPRTS, a.qp.State())
			require.NoError(t, p.Send(rtu, nil))
			require.ErrorIs(t, a.next(driver.CMDisconnected).Err, verbs.ErrProtocol, "twice it is")
		})
	}
}

// TestDecisionLies has dialers that do with the word what they like: each hurts itself.
func TestDecisionLies(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{HandshakeTimeout: time.Hour})
	rtu := []byte{control.MsgRTU, control.WireVersion}
	begin := func() (*player, *testID) {
		p := play(t, l)
		a, _ := l.request()
		a.createQP()
		require.NoError(t, a.Accept(nil))
		p.rep()
		return p, a
	}
	t.Run("garbage", func(t *testing.T) {
		_, a := begin()
		atomic.StoreUint32(decisionOf(a), 77)
		require.True(t, a.withdraw())
	})
	t.Run("confirmed without a word", func(t *testing.T) {
		_, a := begin()
		atomic.StoreUint32(decisionOf(a), shm.DecisionConfirmed)
		a.nothing() // nobody looks at the word without a reason
		require.False(t, a.withdraw())
		a.next(driver.CMEstablished)
	})
	t.Run("RTU without the word", func(t *testing.T) {
		p, a := begin()
		require.NoError(t, p.Send(rtu, nil))
		a.next(driver.CMEstablished)
		require.False(t, a.withdraw())
	})
	t.Run("taken back", func(t *testing.T) {
		p, a := begin()
		atomic.StoreUint32(decisionOf(a), shm.DecisionConfirmed)
		require.NoError(t, p.Send(rtu, nil))
		a.next(driver.CMEstablished)
		atomic.StoreUint32(decisionOf(a), shm.DecisionOpen)
		require.False(t, a.withdraw(), "what stands stands")
		a.CMID.(*cmID).rtuLate()
		a.nothing()
	})
	t.Run("a listener that has confirmed itself", func(t *testing.T) {
		a := newActor(t)
		d := dialTo(t, a.addr)
		s, _, _ := a.accept()
		b, fds := offerOf(t, driver.ConnParam{})
		atomic.StoreUint32(mapInbox(t, fds[0], b).Decision, shm.DecisionConfirmed)
		require.NoError(t, s.Send(b, fds))
		require.ErrorIs(t, d.next(driver.CMConnectError).Err, verbs.ErrProtocol)
	})
	honest(t, l)
}

// TestDecisionIsOne has both ends decide at the same moment, many times: they agree.
func TestDecisionIsOne(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{HandshakeTimeout: time.Hour})
	stood := 0
	const rounds = 300
	for i := range rounds {
		d := dialTo(t, l.LocalAddr())
		a, _ := l.request()
		a.createQP()
		require.NoError(t, a.Accept(nil))
		time.Sleep(time.Duration(i) * 500 * time.Nanosecond)
		if a.withdraw() {
			require.ErrorIs(t, d.next(driver.CMConnectError).Err, verbs.ErrTryAgain)
		} else {
			stood++
			a.next(driver.CMEstablished)
			d.next(driver.CMEstablished)
		}
		a.close()
		d.close()
	}
	t.Logf("%d of %d stood", stood, rounds)
}

// TestSilentHalfOpenGiveWay has a half-open dialer whose request lies unread: one that says
// nothing gives way, although it came later, and is told that it may dial again.
func TestSilentHalfOpenGiveWay(t *testing.T) {
	noLeaks(t)
	evicted := 0
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{MaxHalfOpen: 3, OnEvict: func() { evicted++ }})
	ln := listenerOf(l)
	speaks := silentDialer(t, l.LocalAddr())
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.HalfOpen == 1 })
	silent := silentDialer(t, l.LocalAddr())
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.HalfOpen == 2 })
	ln.mu.Lock() // nobody is read
	err := speaks.Send([]byte{0}, nil)
	h := ln.half.Front().Value.(*halfOpen)
	first, second := ln.evictSilent(), ln.evictSilent()
	stays := h.elem != nil
	ln.mu.Unlock()
	require.NoError(t, err)
	require.True(t, first)
	require.False(t, second, "one was silent")
	require.True(t, stays, "who has spoken stays")
	ln.tooLate(h)
	require.Zero(t, l.ListenStats().TimedOut, "and is not too late")
	require.EqualValues(t, 1, l.ListenStats().Evicted)
	require.Equal(t, 1, evicted)
	for s, want := range map[*control.Socket]driver.RejectReason{silent: control.RejectAgain, speaks: driver.RejectNone} {
		buf := make([]byte, control.MaxMessage)
		n, _, err := s.Recv(buf)
		require.NoError(t, err)
		_, reason, _, err := control.ParseREJ(buf[:n])
		require.NoError(t, err)
		require.Equal(t, want, reason)
	}
	require.EqualValues(t, 1, l.ListenStats().Malformed)
	honest(t, l)
}

// TestHalfOpenDialersWait has more half-open dialers than there may be, which have all sent something: the next
// is taken in when one was read, and none gives way.
func TestHalfOpenDialersWait(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{MaxHalfOpen: 2})
	var all []*control.Socket
	ln := listenerOf(l)
	ln.mu.Lock()
	for range 10 {
		s := silentDialer(t, l.LocalAddr())
		require.NoError(t, s.Send([]byte{0}, nil))
		all = append(all, s)
	}
	ln.mu.Unlock()
	for _, s := range all {
		_, _, err := s.Recv(make([]byte, control.MaxMessage))
		require.NoError(t, err)
	}
	waitStats(t, l, func(s driver.CMListenStats) bool { return s.Malformed == 10 })
	require.Zero(t, l.ListenStats().Evicted)
	honest(t, l)
}

// TestDialOfNoPlace has a listener without a place for the request.
func TestDialOfNoPlace(t *testing.T) {
	noLeaks(t)
	a := newActor(t)
	d := dialTo(t, a.addr)
	s, _, fds := a.accept()
	control.CloseFDs(fds)
	refuse(s, control.RejectAgain, nil)
	require.ErrorIs(t, d.next(driver.CMConnectError).Err, verbs.ErrTryAgain)
}
