//go:build linux && (amd64 || arm64)

package soft

import (
	"bytes"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// linePair makes a connection to l over which both ends know of each other's memory.
func linePair(t *testing.T, l *testID) (d, a *dataEnd) {
	t.Helper()
	d = dialData(t, unbuilt(t, l.LocalAddr()))
	a = acceptData(t, l)
	d.meet(d.next(verbs.CMEstablished).Param.PrivateData)
	a.next(verbs.CMEstablished)
	return d, a
}

// destroy ends an end in the order of verbs, the id last.
func (e *dataEnd) destroy() {
	e.t.Helper()
	_ = e.Disconnect()
	require.NoError(e.t, e.qp.Close())
	require.NoError(e.t, e.cq.Close())
	require.NoError(e.t, e.ch.Close())
	require.NoError(e.t, e.mr.Close())
	require.NoError(e.t, e.mem.Close())
	require.NoError(e.t, e.CMID.Close())
}

// idle is how many lines of the process's dialers carry no connection.
func (p *linePool) idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lines)
}

func (l *listener) restingLines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resting.Len()
}

func listenerOf(id *testID) *listener { return id.CMID.(*cmID).listen }

// noLines sees that no line of an earlier test is left.
func noLines(t *testing.T) {
	t.Helper()
	idleLines.late.expire()
	require.True(t, until(func() bool { return idleLines.idle() == 0 }))
}

// endBoth ends a connection and waits until its line is idle.
func endBoth(t *testing.T, first, second *dataEnd) {
	t.Helper()
	first.destroy()
	second.next(verbs.CMDisconnected)
	second.destroy()
	require.True(t, until(func() bool { return idleLines.idle() > 0 }), "the line is not idle")
}

// descriptors are the files behind what an end shows its peer.
func (e *dataEnd) descriptors() [3]int {
	return [3]int{e.qp.(*qp).in.fd, e.ch.(*compChannel).fd, e.mem.(*memory).fd}
}

// TestLine has connections come one after the other on one line. None finds anything
// of those before it, whoever ends them and whatever was left unread.
func TestLine(t *testing.T) { bothWays(t, testLine) }

