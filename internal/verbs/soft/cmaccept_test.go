//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A player plays a dialer by hand, with the offer of a real QP.
type player struct {
	*control.Socket
	t   *testing.T
	src netip.AddrPort
}

// play connects to l and sends a REQ.
func play(t *testing.T, l *testID) *player {
	t.Helper()
	s, src := silentDialerFrom(t, l.LocalAddr())
	id := resolved(t, l.LocalAddr(), driver.CMOptions{})
	blob, fds, err := ownOffer(id.qp.(*qp))
	require.NoError(t, err)
	req := control.ConnMsg{Src: src, Dst: l.LocalAddr(), Offer: blob}
	require.NoError(t, s.Send(control.AppendREQ(nil, &req), fds))
	return &player{s, t, src}
}

// rep waits for the REP.
func (p *player) rep() {
	p.t.Helper()
	buf := make([]byte, control.MaxMessage)
	n, fds, err := p.Recv(buf)
	require.NoError(p.t, err)
	control.CloseFDs(fds)
	_, err = control.ParseREP(buf[:n])
	require.NoError(p.t, err)
}

func TestAcceptDialerDies(t *testing.T) {
	for name, when := range map[string]string{"before the accept": "REQ", "before RTU": "REP", "after RTU": "RTU"} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			l := listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{})
			p := play(t, l)
			a, _ := l.request()
			a.createQP()
			if when == "REQ" {
				p.Close()
			}
			require.NoError(t, a.Accept(nil))
			if when == "REQ" {
				require.ErrorIs(t, a.next(driver.CMConnectError).Err, verbs.ErrPeerGone)
				require.Zero(t, l.ListenStats().Hangup, "it had sent its request")
				return
			}
			p.rep()
			if when == "REP" {
				p.Close()
				require.ErrorIs(t, a.next(driver.CMConnectError).Err, verbs.ErrPeerGone)
				require.Zero(t, l.ListenStats().Hangup, "it had sent its request")
				require.Equal(t, verbs.QPErr, a.qp.State())
				return
			}
			require.NoError(t, p.Send([]byte{control.MsgRTU, control.WireVersion}, nil))
			a.next(driver.CMEstablished)
			p.Close()
			require.ErrorIs(t, a.next(driver.CMDisconnected).Err, verbs.ErrPeerGone)
			a.next(driver.CMTimewaitExit)
			require.Equal(t, verbs.QPErr, a.qp.State())
		})
	}
}

func TestAcceptDialerDoesNotConfirm(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{HandshakeTimeout: 2 * time.Second})
	p := play(t, l)
	a, _ := l.request()
	a.createQP()
	require.NoError(t, a.Accept(nil))
	p.rep()
	require.ErrorIs(t, a.next(driver.CMConnectError).Err, unix.ETIMEDOUT)
	require.Equal(t, verbs.QPErr, a.qp.State())
	honest(t, l)
}

func TestAcceptDialerSaysNonsense(t *testing.T) {
	for name, msgs := range map[string][][]byte{
		"in place of RTU":   {{control.MsgRTU, control.WireVersion + 1}},
		"another REQ":       {{control.MsgREQ, control.WireVersion}},
		"RTU twice":         {{control.MsgRTU, control.WireVersion}, {control.MsgRTU, control.WireVersion}},
		"a longer RTU":      {{control.MsgRTU, control.WireVersion, 0}},
		"an unknown number": {{31}},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			l := listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{})
			p := play(t, l)
			a, _ := l.request()
			a.createQP()
			require.NoError(t, a.Accept(nil))
			p.rep()
			for _, m := range msgs {
				require.NoError(t, p.Send(m, nil))
			}
			typ := driver.CMConnectError
			if len(msgs) > 1 {
				a.next(driver.CMEstablished)
				typ = driver.CMDisconnected
			}
			require.ErrorIs(t, a.next(typ).Err, verbs.ErrProtocol)
			require.Equal(t, verbs.QPErr, a.qp.State())
		})
	}
}

func stateOf(id driver.CMID) cmState {
	c := id.(*cmID)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func TestAcceptInsideTheSink(t *testing.T) {
	noLeaks(t)
	established := make(chan driver.CMID, 1)
	l := newTestID(t, driver.CMOptions{})
	children := make(chan *testID, 1)
	inside := false
	l.SetSink(func(ev driver.CMEvent) {
		switch ev.Type {
		case driver.CMConnectRequest:
			inside = true // the detector of races sees whether ESTABLISHED waits
			child := &testID{CMID: ev.ID, t: t}
			child.createQP()
			if err := ev.ID.Accept(nil); err != nil {
				t.Error(err)
			}
			// RTU has come, and its event has to wait until this returns.
			if !until(func() bool { return stateOf(ev.ID) == cmConnected }) {
				t.Error("not connected")
			}
			children <- child
			inside = false
		case driver.CMEstablished:
			if inside {
				t.Error("ESTABLISHED during CONNECT_REQUEST")
			}
			established <- ev.ID
		}
	})
	require.NoError(t, l.BindAddr(localhost0))
	require.NoError(t, l.Listen(1))
	d := dialTo(t, l.LocalAddr())
	d.next(driver.CMEstablished)
	child := <-children
	t.Cleanup(child.close)
	require.Equal(t, child.CMID, <-established)
}
