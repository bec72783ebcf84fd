//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

// idleLine is a line to l that carries no connection, in the hands of a peer that says
// on it what it wants.
func idleLine(t *testing.T, l *testID) *line {
	t.Helper()
	d, a := linePair(t, l)
	endBoth(t, d, a)
	var ln *line
	require.True(t, until(func() bool {
		ln = idleLines.take(soft0, d.RemoteAddr().Addr(), d.RemoteAddr(), &verbs.CMOptions{})
		return ln != nil
	}))
	require.True(t, until(func() bool { return listenerOf(l).restingLines() == 1 }))
	t.Cleanup(func() { ln.sock.close() })
	return ln
}

// holdPort gives a line's next connection a port of its own, as an honest dialer does.
func holdPort(t *testing.T, ln *line) netip.AddrPort {
	t.Helper()
	s, src := socketAt(t, ln.src.Addr())
	t.Cleanup(func() { s.close() })
	return src
}

// socketAt is a socket with the name of an ephemeral port.
func socketAt(t *testing.T, addr netip.Addr) (*socket, netip.AddrPort) {
	t.Helper()
	fd, src, err := bindEphemeral(soft0.name, addr, netip.AddrPort{})
	require.NoError(t, err)
	s, err := newSocket(fd)
	require.NoError(t, err)
	return s, src
}

// requireHungUp sees that the other end of s is gone, or says REJ first.
func requireHungUp(t *testing.T, s *socket) {
	t.Helper()
	require.NoError(t, s.setReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, maxMessage)
	n, fds, err := s.recv(buf)
	closeFDs(fds)
	if err == nil {
		require.Equal(t, byte(msgREJ), buf[0], "%x", buf[:n])
		_, _, err = s.recv(buf)
	}
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestHostileLineMessages has a peer say on an idle line what is no request for it: the
// line is gone, nobody hears of it, and others are served.
func TestHostileLineMessages(t *testing.T) {
	noLeaks(t)
	request := func(ln *line) []byte {
		return appendREQ(nil, &connMsg{src: ln.src, dst: ln.dst, keep: true})
	}
	for name, say := range map[string]func(t *testing.T, ln *line) (msg []byte, fds int){
		"text":            func(*testing.T, *line) ([]byte, int) { return []byte("GET / HTTP/1.1\r\n\r\n"), 0 },
		"the end":         func(*testing.T, *line) ([]byte, int) { return []byte{msgBye}, 0 },
		"the end, done":   func(*testing.T, *line) ([]byte, int) { return []byte{msgReady}, 0 },
		"a kick":          func(*testing.T, *line) ([]byte, int) { return []byte{msgKick}, 0 },
		"a confirmation":  func(*testing.T, *line) ([]byte, int) { return []byte{msgRTU, wireVersion}, 0 },
		"share":           func(*testing.T, *line) ([]byte, int) { return []byte{msgSHARE, wireVersion}, 0 },
		"half a request":  func(_ *testing.T, ln *line) ([]byte, int) { return request(ln)[:20], 0 },
		"a newer request": func(_ *testing.T, ln *line) ([]byte, int) { return append([]byte{msgREQ, 9}, request(ln)[2:]...), 0 },
		"descriptors":     func(*testing.T, *line) ([]byte, int) { return []byte{1}, maxFDs },
		"more than a line takes": func(*testing.T, *line) ([]byte, int) {
			return make([]byte, maxLinkMsg+1), 0
		},
		"its first request, for another host": func(_ *testing.T, ln *line) ([]byte, int) {
			return appendREQ(nil, &connMsg{src: netip.MustParseAddrPort("127.0.0.2:7"), dst: ln.dst, keep: true}), 0
		},
		"a port that nobody has": func(_ *testing.T, ln *line) ([]byte, int) {
			return appendREQ(nil, &connMsg{src: addrPlus(ln.src), dst: ln.dst, keep: true}), 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
			ln := idleLine(t, l)
			msg, n := say(t, ln)
			fds := make([]int, n)
			for i := range fds {
				fds[i] = eventfd(t, 0)
			}
			require.NoError(t, ln.sock.send(msg, fds))
			closeFDs(fds)
			requireHungUp(t, ln.sock)
			require.True(t, until(func() bool { return listenerOf(l).restingLines() == 0 }))
			l.nothing()
			honest(t, l)
		})
	}
}

// TestHostileLineOffers has a peer ask on its line for a connection with an offer that
// claims what was never given, or changes what was: the accept fails.
func TestHostileLineOffers(t *testing.T) { bothWays(t, testLineOffers) }

