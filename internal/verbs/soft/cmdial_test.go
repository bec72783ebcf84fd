//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// An actor plays a listener by hand.
type actor struct {
	t    *testing.T
	sock *control.Socket
	addr netip.AddrPort
}

func newActor(t *testing.T) *actor {
	t.Helper()
	c, err := claimPort(soft0.name, localhost0, false)
	require.NoError(t, err)
	t.Cleanup(c.release)
	require.NoError(t, unix.Listen(c.fd, 16))
	s, err := control.NewSocket(c.take())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return &actor{t, s, c.addr}
}

// accept takes one dialer and its REQ.
func (a *actor) accept() (*control.Socket, control.ConnMsg, []int) {
	a.t.Helper()
	fd, _, err := a.sock.Accept()
	require.NoError(a.t, err)
	s, err := control.NewSocket(fd)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { s.Close() })
	buf := make([]byte, control.MaxMessage)
	n, fds, err := s.Recv(buf)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { control.CloseFDs(fds) })
	m, err := control.ParseREQ(buf[:n])
	require.NoError(a.t, err)
	return s, m, fds
}

// offerOf is a REP with the offer of a QP made for it.
func offerOf(t *testing.T, param driver.ConnParam) (rep []byte, fds []int) {
	t.Helper()
	id := resolved(t, netip.MustParseAddrPort("127.0.0.1:1"), driver.CMOptions{})
	blob, fds, err := ownOffer(id.qp.(*qp))
	require.NoError(t, err)
	return control.AppendREP(nil, &control.ConnMsg{Param: param, Offer: blob}), fds
}

func TestDialBadListeners(t *testing.T) {
	rep := func(t *testing.T) ([]byte, []int) { return offerOf(t, driver.ConnParam{}) }
	texts := map[string]string{
		"hangs up":       "the listener hung up before it answered",
		"fails":          `the listener failed: "as it says"`,
		"another user's": "the listener belongs to another user (its ListenConfig.AnyUser permits that)",
	}
	for _, tt := range []struct {
		name string
		act  func(t *testing.T, s *control.Socket)
		typ  driver.CMEventType
		err  error
	}{
		{"hangs up", func(t *testing.T, s *control.Socket) { s.Close() }, driver.CMUnreachable, verbs.ErrPeerGone},
		{"says bye", func(t *testing.T, s *control.Socket) {
			require.NoError(t, s.Send([]byte{msgBye}, nil))
			s.Close()
		}, driver.CMConnectError, verbs.ErrProtocol},
		{"garbage", func(t *testing.T, s *control.Socket) {
			require.NoError(t, s.Send([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), nil))
		}, driver.CMConnectError, verbs.ErrProtocol},
		{"truncated REP", func(t *testing.T, s *control.Socket) {
			b, fds := rep(t)
			require.NoError(t, s.Send(b[:len(b)-1], fds))
		}, driver.CMConnectError, verbs.ErrProtocol},
		{"too few descriptors", func(t *testing.T, s *control.Socket) {
			b, fds := rep(t)
			require.NoError(t, s.Send(b, fds[1:]))
		}, driver.CMConnectError, verbs.ErrProtocol},
		{"too many descriptors", func(t *testing.T, s *control.Socket) {
			b, fds := rep(t)
			require.NoError(t, s.Send(b, append(fds[:len(fds):len(fds)], fds[0])))
		}, driver.CMConnectError, verbs.ErrProtocol},
		{"far too many descriptors", func(t *testing.T, s *control.Socket) {
			b, _ := rep(t)
			sendTooMany(t, s, b)
		}, driver.CMConnectError, verbs.ErrProtocol},
		{"descriptor of something else", func(t *testing.T, s *control.Socket) {
			b, fds := rep(t)
			fds = append([]int(nil), fds...)
			for i := range fds {
				fds[i] = 1
			}
			require.NoError(t, s.Send(b, fds))
		}, driver.CMConnectError, verbs.ErrProtocol},
		{"another version", func(t *testing.T, s *control.Socket) {
			b, fds := rep(t)
			b[1]++
			require.NoError(t, s.Send(b, fds))
		}, driver.CMConnectError, verbs.ErrProtocol},
		{"refuses the version", func(t *testing.T, s *control.Socket) {
			b := control.AppendREJ(nil, control.RejectUnsupported, nil)
			b[1]++
			require.NoError(t, s.Send(b, nil))
		}, driver.CMRejected, control.VersionError(control.WireVersion + 1)},
		{"short of memory", func(t *testing.T, s *control.Socket) {
			refuse(s, rejectResources, nil)
		}, driver.CMRejected, unix.ECONNREFUSED},
		{"fails", func(t *testing.T, s *control.Socket) {
			refuse(s, driver.RejectNone, []byte("as it says"))
		}, driver.CMRejected, unix.ECONNREFUSED},
		{"another user's", func(t *testing.T, s *control.Socket) {
			refuse(s, driver.RejectDenied, nil)
		}, driver.CMRejected, unix.EACCES},
		{"truncated REJ", func(t *testing.T, s *control.Socket) {
			rej := control.AppendREJ(nil, driver.RejectDenied, nil)
			require.NoError(t, s.Send(rej[:len(rej)-1], nil))
		}, driver.CMConnectError, verbs.ErrProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeaks(t)
			a := newActor(t)
			d := dialTo(t, a.addr)
			s, _, _ := a.accept()
			tt.act(t, s)
			err := d.next(tt.typ).Err
			require.ErrorIs(t, err, tt.err)
			require.ErrorContains(t, err, texts[tt.name])
			require.Equal(t, strings.Contains(tt.name, "version"), errors.Is(err, verbs.ErrVersion))
			require.ErrorIs(t, d.Disconnect(), verbs.ErrState)
			d.nothing()
		})
	}
}

