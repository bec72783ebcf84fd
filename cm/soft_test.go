package cm

import (
	"bytes"
	"context"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// These tests go through the software device, as a program does.

// needSoft skips where the software device cannot run.
func needSoft(t *testing.T) {
	t.Helper()
	devices, err := Devices() // what other drivers say does not matter here
	for _, d := range devices {
		if d.Transport() == verbs.TransportSoftware {
			return
		}
	}
	t.Skipf("the software device does not run here; it needs linux on amd64 or arm64: %v", err)
}

// side is one end with the verbs objects of a connection.
type side struct {
	t       *testing.T
	id      *ID
	pd      verbs.PD
	cq      verbs.CQ
	channel verbs.CompChannel
	qp      verbs.QP
}

func newSide(t *testing.T, id *ID) *side {
	t.Helper()
	s := &side{t: t, id: id}
	ctx := id.Verbs()
	require.NotNil(t, ctx)
	var err error
	s.pd, err = ctx.AllocPD()
	require.NoError(t, err)
	s.channel, err = ctx.CreateCompChannel()
	require.NoError(t, err)
	s.cq, err = ctx.CreateCQ(128, s.channel)
	require.NoError(t, err)
	s.qp, err = id.CreateQP(s.pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	require.NoError(t, err)
	require.Equal(t, verbs.QPInit, s.qp.State())
	t.Cleanup(s.close)
	return s
}

func (s *side) close() {
	s.t.Helper()
	if s.qp == nil {
		return
	}
	require.NoError(s.t, s.qp.Close())
	require.NoError(s.t, s.cq.Close())
	require.NoError(s.t, s.channel.Close())
	require.NoError(s.t, s.pd.Close())
	require.NoError(s.t, s.id.Close())
	s.qp = nil
}

func get(t *testing.T, ec *EventChannel, want EventType) *Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), talkPatience)
	defer cancel()
	ev, err := ec.GetEvent(ctx)
	require.NoError(t, err)
	require.Equal(t, want, ev.Type, "%v", ev)
	return ev
}

// listenSoft listens on a port of its own choice.
func listenSoft(t *testing.T, addr string, opts Options) (*ID, *EventChannel, netip.AddrPort) {
	t.Helper()
	needSoft(t)
	ec := NewEventChannel()
	t.Cleanup(func() { require.NoError(t, ec.Close()) })
	l := newID(t, ec, opts)
	require.NoError(t, l.BindAddr(netip.AddrPortFrom(netip.MustParseAddr(addr), 0)))
	require.NoError(t, l.Listen(8))
	local := l.LocalAddr()
	require.NotZero(t, local.Port())
	return l, ec, local
}

// dialSoft resolves dst and makes the QP.
func dialSoft(t *testing.T, dst netip.AddrPort, opts Options) (*side, *EventChannel) {
	t.Helper()
	ec := NewEventChannel()
	t.Cleanup(func() { require.NoError(t, ec.Close()) })
	id := newID(t, ec, opts)
	require.NoError(t, id.Resolve(t.Context(), netip.AddrPort{}, dst))
	return newSide(t, id), ec
}

func TestSoftConnection(t *testing.T) {
	for name, c := range map[string]struct{ listen, dial, device string }{
		"wildcard":      {"0.0.0.0", "127.0.0.1", ""},
		"IPv6 wildcard": {"::", "127.0.0.1", ""},
		"specific":      {"127.0.0.1", "127.0.0.1", ""},
		"named device":  {"0.0.0.0", "127.0.0.1", "soft0"},
		"iWARP":         {"0.0.0.0", "127.0.0.1", "soft0-iwarp"},
	} {
		t.Run(name, func(t *testing.T) { testConnection(t, c.listen, c.dial, c.device) })
	}
}

// testConnection goes through the life of a connection and looks at every event.
func testConnection(t *testing.T, listen, dial, device string) {
	t.Helper()
	opts := Options{Device: device}
	_, lec, local := listenSoft(t, listen, opts)
	dst := netip.AddrPortFrom(netip.MustParseAddr(dial), local.Port())
	client, cec := dialSoft(t, dst, opts)
	if device != "" {
		require.Equal(t, device, client.id.Device())
	}
	hello := []byte("first words")
	require.NoError(t, client.id.Connect(&ConnParam{PrivateData: hello, RetryCount: 7, RNRRetryCount: 6}, 5*time.Second))

	req := get(t, lec, ConnectRequest)
	require.Equal(t, hello, bytes.TrimRight(req.Param.PrivateData, "\x00"))
	require.Equal(t, dst, req.ID.LocalAddr())
	require.Equal(t, client.id.LocalAddr(), req.ID.RemoteAddr())
	server := newSide(t, req.ID)
	answer := []byte("the answer")
	require.NoError(t, req.ID.Accept(&ConnParam{PrivateData: answer}))

	up := get(t, cec, Established)
	require.Equal(t, answer, bytes.TrimRight(up.Param.PrivateData, "\x00"))
	require.Same(t, req.ID, get(t, lec, Established).ID)
	require.Equal(t, dst, client.id.RemoteAddr())
	for _, s := range []*side{client, server} {
		require.Equal(t, StateConnected, s.id.State())
		require.Equal(t, verbs.QPRTS, s.qp.State())
	}

	require.NoError(t, client.id.Disconnect())
	require.NoError(t, get(t, cec, Disconnected).Err)
	require.NoError(t, get(t, lec, Disconnected).Err)
	for _, s := range []*side{client, server} {
		require.Equal(t, StateDisconnected, s.id.State())
		require.Equal(t, verbs.QPErr, s.qp.State())
		s.close()
	}
}