func testLineOffers(t *testing.T) {
	noLeaks(t)
	g := geometryFor(dataSlots)
	page := uint64(pageSize)
	size := uint64(dataSlots * dataSlot)
	right := mrOffer{key: 1, access: verbs.AccessRemoteWrite, addr: page, size: size}
	all := byte(offerEvent | offerOldInbox | offerOldEvent | offerOldMemory)
	joint := byte(0)
	if !separateData {
		g.joint, joint = true, offerJoint|offerJointMR
		right.off = uint64(g.memoryOff())
		right.addr += right.off % page
	}
	all |= joint
	for name, c := range map[string]struct {
		flags byte
		g     geometry
		mrs   []mrOffer
		fds   int
		good  bool
	}{
		"what was given":        {all, g, []mrOffer{right}, 0, true},
		"another queue":         {all, geometry{shift: g.shift + 1, bounceShift: g.bounceShift}, []mrOffer{right}, 0, false},
		"another bounce area":   {all, geometry{shift: g.shift, bounceShift: g.bounceShift - 1}, []mrOffer{right}, 0, false},
		"no queue there can be": {all, geometry{shift: 63, bounceShift: 63}, []mrOffer{right}, 0, false},
		"longer memory":         {all, g, []mrOffer{{key: 1, access: right.access, addr: right.addr, size: size + page, off: right.off}}, 0, false},
		"endless memory":        {all, g, []mrOffer{{key: 1, access: right.access, addr: right.addr, size: 1 << 63, off: right.off}}, 0, false},
		"memory further on":     {all, g, []mrOffer{{key: 1, access: right.access, addr: right.addr, size: size, off: right.off + page}}, 0, false},
		"memory between words":  {all, g, []mrOffer{{key: 1, access: right.access, addr: right.addr + 1, size: size, off: right.off}}, 0, false},
		"memory to be read":     {all, g, []mrOffer{{key: 1, access: verbs.AccessRemoteRead, addr: right.addr, size: size, off: right.off}}, 0, false},
		"no memory":             {all, g, nil, 0, false},
		"two kept memories":     {all, g, []mrOffer{right, right}, 0, false},
		"descriptors besides":   {all, g, []mrOffer{right}, 3, false},
		"an event of no use":    {all &^ offerEvent, g, []mrOffer{right}, 0, false},
		"an SRQ besides":        {all | offerSRQ, g, []mrOffer{right}, 0, false},
		"an unknown flag":       {all | 0x80, g, []mrOffer{right}, 0, false},
		"inbox made otherwise":  {all ^ offerJoint, g, []mrOffer{right}, 0, false},
		"memory made otherwise": {all ^ offerJointMR, g, []mrOffer{right}, 0, false},
		"both made otherwise":   {all ^ (offerJoint | offerJointMR), g, []mrOffer{right}, 0, false},
		"an inbox beside":       {all &^ offerOldInbox, g, []mrOffer{right}, 1, false},
		"memory somewhere else": {all &^ offerOldMemory, g, []mrOffer{{key: 1, access: right.access, addr: right.addr, size: size, off: 1 << 40}}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
			ln := idleLine(t, l)
			offer := make([]byte, offerHeader)
			offer[0], offer[1], offer[2], offer[3], offer[8] = offerVersion, c.flags, c.g.shift, c.g.bounceShift, byte(len(c.mrs))
			for _, o := range c.mrs {
				offer = o.append(offer)
			}
			var fds []int
			for range c.fds {
				fds = append(fds, memfd(t, int64(size)+int64(g.size()), wantSeals))
			}
			m := connMsg{src: holdPort(t, ln), dst: ln.dst, keep: true, offer: offer}
			m.param.PrivateData = make([]byte, 12)
			require.NoError(t, ln.sock.send(appendREQ(nil, &m), fds))
			closeFDs(fds)
			a, _ := l.request()
			e := newDataEnd(t, a)
			err := a.Accept(&verbs.ConnParam{PrivateData: e.hello(), RNRRetryCount: 7})
			if c.good {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, verbs.ErrProtocol)
			requireRefused(t, ln.sock)
			e.destroy()
			honest(t, l)
		})
	}
}

