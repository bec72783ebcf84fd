package rdmanet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// TestImmediateWhereNone has a device tell of a WRITE_WITH_IMM where doorbells are SENDs.
func TestImmediateWhereNone(t *testing.T) {
	onSoftware(t)
	for device, want := range map[string]error{"soft0": nil, "soft0-iwarp": ErrProtocol} {
		t.Run(device, func(t *testing.T) {
			client, _ := flavour{dialer: Dialer{Device: device}, listen: ListenConfig{Device: device}}.pair(t)
			client.recv.mu.Lock()
			defer client.recv.mu.Unlock()
			goes := client.recv.completion(&verbs.WC{
				Opcode: verbs.WCRecvRDMAWithImm, Flags: verbs.WCWithImm, ImmData: ring.Doorbell{Kind: ring.KindKeepAlive}.Imm(),
			})
			require.Equal(t, want == nil, goes)
			require.ErrorIs(t, client.term.err(), want)
		})
	}
}