func TestSoftReject(t *testing.T) { testReject(t, "127.0.0.1", "") }

func testReject(t *testing.T, addr, device string) {
	t.Helper()
	opts := Options{Device: device}
	l, lec, local := listenSoft(t, addr, opts)
	client, cec := dialSoft(t, local, opts)
	require.NoError(t, client.id.Connect(nil, 5*time.Second))
	req := get(t, lec, ConnectRequest)
	refusal := NewRefusal(RefusedVersion, "too old")
	wire, err := refusal.MarshalBinary()
	require.NoError(t, err)
	require.NoError(t, req.ID.Reject(wire))
	require.NoError(t, req.ID.Close())

	ev := get(t, cec, Rejected)
	var re *RejectedError
	require.ErrorAs(t, ev.Err, &re)
	require.Equal(t, RejectConsumer, re.Reason)
	require.Equal(t, refusal, re.Refusal().Refusal)
	require.ErrorIs(t, ev.Err, ErrVersion)
	require.Equal(t, StateDisconnected, client.id.State())
	require.EqualValues(t, 1, l.ListenStats().Requests)
}

func TestSoftNobodyListens(t *testing.T) { testNobodyListens(t, "127.0.0.1", "") }

func testNobodyListens(t *testing.T, addr, device string) {
	t.Helper()
	opts := Options{Device: device}
	l, _, local := listenSoft(t, addr, opts)
	require.NoError(t, l.Close())
	client, cec := dialSoft(t, local, opts)
	require.NoError(t, client.id.Connect(nil, 5*time.Second))
	ev := get(t, cec, Rejected)
	require.ErrorIs(t, ev.Err, ErrRejected)
	require.ErrorIs(t, ev.Err, syscall.ECONNREFUSED)
}

// A listener that does not answer does not hold a dialer longer than it wants.
func TestSoftConnectTimeout(t *testing.T) {
	_, lec, local := listenSoft(t, "127.0.0.1", Options{})
	client, cec := dialSoft(t, local, Options{})
	require.NoError(t, client.id.Connect(nil, time.Second))
	ev := get(t, cec, Unreachable)
	require.ErrorIs(t, ev.Err, ErrUnreachable)
	require.True(t, isTimeout(ev.Err), "%v", ev.Err)
	// Who accepts too late is told, at once or by an event.
	late := newSide(t, get(t, lec, ConnectRequest).ID)
	if err := late.id.Accept(nil); err == nil {
		require.Error(t, get(t, lec, ConnectError).Err)
		require.Equal(t, StateDisconnected, late.id.State())
	}
}

func TestSoftAddressInUse(t *testing.T) {
	_, _, local := listenSoft(t, "127.0.0.1", Options{})
	ec := queueOn(t, driver.Drivers()...)
	for _, addr := range []string{"127.0.0.1", "0.0.0.0"} {
		err := newID(t, ec, Options{}).BindAddr(netip.AddrPortFrom(netip.MustParseAddr(addr), local.Port()))
		require.ErrorIs(t, err, syscall.EADDRINUSE, addr)
	}
	err := newID(t, ec, Options{}).BindAddr(netip.MustParseAddrPort("192.0.2.1:0"))
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	err = newID(t, ec, Options{Device: "mlx5_0"}).BindAddr(netip.MustParseAddrPort("127.0.0.1:0"))
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	err = newID(t, ec, Options{}).Resolve(t.Context(), netip.AddrPort{}, netip.MustParseAddrPort("192.0.2.1:1"))
	require.ErrorIs(t, err, verbs.ErrNoRoute)
}

// The listener's end dying leaves the dialer with an end, not with a wait.
func TestSoftListenerCloses(t *testing.T) {
	l, lec, local := listenSoft(t, "127.0.0.1", Options{})
	client, cec := dialSoft(t, local, Options{})
	require.NoError(t, client.id.Connect(nil, 5*time.Second))
	req := get(t, lec, ConnectRequest)
	require.NoError(t, l.Close())
	require.NoError(t, req.ID.Close())
	ctx, cancel := context.WithTimeout(t.Context(), talkPatience)
	defer cancel()
	ev, err := cec.GetEvent(ctx)
	require.NoError(t, err)
	require.Error(t, ev.Err)
	require.Contains(t, []EventType{Rejected, Unreachable}, ev.Type)
}
