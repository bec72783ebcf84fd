package rdmanet

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
)

// TestHostileRing has peers whose ring is not where they say.
func TestHostileRing(t *testing.T) {
	if onIWARP(t) {
		t.Skip("on iWARP this end reads the ring that the handshake names before anybody has the connection, which ends there")
	}
	places := map[string]func(h *cm.Handshake){
		"another address":     func(h *cm.Handshake) { h.Addr += 1 << 40 },
		"address 0":           func(h *cm.Handshake) { h.Addr = 0 },
		"a wrong key":         func(h *cm.Handshake) { h.RKey ^= 1 << 31 },
		"key 0":               func(h *cm.Handshake) { h.RKey = 0 },
		"more than there is":  func(h *cm.Handshake) { h.Size, h.MaxSize = ring.MaxSize, ring.MaxSize },
		"a byte out of place": func(h *cm.Handshake) { h.Addr += wireMemory - ring.DataOffset - 1000 },
	}
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
		for name, place := range places {
			for _, victims := range wireVictims {
				t.Run(name+" "+victims.name, func(t *testing.T) {
					_, victim := victims.connect(t, fl, wireConfig{hello: func(h cm.Handshake) []byte {
						place(&h)
						b, err := h.MarshalBinary()
						require.NoError(t, err)
						return b
					}})
					buf, err := make([]byte, 64<<10), error(nil)
					inTime(t, soon, "Write", func() {
						for range 64 {
							if _, err = victim.Write(buf); err != nil {
								return
							}
						}
					})
					require.ErrorIs(t, err, syscall.ECONNRESET)
					requireEnd(t, victim, syscall.ECONNRESET)
				})
			}
		}
	})
}