func testLine(t *testing.T) {
	noLeaks(t)
	noLines(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	var local string
	var before [2][3]int
	for round := range 20 {
		d, a := linePair(t, l)
		now := [2][3]int{d.descriptors(), a.descriptors()}
		if round > 0 {
			require.NotEqual(t, local, d.LocalAddr().String(), "servers tell connections apart by the port")
			require.Equal(t, before, now, "what the peer knows is used again")
		}
		local, before = d.LocalAddr().String(), now
		require.Equal(t, local, a.RemoteAddr().String())
		for _, e := range []*dataEnd{d, a} {
			var wc [1]verbs.WC
			n, err := e.cq.Poll(wc[:])
			require.NoError(t, err)
			require.Zero(t, n, "round %d: %+v", round, wc)
			require.Equal(t, make([]byte, dataSize), e.mem.Bytes()[:dataSize], "memory of an earlier connection")
		}
		if round%4 < 2 {
			done := make(chan error, 2)
			go func() { done <- a.exchange(100) }()
			go func() { done <- d.exchange(100) }()
			require.NoError(t, <-done)
			require.NoError(t, <-done)
		}
		// Nobody takes these, and there are as many as go into the queues.
		for _, e := range []*dataEnd{d, a} {
			for range dataSlots {
				_, err := e.qp.PostSend([]verbs.SendWR{{
					Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline, Inline: bytes.Repeat([]byte{0xee}, dataSlot),
					ImmData: 77, RKey: e.peer.rkey, RemoteAddr: e.peer.addr,
				}})
				if err != nil {
					require.ErrorIs(t, err, verbs.ErrQueueFull)
				}
			}
		}
		if round%2 == 0 {
			endBoth(t, d, a)
		} else {
			endBoth(t, a, d)
		}
	}
}

// TestLineStandsWithREP has the acceptor write before the dialer has read that it was
// accepted: on a line nothing more has to come from it.
func TestLineStandsWithREP(t *testing.T) {
	noLeaks(t)
	noLines(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	d, a := linePair(t, l)
	endBoth(t, d, a)

	d = dialData(t, unbuilt(t, l.LocalAddr()))
	dialer := &d.CMID.(*cmID).mu // which it needs for what follows the answer
	dialer.Lock()
	letGo := sync.OnceFunc(dialer.Unlock)
	defer letGo()
	a = acceptData(t, l)
	a.next(verbs.CMEstablished)
	_, err := a.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte("early"),
		ImmData: 7, RKey: a.peer.rkey, RemoteAddr: a.peer.addr,
	}})
	require.NoError(t, err)
	var wc [1]verbs.WC
	n, err := a.cq.Poll(wc[:])
	require.NoError(t, err)
	require.Equal(t, 1, n, "it waits for the dialer")
	require.Equal(t, verbs.WCSuccess, wc[0].Status)
	d.nothing()
	letGo()

	d.next(verbs.CMEstablished)
	n, err = d.cq.Poll(wc[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.EqualValues(t, 7, wc[0].ImmData)
	require.Equal(t, "early", string(d.mem.Bytes()[:wc[0].ByteLen]))
	endBoth(t, a, d)
}

// TestLineIsDropped has one end let go of an idle line: the next dial makes another
// connection.
func TestLineIsDropped(t *testing.T) {
	noLeaks(t)
	noLines(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	d, a := linePair(t, l)
	endBoth(t, d, a)
	listening := listenerOf(l)
	require.True(t, until(func() bool { return listening.restingLines() == 1 }))
	listening.mu.Lock()
	listening.wakeLine(listening.resting.Front()).sock.close()
	listening.mu.Unlock()
	d, a = linePair(t, l)
	require.Equal(t, d.LocalAddr(), a.RemoteAddr())
	done := make(chan error, 2)
	go func() { done <- a.exchange(100) }()
	go func() { done <- d.exchange(100) }()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	endBoth(t, d, a)

	// A listener that is closed is not found by way of a line either.
	l.Close()
	require.Zero(t, listening.restingLines())
	d = dialData(t, unbuilt(t, l.LocalAddr()))
	require.Equal(t, verbs.RejectNoService, d.next(verbs.CMRejected).Reason)
}

// TestLineOfASlowPeer has the acceptor end the connection and not destroy its end: the
// next dial does not wait for that.
func TestLineOfASlowPeer(t *testing.T) {
	noLeaks(t)
	noLines(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	d, a := linePair(t, l)
	require.NoError(t, a.Disconnect())
	d.next(verbs.CMDisconnected)
	d.destroy()
	require.Zero(t, idleLines.idle())
	d2, a2 := linePair(t, l)
	require.NotEqual(t, d.LocalAddr(), d2.LocalAddr())
	a.destroy()
	endBoth(t, d2, a2)
}

// TestLineGivesUpTooLate has the peer be done just when the wait for it has run out: that
// is not the end of the next connection.
func TestLineGivesUpTooLate(t *testing.T) {
	noLeaks(t)
	noLines(t)
	s, peer, err := socketPair()
	require.NoError(t, err)
	defer peer.close()
	ln := &line{dev: soft0, sock: s, agreed: true, src: netip.MustParseAddrPort("127.0.0.1:1"), dst: netip.MustParseAddrPort("127.0.0.1:2")}
	s.line = ln
	defer s.close()
	ln.done(true)
	e := ln.lingers
	lingering.remove(e) // as the timer does before it runs what is due
	ln.peerDone()
	require.Same(t, ln, idleLines.take(soft0, ln.src.Addr(), ln.dst, &verbs.CMOptions{AnyUser: true}))
	e.f()
	require.NoError(t, s.signal(msgUp), "it was hung up")
	require.False(t, ln.spoiled)
}

// TestSpoiledLines has connections end otherwise than in good order, or after what a
// peer cannot keep: their lines end with them.
func TestSpoiledLines(t *testing.T) {
	noLeaks(t)
	noLines(t)
	for name, spoil := range map[string]func(d, a *dataEnd){
		"MR closed": func(d, a *dataEnd) { require.NoError(t, a.mr.Close()) },
		"MR invalidated": func(d, a *dataEnd) {
			_, err := d.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSendWithInv, ImmData: d.peer.rkey}})
			require.NoError(t, err)
		},
		"access error": func(d, a *dataEnd) {
			_, err := d.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: make([]byte, 8), RKey: d.peer.rkey}})
			require.NoError(t, err)
		},
		"id closed before its QP": func(d, a *dataEnd) { require.NoError(t, d.CMID.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			noLines(t)
			l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
			d, a := linePair(t, l)
			spoil(d, a)
			for _, e := range []*dataEnd{d, a} {
				_ = e.Disconnect()
				e.qp.Close()
				e.cq.Close()
				e.ch.Close()
				e.mr.Close()
				e.mem.Close()
				e.CMID.Close()
			}
			require.True(t, until(func() bool { return d.CMID.(*cmID).sock.line.isClosed() && a.CMID.(*cmID).sock.line.isClosed() }))
			require.Zero(t, d.CMID.(*cmID).sock.line.uses+a.CMID.(*cmID).sock.line.uses, "it was idle")
			d, a = linePair(t, l)
			endBoth(t, d, a)
		})
	}
}