// FuzzLine has a peer ask on an idle line with a request and descriptors that may be
// wrong in any way: it is hung up on or refused, at once or by the accept, and leaves
// nothing; or the request is as good as any.
func FuzzLine(f *testing.F) {
	useDevice(f)
	before := leaktest.Take()
	f.Cleanup(func() { require.Empty(f, before.Wait(nil)) })
	lasting(f)
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0, 3}, []byte{0, 1})
	f.Add([]byte{1, 8}, []byte{})
	f.Add([]byte{4, 1, 5, 1}, []byte{1})
	f.Add([]byte{40}, []byte{})
	f.Add([]byte{80, 255, 81, 255, 82, 255}, []byte{0, 1, 2})
	f.Add([]byte{90, 64, 100, 128, 110, 1}, []byte{6, 7})
	g := geometryFor(dataSlots)
	g.joint = true
	right := mrOffer{key: 1, access: verbs.AccessRemoteWrite, addr: uint64(pageSize), size: dataSize, off: uint64(g.memoryOff())}
	f.Fuzz(func(t *testing.T, changes, kinds []byte) {
		if len(kinds) > maxFDs {
			return
		}
		l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
		ln := idleLine(t, l)
		offer := right.append(append([]byte{offerVersion, offerEvent | offerOldInbox | offerOldEvent | offerOldMemory | offerJoint | offerJointMR,
			g.shift, g.bounceShift, 1, 0, 0, 0, 1}, make([]byte, offerHeader-9)...))
		m := connMsg{src: holdPort(t, ln), dst: ln.dst, keep: true, offer: offer}
		m.param.PrivateData = make([]byte, 12)
		msg := appendREQ(nil, &m)
		for ; len(changes) > 1; changes = changes[2:] {
			msg[int(changes[0])%len(msg)] ^= changes[1]
		}
		if len(changes) > 0 {
			msg = msg[:1+int(changes[0])%len(msg)]
		}
		var fds []int
		for _, kind := range kinds {
			fds = append(fds, descriptor(t, kind, int64(g.size())))
		}
		require.NoError(t, ln.sock.send(msg, fds))
		closeFDs(fds)

		over := make(chan struct{})
		go func() {
			defer close(over)
			buf := make([]byte, maxMessage)
			for {
				_, fds, err := ln.sock.recv(buf)
				closeFDs(fds)
				if err != nil {
					return
				}
				if buf[0] == msgREJ {
					return
				}
			}
		}()
		select {
		case ev := <-l.events:
			require.Equal(t, verbs.CMConnectRequest, ev.Type)
			a := &testID{CMID: ev.ID, t: t, events: make(chan verbs.CMEvent, 16)}
			ev.ID.SetSink(func(ev verbs.CMEvent) { a.events <- ev })
			e := newDataEnd(t, a)
			if err := a.Accept(&verbs.ConnParam{PrivateData: e.hello(), RNRRetryCount: 7}); err != nil &&
				!errors.Is(err, verbs.ErrProtocol) && !errors.Is(err, verbs.ErrNoMemory) && !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("an error of no type: %v", err)
			}
			ln.sock.shutdown()
			e.destroy()
		case <-over:
		case <-time.After(patience):
			t.Fatal("neither hung up on nor heard")
		}
		ln.sock.shutdown()
		<-over
		require.True(t, until(func() bool { return listenerOf(l).restingLines() == 0 }))
	})
}

// requireRefused sees that an acceptor has refused and hung up.
func requireRefused(t *testing.T, s *socket) {
	t.Helper()
	buf := make([]byte, maxMessage)
	n, fds, err := s.recv(buf)
	closeFDs(fds)
	require.NoError(t, err)
	require.Equal(t, byte(msgREJ), buf[0], "%x", buf[:n])
	_, _, err = s.recv(buf)
	require.Error(t, err)
}

// TestHostileLineReplay has a peer send the request again that its connection on the
// line began with: on that connection, which it ends.
func TestHostileLineReplay(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	idleLine(t, l).sock.close()
	d, a := linePair(t, l)
	ln := d.CMID.(*cmID).sock.line
	require.NoError(t, ln.sock.send(appendREQ(nil, &connMsg{src: d.LocalAddr(), dst: ln.dst, keep: true}), nil))
	require.ErrorIs(t, a.next(verbs.CMDisconnected).Err, verbs.ErrProtocol)
	require.Equal(t, verbs.QPErr, a.qp.State())
	l.nothing()
	honest(t, l)
}

