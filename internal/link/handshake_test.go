package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestHandshakeTimeout: a dialer that was answered and says nothing loses its lane in the time that
// the listener has, though nobody waits for its place. One that came before, to a listener that has
// more time, keeps it; so nothing is measured.
func TestHandshakeTimeout(t *testing.T) {
	evicted := func() { t.Error("it gives way to nobody") }
	patient := newBed(t, Config{HandshakeTimeout: time.Hour, OnEvict: evicted})
	newWirePeer(t, lane.RoleDialer, wireConfig{device: patient.l.cfg.CM.Device}).dial(patient.l.Addr())
	b := newBed(t, Config{HandshakeTimeout: time.Second, OnEvict: evicted})
	p := newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device})
	p.dial(b.l.Addr())
	p.cutOff()
	require.Equal(t, Requests{Failed: 1}, b.l.Requests())
	require.Zero(t, patient.l.Requests())
	require.Len(t, patient.l.Lanes(), 1)
}

// TestForeignHelloIsCounted: a dialer that says something else first is refused.
func TestForeignHelloIsCounted(t *testing.T) {
	b := newBed(t, Config{})
	p := newWirePeer(t, lane.RoleDialer, wireConfig{
		device: b.l.cfg.CM.Device,
		hello:  func([]byte) []byte { return []byte("GET / HTTP/1.1") },
	})
	require.Equal(t, cm.Rejected, p.ask(b.l.Addr()).Type)
	require.Equal(t, Requests{Refused: 1}, b.l.Requests())
}