func (ln *line) isClosed() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.closed
}

// TestLinesAreBounded has more connections at once than lines are kept.
func TestLinesAreBounded(t *testing.T) {
	noLeaks(t)
	noLines(t)
	const n = maxIdleLines + 20
	l := listenAt(t, "127.0.0.1:0", n, verbs.CMOptions{})
	var ends [][2]*dataEnd
	for range n {
		d, a := linePair(t, l)
		ends = append(ends, [2]*dataEnd{d, a})
	}
	for _, e := range ends {
		e[0].destroy()
		e[1].next(verbs.CMDisconnected)
		e[1].destroy()
		require.LessOrEqual(t, idleLines.idle(), maxIdleLines)
		require.LessOrEqual(t, listenerOf(l).restingLines(), maxIdleLines)
	}
	require.True(t, until(func() bool { return idleLines.idle() == maxIdleLines && listenerOf(l).restingLines() == maxIdleLines }))
}

// TestLinesExpire sees that either end lets go by itself of a line that nobody wants, and the
// dialer of the port of its connection.
func TestLinesExpire(t *testing.T) {
	noLeaks(t)
	noLines(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	soon := func(list *timeoutList) { t.Cleanup(func() { list.setAfter(time.Hour) }); list.setAfter(lineIdle) }

	soon(&listenerOf(l).unused)
	d, a := linePair(t, l)
	kept := a.CMID.(*cmID).sock.line
	endBoth(t, d, a)
	require.True(t, until(kept.isClosed))
	require.Zero(t, listenerOf(l).restingLines())

	soon(&idleLines.late)
	soon(&idlePorts.late)
	noLines(t)
	d, a = linePair(t, l)
	kept, local := d.CMID.(*cmID).sock.line, d.LocalAddr()
	d.destroy()
	a.next(verbs.CMDisconnected)
	a.destroy()
	require.True(t, until(kept.isClosed))
	require.True(t, until(func() bool {
		taken, err := nameTaken(dialerName(soft0.name, local))
		require.NoError(t, err)
		return !taken
	}))
}

// TestREQForAnotherLine has a dialer ask on its line for what is not its own.
func TestREQForAnotherLine(t *testing.T) {
	noLeaks(t)
	for name, spoil := range map[string]func(m *connMsg){
		"destination": func(m *connMsg) { m.dst = addrPlus(m.dst) },
		"source":      func(m *connMsg) { m.src = addrPlus(m.src) }, // a port that nobody has
		"host":        func(m *connMsg) { m.src = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), m.src.Port()) },
		"not to keep": func(m *connMsg) { m.keep = false },
	} {
		t.Run(name, func(t *testing.T) {
			noLines(t)
			l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
			d, a := linePair(t, l)
			endBoth(t, d, a)
			ln := idleLines.take(soft0, d.RemoteAddr().Addr(), d.RemoteAddr(), &verbs.CMOptions{})
			require.NotNil(t, ln)
			defer ln.sock.close()
			m := connMsg{src: ln.src, dst: ln.dst, keep: true}
			spoil(&m)
			malformed := l.ListenStats().Malformed
			require.NoError(t, ln.sock.send(appendREQ(nil, &m), nil))
			waitStats(t, l, func(s verbs.CMListenStats) bool { return s.Malformed == malformed+1 })
			l.nothing()
		})
	}
}