// TestHostileLineAnswers has a dialer take a line whose other end lies.
func TestHostileLineAnswers(t *testing.T) {
	noLeaks(t)
	inbox := func(flags byte) []byte {
		g := geometryFor(16)
		return append([]byte{offerVersion, flags, g.shift, g.bounceShift}, make([]byte, offerHeader-4)...)
	}
	rep := func(m connMsg) []byte { return appendREP(nil, &m) }
	for name, c := range map[string]struct {
		msg []byte
		fds int
	}{
		"text":                       {[]byte("SSH-2.0-OpenSSH"), 0},
		"the end":                    {[]byte{msgBye}, 0},
		"the end, done":              {[]byte{msgReady}, 0},
		"another version":            {[]byte{msgREP, 9}, 0},
		"half an answer":             {rep(connMsg{})[:10], 0},
		"no offer":                   {rep(connMsg{keep: true}), 0},
		"an inbox never given":       {rep(connMsg{keep: true, offer: inbox(offerOldInbox)}), 0},
		"an eventfd never given":     {rep(connMsg{keep: true, offer: inbox(offerOldInbox | offerEvent | offerOldEvent)}), 0},
		"what is kept, not to keep":  {rep(connMsg{offer: inbox(offerOldInbox)}), 0},
		"an inbox that is no memory": {rep(connMsg{keep: true, offer: inbox(0)}), 1},
		"descriptors":                {rep(connMsg{keep: true, offer: inbox(0)}), maxFDs},
	} {
		t.Run(name, func(t *testing.T) {
			noLines(t)
			dst := netip.MustParseAddrPort("127.0.0.1:9")
			ours, theirs, err := socketPair()
			require.NoError(t, err)
			defer theirs.close()
			ours.line = &line{dev: soft0, sock: ours, uid: uint32(os.Geteuid()), src: localhost0, dst: dst}
			idleLines.put(ours.line)
			d := dialTo(t, dst)
			buf := make([]byte, maxMessage)
			_, fds, err := theirs.recv(buf)
			require.NoError(t, err)
			closeFDs(fds)
			require.Equal(t, byte(msgREQ), buf[0])
			lies := make([]int, c.fds)
			for i := range lies {
				lies[i] = eventfd(t, 0)
			}
			require.NoError(t, theirs.send(c.msg, lies))
			closeFDs(lies)
			require.ErrorIs(t, d.next(verbs.CMConnectError).Err, verbs.ErrProtocol)
			_, _, err = theirs.recv(buf)
			require.ErrorIs(t, err, io.EOF)
			require.Zero(t, idleLines.idle())
		})
	}
}

// TestHostileLineScribbles has a peer write all over what it still has mapped while the
// line is idle: the next connection finds nothing of it.
func TestHostileLineScribbles(t *testing.T) { bothWays(t, testLineScribbles) }

func testLineScribbles(t *testing.T) {
	noLeaks(t)
	noLines(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	d, a := linePair(t, l)
	before := a.descriptors()
	endBoth(t, d, a)
	require.True(t, until(func() bool { return listenerOf(l).restingLines() == 1 }))
	idleLines.mu.Lock()
	kept := idleLines.lines[0].peer
	queue := kept.out.data[:kept.out.bounceOff()]
	if kept.out.joint {
		queue = kept.out.data[kept.out.lensOff():kept.out.memoryOff()]
	}
	for _, b := range [][]byte{queue, kept.mr.data} {
		for i := range b {
			b[i] = 0xee
		}
	}
	idleLines.mu.Unlock()
	d, a = linePair(t, l)
	require.Equal(t, before, a.descriptors())
	var wc [1]verbs.WC
	n, err := a.cq.Poll(wc[:])
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, make([]byte, dataSize), a.mem.Bytes()[:dataSize])
	done := make(chan error, 2)
	go func() { done <- a.exchange(200) }()
	go func() { done <- d.exchange(200) }()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	endBoth(t, d, a)
}

// TestLinesOfOtherUsers: whoever has a line names the ports of its connections, of which
// the kernel does not say whose they are. So a user has lines only to its own listeners.
func TestLinesOfOtherUsers(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{AnyUser: true})
	var s *socket
	var src netip.AddrPort
	asUser(t, 65534, func() { s, src = strangerFrom(t, l.LocalAddr()) })
	g := geometryFor(dataSlots)
	m := connMsg{src: src, dst: l.LocalAddr(), keep: true,
		offer: append([]byte{offerVersion, 0, g.shift, g.bounceShift}, make([]byte, offerHeader-4)...)}
	m.param.PrivateData = make([]byte, 12)
	fd := memfd(t, int64(g.size()), wantSeals)
	defer closeFDs([]int{fd})
	require.NoError(t, s.send(appendREQ(nil, &m), []int{fd}))
	acceptData(t, l)
	buf := make([]byte, maxMessage)
	n, fds, err := s.recv(buf)
	require.NoError(t, err)
	closeFDs(fds)
	rep, err := parseREP(buf[:n])
	require.NoError(t, err)
	require.False(t, rep.keep)
}
