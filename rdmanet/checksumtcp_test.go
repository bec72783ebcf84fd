package rdmanet

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChecksumOnTCP has dialers with checksums on the networks of TCP: they get them, or no
// connection.
func TestChecksumOnTCP(t *testing.T) {
	onSoftware(t)
	d := Dialer{Checksum: true, Logger: quiet, RetryRDMA: -1, OnFallback: func(e *FallbackError) { t.Error(e) }}
	both := overBoth{dialer: d, lc: ListenConfig{Logger: quiet}}
	l := both.newListener(t)
	client, server, err := both.meet(l)
	require.NoError(t, err)
	require.True(t, client.(*Conn).Checksum() && server.(*Conn).Checksum())
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())

	alone := overBoth{lc: ListenConfig{Logger: quiet, Device: noSuchDevice}}.newListener(t)
	_, err = d.Dial("tcp", alone.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	// A listener takes TCP clients as ever.
	requires := overBoth{lc: ListenConfig{Logger: quiet, Checksum: true}, dialer: Dialer{Logger: quiet, Device: noSuchDevice}}
	client, server, err = requires.meet(requires.newListener(t))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	c, err := new(Dialer).dial(context.Background(), "tcp", l.Addr().String())
	require.NoError(t, err)
	require.False(t, c.Checksum())
	require.NoError(t, c.Close())
}