// TestREQOfADeadDialer: whoever has gone since it asked, and its port with it, has not
// broken the protocol.
func TestREQOfADeadDialer(t *testing.T) {
	noLeaks(t)
	noLines(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	for try := 0; ; try++ {
		d, a := linePair(t, l)
		endBoth(t, d, a)
		ln := idleLines.take(soft0, d.RemoteAddr().Addr(), d.RemoteAddr(), &verbs.CMOptions{})
		require.NotNil(t, ln)
		before := l.ListenStats()
		m := connMsg{src: addrPlus(ln.src), dst: ln.dst, keep: true}
		require.NoError(t, ln.sock.send(appendREQ(nil, &m), nil))
		ln.sock.close()
		waitStats(t, l, func(s verbs.CMListenStats) bool { return s.Hangup+s.Requests == before.Hangup+before.Requests+1 })
		after := l.ListenStats()
		require.Equal(t, before.Malformed, after.Malformed)
		if after.Requests == before.Requests {
			l.nothing()
			return
		}
		require.Less(t, try, 10, "the listener is always there before the dialer is dead")
		req, _ := l.request()
		req.close()
	}
}

func addrPlus(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), a.Port()^1) }

// TestOldOffersRefused opens offers of what was never given, or is of another shape.
func TestOldOffersRefused(t *testing.T) {
	in, err := newInbox(16)
	require.NoError(t, err)
	defer in.close()
	out, err := openOutbox(in.fd, in.geometry, 0)
	require.NoError(t, err)
	kept := &line{agreed: true, peer: &keptPeer{out: *out}}
	other := in.geometry
	other.shift++
	for name, c := range map[string]struct {
		ln    *line
		flags byte
		g     geometry
		mrs   []mrOffer
	}{
		"inbox without a line":   {nil, offerOldInbox, in.geometry, nil},
		"inbox on a fresh line":  {&line{}, offerOldInbox, in.geometry, nil},
		"eventfd without a line": {nil, offerOldInbox | offerEvent | offerOldEvent, in.geometry, nil},
		"eventfd never given":    {kept, offerOldInbox | offerEvent | offerOldEvent, in.geometry, nil},
		"inbox of another shape": {kept, offerOldInbox, other, nil},
		"memory never given":     {kept, offerOldInbox | offerOldMemory, in.geometry, []mrOffer{{key: 1, size: 4096}}},
		"memory without an MR":   {kept, offerOldInbox | offerOldMemory, in.geometry, nil},
	} {
		b := make([]byte, offerHeader)
		b[0], b[1], b[2], b[3], b[8] = offerVersion, c.flags, c.g.shift, c.g.bounceShift, byte(len(c.mrs))
		for _, o := range c.mrs {
			b = o.append(b)
		}
		if c.ln == kept {
			again, err := openOutbox(in.fd, in.geometry, 0)
			require.NoError(t, err)
			kept.peer.unmap()
			kept.peer = &keptPeer{out: *again}
		}
		_, err := openOffer(b, nil, c.ln)
		require.ErrorIs(t, err, verbs.ErrProtocol, name)
		require.Nil(t, kept.peer.mapped(c.ln == kept), name)
	}
	kept.free()
}

