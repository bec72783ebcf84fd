package rdmanet

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
)

// acknowledging is an honest handshake that asks for the acknowledgement or promises it.
func acknowledging(t *testing.T, device string) wireConfig {
	return wireConfig{device: device, hello: func(h cm.Handshake) []byte {
		h.Features |= cm.FeatureAcknowledge
		b, err := h.MarshalBinary()
		require.NoError(t, err)
		return b
	}}
}

// hangUp ends the peer's connection, and readies a listening peer for the next request.
func (p *wirePeer) hangUp() {
	p.t.Helper()
	require.NoError(p.t, p.qp.Close())
	require.NoError(p.t, p.id.Close())
	for _, c := range []interface{ Close() error }{p.recvCQ, p.sendCQ, p.channel, p.mr, p.pd, p.memory} {
		require.NoError(p.t, c.Close())
	}
	p.qp, p.id = nil, p.listener
}

// TestDialAwaitsAcknowledgement: what was confirmed is no connection before the listener has
// taken it. The dialing end says something itself while it waits.
func TestDialAwaitsAcknowledgement(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		p := newWirePeer(t, acknowledging(t, fl.dialer.Device))
		done := fl.dialBehind(p.listen())
		p.request()
		p.accept()
		require.Equal(t, ring.KindKeepAlive, p.heard().Kind, "half a second later")
		select {
		case d := <-done:
			t.Fatalf("Dial has returned: %v", d.err)
		default:
		}
		p.kind(ring.KindKeepAlive)
		d := <-done
		require.NoError(t, d.err)
		_, err := d.conn.Write([]byte("hello"))
		require.NoError(t, err)
		require.Equal(t, ring.KindData, p.heard().Kind)
		p.text("world")
		b := make([]byte, 5)
		_, err = d.conn.Read(b)
		require.NoError(t, err)
		require.Equal(t, "world", string(b))
		closeLater(t, d.conn)
	})
}

// TestWithdrawnAnswerIsDialledAgain has a listener give a client up that has confirmed: its
// Dial, which has not returned, is made again.
func TestWithdrawnAnswerIsDialledAgain(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		p := newWirePeer(t, acknowledging(t, fl.dialer.Device))
		done := fl.dialBehind(p.listen())
		for range 3 {
			p.request()
			p.accept()
			p.hangUp()
		}
		p.request()
		p.accept()
		p.kind(ring.KindKeepAlive)
		d := <-done
		require.NoError(t, d.err)
		closeLater(t, d.conn)
	})
}

// TestNeverAcknowledged: Dial keeps its timeout, and a lie in place of the acknowledgement
// is one.
func TestNeverAcknowledged(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		t.Run("silence", func(t *testing.T) {
			p := newWirePeer(t, acknowledging(t, fl.dialer.Device))
			fl := fl
			fl.dialer.Timeout = slowly(2 * time.Second) // the answer has to come within it
			done := fl.dialBehind(p.listen())
			p.request()
			p.accept()
			requireDialError(t, <-done, os.ErrDeadlineExceeded)
		})
		t.Run("lie", func(t *testing.T) {
			p := newWirePeer(t, acknowledging(t, fl.dialer.Device))
			done := fl.dialBehind(p.listen())
			p.request()
			p.accept()
			p.bell(15 << 28)
			requireDialError(t, <-done, ErrProtocol)
		})
	})
}

// TestListenerAcknowledges whoever asks for it, before Accept is called, and nobody else.
func TestListenerAcknowledges(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		p := newWirePeer(t, acknowledging(t, fl.dialer.Device))
		require.Equal(t, cm.Established, p.dial(l.addr.AddrPort()).Type)
		p.kind(ring.KindKeepAlive) // as iWARP wants it
		require.NotZero(t, p.victim.Features&cm.FeatureAcknowledge)
		require.Equal(t, ring.KindKeepAlive, p.heard().Kind)

		p = newWirePeer(t, wireConfig{device: fl.dialer.Device})
		require.Equal(t, cm.Established, p.dial(l.addr.AddrPort()).Type)
		p.kind(ring.KindKeepAlive)
		require.Zero(t, p.victim.Features&cm.FeatureAcknowledge)
		for range 2 {
			c, err := l.AcceptConn()
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
		require.Equal(t, ring.KindClose, p.heard().Kind)
	})
}
