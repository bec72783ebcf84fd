package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestHandshakeTimeout: a dialer that was answered and says nothing loses its lane in that time,
// though nobody waits for its place.
func TestHandshakeTimeout(t *testing.T) {
	b := newBed(t, Config{HandshakeTimeout: time.Second, OnEvict: func() { t.Error("it gives way to nobody") }})
	p := newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device})
	began := time.Now()
	p.dial(b.l.Addr())
	p.cutOff()
	require.Less(t, time.Since(began), DefaultHandshakeTimeout)
	require.Equal(t, Requests{Failed: 1}, b.l.Requests())
}

// TestStrangersAreCounted: who connects with another first word is refused.
func TestStrangersAreCounted(t *testing.T) {
	b := newBed(t, Config{})
	p := newWirePeer(t, lane.RoleDialer, wireConfig{
		device: b.l.cfg.CM.Device,
		hello:  func([]byte) []byte { return []byte("GET / HTTP/1.1") },
	})
	require.Equal(t, cm.Rejected, p.ask(b.l.Addr()).Type)
	require.Equal(t, Requests{Refused: 1}, b.l.Requests())
}