// mapped is what is still mapped of a kept peer that an offer was opened for.
func (k *keptPeer) mapped(opened bool) []byte {
	if k == nil || !opened {
		return nil
	}
	return k.out.data
}

// TestLineTrims has the memory of a connection grow by what the peer wrote: that is given
// back when the line is idle, and what was not used more is kept as it is.
func TestLineTrims(t *testing.T) {
	noLeaks(t)
	noLines(t)
	m, err := newMemory(soft0.sharedContext(), 64*pageSize, pageSize)
	require.NoError(t, err)
	soft0.sharedContext().mems.remove(m)
	defer func() { require.NoError(t, m.free()) }()
	m.sharing.known = true
	require.NoError(t, m.trim())
	require.True(t, m.sharing.known)
	m.data[40*pageSize] = 1
	require.NoError(t, m.trim())
	require.False(t, m.sharing.known, "the peer takes for backed what is not")
	require.Equal(t, pageSize, backing(t, m.fd))
	require.Zero(t, m.data[40*pageSize])
}

// TestLineWhileRung has the peer be woken while the connection ends: what is kept of it is
// complete.
func TestLineWhileRung(t *testing.T) {
	noLeaks(t)
	noLines(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	d, a := linePair(t, l)
	q := d.CMID.(*cmID).qp
	q.mu.Lock()
	door := q.peer.door
	door.hold()
	q.mu.Unlock()
	endBoth(t, d, a)
	require.EqualValues(t, 1, idleLines.idle())
	require.True(t, door.ring())
	door.release()
	d, a = linePair(t, l)
	require.Same(t, door, d.CMID.(*cmID).qp.peer.door)
	endBoth(t, d, a)
}

// TestLineAfterTheEnd has a link asked to say something when its connection is over, by the
// peer's end first: it is silent, as the line is the next connection's.
func TestLineAfterTheEnd(t *testing.T) {
	noLeaks(t)
	noLines(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	d, a := linePair(t, l)
	q := d.CMID.(*cmID).qp
	q.mu.Lock()
	over := q.link
	q.mu.Unlock()
	endBoth(t, a, d)
	over.tell(0xff) // which no peer takes
	require.True(t, over.sayBye(), "the end is said once")
	d, a = linePair(t, l)
	require.EqualValues(t, 1, d.CMID.(*cmID).sock.line.use(), "it is another line")
	endBoth(t, d, a)
}

// TestLineDoesNotWaitToSay has a line end its connection while somebody else is in the
// middle of a send that waits for the peer: nobody waits for that under the line's lock.
func TestLineDoesNotWaitToSay(t *testing.T) {
	noLeaks(t)
	for name, end := range map[string]func(*line){
		"bye":   func(ln *line) { require.False(t, ln.sayBye()) },
		"done":  func(ln *line) { ln.done(true) },
		"ready": func(ln *line) { ln.listener = new(listener); ln.done(true) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, busy := range []bool{true, false} {
				s, peer, err := socketPair()
				require.NoError(t, err)
				defer peer.close()
				ln := &line{dev: soft0, sock: s, agreed: true}
				s.line = ln
				defer s.close()
				if busy { // by a send that waits
					s.sendMu.Lock()
					defer s.sendMu.Unlock()
				} else {
					fillSocket(t, s)
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					end(ln)
				}()
				select {
				case <-ended:
				case <-time.After(30 * time.Second):
					t.Fatal("it waits for the peer")
				}
				require.True(t, ln.spoiled, "what was not said cannot be heard")
			}
		})
	}
}

// fillSocket leaves no room in a socket whose peer does not read.
func fillSocket(t *testing.T, s *socket) {
	t.Helper()
	var err error
	for _, msg := range [][]byte{make([]byte, maxMessage), {1}} {
		for err = nil; err == nil; {
			err = s.try(msg)
		}
		require.ErrorIs(t, err, unix.EAGAIN)
	}
}
