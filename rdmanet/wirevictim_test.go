package rdmanet

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// look has c take in what has arrived, as its Read and Write do.
func look(c *Conn) {
	c.recv.mu.Lock()
	defer c.recv.mu.Unlock()
	c.recv.progress()
}

// wireVictim is one of the two ways to bring a Conn together with a wirePeer.
type wireVictim struct {
	name    string
	connect func(t testing.TB, fl flavour, cfg wireConfig) (*wirePeer, *Conn)
}

// wireVictims has a Conn that dialled and one that was accepted.
var wireVictims = []wireVictim{
	{"accepted", acceptedVictim},
	{"dialled", dialledVictim},
}

func acceptedVictim(t testing.TB, fl flavour, cfg wireConfig) (*wirePeer, *Conn) {
	t.Helper()
	l := fl.newListener(t)
	cfg.device = fl.dialer.Device
	p := newWirePeer(t, cfg)
	ev := p.dial(l.addr.AddrPort())
	require.Equal(t, cm.Established, ev.Type, "%v", ev)
	victim, err := l.AcceptConn()
	require.NoError(t, err)
	closeLater(t, victim)
	p.warm()
	return p, victim
}

func dialledVictim(t testing.TB, fl flavour, cfg wireConfig) (*wirePeer, *Conn) {
	t.Helper()
	cfg.device = fl.dialer.Device
	p := newWirePeer(t, cfg)
	at := p.listen()
	dialled := fl.dialBehind(at)
	p.request()
	p.accept()
	d := <-dialled
	require.NoError(t, d.err)
	p.hearFirst()
	closeLater(t, d.conn)
	p.warm()
	return p, d.conn
}

// closeLater closes c when the test ends, and leaves nothing of it to the next one.
func closeLater(t testing.TB, c *Conn) {
	t.Cleanup(func() {
		_ = c.Close()
		within(t, patience, "teardown", func() { <-c.torn })
	})
}

// dialled is what came of a dial.
type dialled struct {
	conn *Conn
	err  error
}

// dialBehind dials in the background.
func (fl flavour) dialBehind(at netip.AddrPort) <-chan dialled {
	done := make(chan dialled, 1)
	go func() {
		d := fl.dialer
		if d.Timeout == 0 {
			d.Timeout = patience
		}
		c, err := d.dial(context.Background(), "rdma", at.String())
		done <- dialled{c, err}
	}()
	return done
}

// newListener makes a listener of the flavour that is closed when the test ends.
func (fl flavour) newListener(t testing.TB) *Listener {
	t.Helper()
	lc := fl.listen
	lc.Logger = slog.New(slog.DiscardHandler)
	l, err := lc.listen(context.Background(), "rdma", testAddr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}