func TestDialListenerDiesAfterREP(t *testing.T) {
	noLeaks(t)
	// It may or may not have been there for the RTU.
	for range 20 {
		a := newActor(t)
		d := dialTo(t, a.addr)
		s, _, _ := a.accept()
		b, fds := offerOf(t, driver.ConnParam{})
		require.NoError(t, s.Send(b, fds))
		s.Close()
		select {
		case ev := <-d.events:
			if ev.Type == driver.CMEstablished {
				ev = d.next(driver.CMDisconnected)
			} else {
				require.Equal(t, driver.CMUnreachable, ev.Type)
				require.ErrorIs(t, ev.Err, unix.ECONNRESET, "as from TCP, and no EPIPE")
				require.NotErrorIs(t, ev.Err, unix.EPIPE)
			}
			require.ErrorIs(t, ev.Err, verbs.ErrPeerGone)
		case <-time.After(patience):
			require.FailNow(t, "no event")
		}
	}
}

func TestDialTimesOut(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	d := resolved(t, l.LocalAddr(), driver.CMOptions{})
	require.NoError(t, d.Connect(nil, time.Second))
	require.ErrorIs(t, d.next(driver.CMUnreachable).Err, unix.ETIMEDOUT)
	// The listener finds out when it answers.
	a, _ := l.request()
	a.createQP()
	require.NoError(t, a.Accept(nil))
	require.ErrorIs(t, a.next(driver.CMConnectError).Err, verbs.ErrPeerGone)
	require.Zero(t, l.ListenStats().Hangup, "it had sent its request")
	a.nothing()
}

func TestListenerClosesWithDialersWaiting(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{})
	var ds []*testID
	for range 5 {
		ds = append(ds, dialTo(t, l.LocalAddr()))
	}
	a, _ := l.request()
	require.NoError(t, l.Close())
	// The request that was delivered is answered, the others are told at once.
	a.createQP()
	require.NoError(t, a.Accept(nil))
	established := 0
	for _, d := range ds {
		select {
		case ev := <-d.events:
			switch ev.Type {
			case driver.CMEstablished:
				established++
			case driver.CMUnreachable:
				require.ErrorIs(t, ev.Err, unix.ECONNRESET)
			case driver.CMRejected:
				require.ErrorIs(t, ev.Err, unix.ECONNREFUSED)
			default:
				require.Fail(t, "unexpected", "%v: %v", ev.Type, ev.Err)
			}
		case <-time.After(patience):
			require.FailNow(t, "no event")
		}
	}
	require.Equal(t, 1, established)
}
