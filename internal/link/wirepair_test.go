package link

import (
	"context"
	"io"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A wirePair is a wirePeer connected to a Stream.
type wirePair struct {
	*bed
	p    *wirePeer
	s    *wireStream
	ours *Stream
}

// eachPeer runs f with a peer at the dialer's end of a lane, and with one at the listener's.
func eachPeer(t *testing.T, f func(t *testing.T, cfg Config, role lane.Role)) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Idle = 2 * patience // the lane is to stay until the peer's next stream
		t.Run("dialer", func(t *testing.T) { f(t, cfg, lane.RoleDialer) })
		t.Run("listener", func(t *testing.T) { f(t, cfg, lane.RoleListener) })
	})
}

// on is the bed for another test.
func (b *bed) on(t testing.TB) *bed { return &bed{t, b.l, b.links} }

// separatePair returns the ends of a stream on a lane of its own, over a link of its own.
func (b *bed) separatePair() (client, server *Stream) {
	b.t.Helper()
	client, err := b.anotherLinks().Dial(b.ctx(), Target{Dst: b.l.Addr()})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = client.Close() })
	server = b.accept()
	b.t.Cleanup(func() { _ = server.Close() })
	return client, server
}

// wirePair connects a wirePeer with a Stream of a bed.
func (b *bed) wirePair(role lane.Role, cfg wireConfig) *wirePair {
	b.t.Helper()
	cfg.device = b.l.cfg.CM.Device
	m := &wirePair{bed: b, p: newWirePeer(b.t, role, cfg)}
	if role == lane.RoleDialer {
		m.p.dial(b.l.Addr())
		m.another(0)
		return m
	}
	dialled := b.dialBehind(b.ctx(), m.p.listen())
	m.p.request()
	m.p.accept()
	m.s = m.p.serve(1)
	m.dialled(dialled)
	return m
}

// another opens one more stream, with an id that a peer which listens grants.
func (m *wirePair) another(id lane.ID) {
	m.t.Helper()
	if m.p.role == lane.RoleDialer {
		m.s = m.p.open()
		m.ours = m.accept()
		m.closeLater()
		return
	}
	dialled := m.dialBehind(m.ctx(), m.p.listener.LocalAddr())
	m.s = m.p.serve(id)
	m.dialled(dialled)
}

// A dialled is what came of a dial.
type dialled struct {
	s   *Stream
	err error
}

// dialBehind dials in the background.
func (b *bed) dialBehind(ctx context.Context, at netip.AddrPort) <-chan dialled {
	done := make(chan dialled, 1)
	go func() {
		s, err := b.links.Dial(ctx, Target{Dst: at})
		done <- dialled{s, err}
	}()
	return done
}

func (m *wirePair) dialled(done <-chan dialled) {
	m.t.Helper()
	d := <-done
	require.NoError(m.t, d.err)
	m.ours = d.s
	m.closeLater()
}

func (m *wirePair) closeLater() {
	s := m.ours
	m.t.Cleanup(func() { _ = s.Close() })
}

// told waits for ABORT, and passes over all before. Where there is little room for it, or its time may
// run out, the lane may end without.
func (m *wirePair) told(rule error, may bool) {
	m.t.Helper()
	for {
		d, ok := m.p.hearUnlessEnded()
		if !ok {
			require.True(m.t, may, "the lane has ended without a word")
			return
		}
		if d.Type == lane.TypeControl && d.record.Kind == lane.KindAbort {
			require.Equal(m.t, rule, lane.Rule(d.record.Code))
			return
		}
	}
}

// TestWirePeer: the peer of these tests is a second implementation of the protocol, and an honest
// one if nobody tells it otherwise.
func TestWirePeer(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		b := newBed(t, cfg)
		m := b.wirePair(role, wireConfig{})
		for range 3 {
			m.conversation()
			m.another(1)
		}
	})
}

// conversation moves bytes both ways and ends the stream in good order.
func (m *wirePair) conversation() {
	m.t.Helper()
	m.p.write(m.s, []byte("hello, lane\n"))
	got := make([]byte, 12)
	_, err := io.ReadFull(m.ours, got)
	require.NoError(m.t, err)
	require.Equal(m.t, "hello, lane\n", string(got))
	long := make([]byte, 5*wireRing+7)
	for i := range long {
		long[i] = byte(i * 7)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := m.ours.Write(long)
		wrote <- err
	}()
	require.Equal(m.t, long, m.p.read(m.s, len(long)))
	require.NoError(m.t, <-wrote)
	m.p.say(lane.Record{Kind: lane.KindFIN, Stream: m.s.id, Total: m.s.sent})
	_, err = m.ours.Read(got)
	require.Equal(m.t, io.EOF, err)
	require.NoError(m.t, m.ours.Close())
	require.Equal(m.t, uint64(len(long)), m.p.heardRecord(lane.KindClose).Total)
	m.p.say(lane.Record{Kind: lane.KindClose, Stream: m.s.id, Total: m.s.sent})
}
