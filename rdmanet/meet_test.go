package rdmanet

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// A dialled is what came of a dial in the background.
type dialled struct {
	conn *Conn
	err  error
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

// closeLater closes c when the test ends, and leaves nothing of it to the next one.
func closeLater(t testing.TB, c *Conn) {
	t.Cleanup(func() {
		_ = c.Close()
		within(t, patience, "teardown", func() { <-c.done() })
	})
}

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
