//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// peerDevice names the device that a peer process of the suite opens.
const peerDevice = "SOFT_TEST_PEER_DEVICE"

func TestMain(m *testing.M) {
	device := os.Getenv(peerDevice)
	verbstest.ServePeerIfAsked(verbstest.Peer{
		Open: func() (verbs.Context, error) {
			d, err := findDevice(device)
			if err != nil {
				return nil, err
			}
			return d.Open()
		},
		Driver: softDriver{},
		Device: device,
	})
	os.Exit(m.Run())
}

// TestConformance runs the suite that every driver passes, on both devices.
func TestConformance(t *testing.T) {
	for _, d := range []*device{soft0, soft0iWARP} {
		t.Run(d.name, func(t *testing.T) {
			verbstest.Run(t, verbstest.Config{
				Open: func(t testing.TB) verbs.Context {
					ctx, err := d.Open()
					require.NoError(t, err)
					return ctx
				},
				Driver: softDriver{},
				Device: d.name,
				Peer: func(t testing.TB) *exec.Cmd {
					cmd := verbstest.PeerCommand(t)
					cmd.Env = append(cmd.Env, peerDevice+"="+d.name)
					return cmd
				},
			})
		})
	}
}
