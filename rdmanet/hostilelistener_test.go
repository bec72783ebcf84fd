package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// requireDialError sees that a dial has failed with want in the shape of package net.
func requireDialError(t testing.TB, d dialled, want error) {
	t.Helper()
	if d.err == nil {
		d.conn.Close()
	}
	require.ErrorIs(t, d.err, want)
	var op *net.OpError
	require.ErrorAs(t, d.err, &op)
	require.Equal(t, opDial, op.Op)
	require.NotNil(t, op.Addr)
}

// isClosed reports whether done is closed.
func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// TestHostileListenerAnswers has listeners that do something else than to accept.
func TestHostileListenerAnswers(t *testing.T) {
	refusal := func(code cm.RefusalCode, text string) []byte {
		r := cm.NewRefusal(code, text)
		b, err := r.MarshalBinary()
		require.NoError(t, err)
		return b
	}
	type rejection struct {
		name    string
		private []byte
		want    error
	}
	rejections := []rejection{
		{"nothing", nil, syscall.ECONNREFUSED},
		{"garbage", []byte("\xff\xfe\x00garbage"), syscall.ECONNREFUSED},
		{"a handshake", []byte("RDMN\x01\x01\x30\x00"), syscall.ECONNREFUSED},
		{"half a refusal", []byte("RDMX\x01"), syscall.ECONNREFUSED},
		{"a refusal with a bad text", []byte("RDMX\x01\x01\x04\x00\xff\xff"), syscall.ECONNREFUSED},
		{"version", refusal(cm.RefusedVersion, "too old"), cm.ErrVersion},
		{"malformed", refusal(cm.RefusedMalformed, "bad"), cm.ErrRefused},
		{"malformed is about the protocol", refusal(cm.RefusedMalformed, "bad"), ErrProtocol},
		{"failure", refusal(cm.RefusedFailure, "broken"), cm.ErrRefused},
		{"shutdown", refusal(cm.RefusedShutdown, "late"), syscall.ECONNREFUSED},
		{"not permitted", refusal(cm.RefusedNotPermitted, "no"), syscall.EACCES},
		{"a code of the future", refusal(999, "?"), cm.ErrRefused},
	}
	eachDevice(t, func(t *testing.T, fl flavour) {
		atOnce(t, rejections, func(r rejection) string { return "rejects with " + r.name }, func(t *testing.T, r rejection) {
			p := newWirePeer(t, wireConfig{device: fl.dialer.Device})
			d := p.answer(fl.dialBehind(p.listen()), func() { require.NoError(t, p.id.Reject(r.private)) })
			requireDialError(t, d, r.want)
		})
		t.Run("lacks resources once", func(t *testing.T) {
			p := newWirePeer(t, wireConfig{device: fl.dialer.Device})
			done := fl.dialBehind(p.listen())
			p.request()
			require.NoError(t, p.id.Reject(refusal(cm.RefusedResources, "poor")))
			p.request() // it dials again by itself
			require.NoError(t, p.id.Reject(refusal(cm.RefusedNotPermitted, "no")))
			requireDialError(t, <-done, syscall.EACCES)
		})
		t.Run("lacks resources", func(t *testing.T) {
			p := newWirePeer(t, wireConfig{device: fl.dialer.Device})
			fl := fl
			fl.dialer.Timeout = slowly(2 * time.Second) // it asks twice within it
			done := fl.dialBehind(p.listen())
			p.request()
			require.NoError(t, p.id.Reject(refusal(cm.RefusedResources, "poor")))
			p.request()
			d := <-done
			requireDialError(t, d, os.ErrDeadlineExceeded)
			require.True(t, d.err.(net.Error).Timeout())
		})
		t.Run("hangs up", func(t *testing.T) {
			p := newWirePeer(t, wireConfig{device: fl.dialer.Device})
			d := p.answer(fl.dialBehind(p.listen()), func() { require.NoError(t, p.id.Close()) })
			requireDialError(t, d, syscall.ECONNREFUSED)
		})
		t.Run("never answers", func(t *testing.T) {
			p := newWirePeer(t, wireConfig{device: fl.dialer.Device})
			at := p.listen()
			asked := make(chan struct{})
			go func() { defer close(asked); p.request() }()
			fl := fl
			fl.dialer.Timeout = slowly(50 * time.Millisecond)
			again(t, "the request", func() bool { return isClosed(asked) }, func() {
				c, err := fl.dialer.dial(context.Background(), "rdma", at.String())
				requireDialError(t, dialled{c, err}, os.ErrDeadlineExceeded)
				require.True(t, err.(net.Error).Timeout())
				fl.dialer.Timeout *= 2 // for its request to be there by then
			})
		})
		t.Run("never answers, and the dialer is cancelled", func(t *testing.T) {
			p := newWirePeer(t, wireConfig{device: fl.dialer.Device})
			at := p.listen()
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan dialled, 1)
			go func() {
				c, err := fl.dialer.dial(ctx, "rdma", at.String())
				done <- dialled{c, err}
			}()
			p.request()
			cancel()
			requireDialError(t, <-done, context.Canceled)
		})
		t.Run("accepts and is silent", func(t *testing.T) {
			_, victim := dialledVictim(t, fl, wireConfig{})
			require.NoError(t, victim.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
			_, err := victim.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			requireClosed(t, victim)
		})
		t.Run("accepts and hangs up", func(t *testing.T) {
			p := newWirePeer(t, wireConfig{device: fl.dialer.Device})
			done := fl.dialBehind(p.listen())
			p.request()
			p.accept()
			p.vanish()
			d := <-done
			if d.err != nil { // it was faster than the dialer
				requireDialError(t, d, syscall.ECONNRESET)
				return
			}
			requireEnd(t, d.conn, syscall.ECONNRESET)
		})
	})
}

// TestHostileNobody dials where nobody listens, and where it is somebody else's device.
func TestHostileNobody(t *testing.T) {
	l := flavour{}.newListener(t)
	at := l.addr.AddrPort()
	d := <-flavour{dialer: Dialer{Device: "soft0-iwarp"}}.dialBehind(at)
	requireDialError(t, d, syscall.ECONNREFUSED)
	require.NoError(t, l.Close())
	d = <-flavour{}.dialBehind(netip.AddrPortFrom(at.Addr(), at.Port()))
	requireDialError(t, d, syscall.ECONNREFUSED)
	require.False(t, errors.Is(d.err, os.ErrDeadlineExceeded))
}
