package rdmanet

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// onNetworkIWARP is the software device that is like iWARP, treated as one of a network.
func onNetworkIWARP(t *testing.T) flavour {
	t.Helper()
	onSoftware(t)
	const device = "soft0-iwarp"
	return flavour{
		dialer: Dialer{Device: device, asynchronous: true, confirming: true},
		listen: ListenConfig{Device: device, asynchronous: true, confirming: true},
	}
}

// TestFirstWordIsSaid has a dialer whose program says nothing: it rings all the same, so that
// the listening end may speak.
func TestFirstWordIsSaid(t *testing.T) {
	fl := onNetworkIWARP(t)
	p := newWirePeer(t, wireConfig{device: fl.dialer.Device, reads: true})
	dialled := fl.dialBehind(p.listen())
	p.request()
	p.accept()
	d := <-dialled
	require.NoError(t, d.err)
	closeLater(t, d.conn)
	require.Equal(t, ring.KindKeepAlive, p.heard().Kind)
}

// TestFirstWordIsAwaited has a client that is connected and silent: nobody gets its
// connection, which might speak first, until it rings.
func TestFirstWordIsAwaited(t *testing.T) {
	fl := onNetworkIWARP(t)
	l := fl.newListener(t)
	p := newWirePeer(t, wireConfig{device: fl.dialer.Device, reads: true})
	require.Equal(t, cm.Established, p.dial(l.addr.AddrPort()).Type)
	require.NoError(t, l.SetDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := l.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, l.SetDeadline(time.Time{}))
	p.kind(ring.KindKeepAlive)
	c, err := l.AcceptConn()
	require.NoError(t, err)
	closeLater(t, c)
	// It can be used: the word that was awaited has taken nothing from it.
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	p.text("hello")
	b := make([]byte, 5)
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, "hello", string(b))
	_, err = c.Write([]byte("welcome"))
	require.NoError(t, err)
}

// TestNoFirstWord has clients that never say it, or leave before, or say nonsense: they are
// given up, and the next one is served.
func TestNoFirstWord(t *testing.T) {
	fl := onNetworkIWARP(t)
	fl.listen.HandshakeTimeout = 200 * time.Millisecond
	fl.listen.Logger = quiet
	for name, end := range map[string]func(p *wirePeer){
		"silent":  func(*wirePeer) {},
		"leaves":  func(p *wirePeer) { p.vanish() },
		"nothing": func(p *wirePeer) { p.bell(0) },
	} {
		t.Run(name, func(t *testing.T) {
			l := fl.newListener(t)
			p := newWirePeer(t, wireConfig{device: fl.dialer.Device, reads: true})
			require.Equal(t, cm.Established, p.dial(l.addr.AddrPort()).Type)
			end(p)
			if name != "leaves" {
				within(t, patience, "giving the client up", p.cutOff)
			}
			accepted := make(chan *Conn, 1)
			go func() {
				c, err := l.AcceptConn()
				assert.NoError(t, err)
				accepted <- c
			}()
			client, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
			require.NoError(t, err)
			closeLater(t, client)
			server := <-accepted
			closeLater(t, server)
			require.Equal(t, client.LocalAddr().String(), server.RemoteAddr().String(), "the honest one")
		})
	}
}

// TestConfirmation has a peer that answers READs: what is written is confirmed by them, and
// Close, which waits for that, ends without a failure.
func TestConfirmation(t *testing.T) {
	fl := onNetworkIWARP(t)
	victim, p := confirmingVictim(t, fl, true)
	_, err := victim.Write(make([]byte, 100))
	require.NoError(t, err)
	require.Equal(t, ring.KindData, p.heard().Kind)
	victim.send.mu.Lock()
	err = victim.send.sq.ask()
	for end := time.Now().Add(patience); err == nil && !victim.send.sq.idle() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		err = victim.send.sq.reap()
	}
	idle := victim.send.sq.idle()
	victim.send.mu.Unlock()
	require.NoError(t, err)
	require.True(t, idle, "a READ that is answered confirms everything before it")
}

// TestConfirmationRefused has a peer that permits no READ of its memory: whoever writes to it
// learns that nothing is confirmed, and does not wait for ever.
func TestConfirmationRefused(t *testing.T) {
	fl := onNetworkIWARP(t)
	victim, p := confirmingVictim(t, fl, false)
	go func() {
		for { // a peer that takes what comes
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			_, err := p.ec.GetEvent(ctx)
			cancel()
			if err != nil {
				return
			}
		}
	}()
	require.NoError(t, victim.SetWriteDeadline(time.Now().Add(patience)))
	var err error
	for range 1000 {
		if _, err = victim.Write(make([]byte, 1)); err != nil {
			break
		}
	}
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	_, err = victim.Read(make([]byte, 1))
	require.Error(t, err)
	within(t, patience, "Close", func() { _ = victim.Close() })
}

// refusesReads is a QP that has left RTS between a message and the READ that confirms it.
type refusesReads struct{ verbs.QP }

func (q refusesReads) PostSend(wrs []verbs.SendWR) (int, error) {
	if wrs[0].Opcode == verbs.WRRDMARead {
		return 0, verbs.ErrState
	}
	return q.QP.PostSend(wrs)
}

// TestSaidUnconfirmed has the peer take the word of a listening end, say all that it has to say,
// and leave, before that end asks for the confirmation: the word was said all the same, and the
// connection is one.
func TestSaidUnconfirmed(t *testing.T) {
	fl := onNetworkIWARP(t)
	victim, p := confirmingVictim(t, fl, true)
	victim.send.mu.Lock()
	victim.send.sq.qp = refusesReads{victim.send.sq.qp}
	victim.send.mu.Unlock()
	require.NoError(t, victim.send.say("a word"))
	require.Equal(t, ring.KindKeepAlive, p.heard().Kind)
	require.True(t, victim.term.sendDone() || victim.term.failed(), "nothing more can be sent")
}

// confirmingVictim is a Conn that dialled a peer which answers READs, or refuses them.
func confirmingVictim(t *testing.T, fl flavour, reads bool) (*Conn, *wirePeer) {
	t.Helper()
	p := newWirePeer(t, wireConfig{device: fl.dialer.Device, reads: reads})
	dialled := fl.dialBehind(p.listen())
	p.request()
	p.accept()
	d := <-dialled
	require.NoError(t, d.err)
	closeLater(t, d.conn)
	require.Equal(t, ring.KindKeepAlive, p.heard().Kind)
	return d.conn, p
}

// Only the devices of a network are asked to confirm.
func TestWhoConfirms(t *testing.T) {
	attr := verbs.DeviceAttr{MaxQPRdAtom: 4, MaxQPInitRdAtom: 128}
	near := attr
	near.Caps = verbs.CapSameHost
	require.Nil(t, newConfirmation(verbs.TransportRoCE, &attr, false))
	require.Nil(t, newConfirmation(verbs.TransportIB, &attr, true))
	require.Nil(t, newConfirmation(verbs.TransportIWARP, &near, false))
	require.NotNil(t, newConfirmation(verbs.TransportIWARP, &near, true))
	require.EqualValues(t, 4, newConfirmation(verbs.TransportIWARP, &attr, false).reads, "no more than the device has")
	attr.MaxQPRdAtom = 128
	require.EqualValues(t, maxReads, newConfirmation(verbs.TransportIWARP, &attr, false).reads)
}
