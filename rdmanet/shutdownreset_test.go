package rdmanet

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShutdownBehindAReset: half of a connection cannot be shut that the peer has reset, also where no call has
// heard of it yet, as over TCP. On devices of a network it may not have arrived.
func TestShutdownBehindAReset(t *testing.T) {
	onSoftware(t)
	for name, shut := range map[string]func(c *Conn) error{"CloseWrite": (*Conn).CloseWrite, "CloseRead": (*Conn).CloseRead} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			write(t, client, 3)
			arrived(t, client)
			require.NoError(t, server.Close())
			require.ErrorIs(t, shut(client), syscall.ENOTCONN)
		})
	}
}
