//go:build linux && (amd64 || arm64)

package faulty_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/rdmanet/go-rdmanet/internal/verbs/drivers"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const faultyName = "soft0-faulty"

func newDriver(plan faulty.Plan) *faulty.Driver {
	return faulty.NewOverSoft(faultyName, "soft0", plan)
}

func TestMain(m *testing.M) {
	d := newDriver(faulty.DefaultPlan(faulty.Seed))
	verbstest.ServePeerIfAsked(verbstest.Peer{Open: d.Open, Driver: d, Device: faultyName})
	code := m.Run()
	if code != 0 {
		faulty.TellSeed()
	}
	os.Exit(code)
}

// TestConformance runs the suite that every driver passes over one that is late, out of
// order and wakes for nothing.
func TestConformance(t *testing.T) { runConformance(t, faulty.DefaultPlan(faulty.Seed)) }

// TestConformanceAsynchronous: the suite itself changes no memory that the device may still look at.
func TestConformanceAsynchronous(t *testing.T) {
	runConformance(t, faulty.Plan{Asynchronous: true})
}

func runConformance(t *testing.T, plan faulty.Plan) {
	d := newDriver(plan)
	verbstest.Run(t, verbstest.Config{
		Open: func(t testing.TB) verbs.Context {
			ctx, err := d.Open()
			require.NoError(t, err)
			return ctx
		},
		Driver: d,
		Device: faultyName,
		Peer: func(t testing.TB) *exec.Cmd {
			cmd := verbstest.PeerCommand(t)
			cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", faulty.SeedVar, faulty.Seed))
			return cmd
		},
	})
}

// TestPollsAll: fewer completions than were asked for say that there are no more, so that a
// device with more than it takes at once gives all of them.
func TestPollsAll(t *testing.T) {
	ctx, err := newDriver(faulty.Plan{}).Open()
	require.NoError(t, err)
	defer ctx.Close()
	const sent = 40
	depth := verbs.QPCap{MaxSendWR: sent, MaxRecvWR: sent}
	p := verbstest.NewPair(t, ctx, verbstest.PairConfig{A: verbstest.EndConfig{Cap: depth}, B: verbstest.EndConfig{Cap: depth}})
	for i := range sent {
		p.B.PostRecv(verbs.RecvWR{WRID: uint64(i)})
		p.A.Post(verbs.SendWR{Opcode: verbs.WRSend, WRID: uint64(i), Flags: verbs.SendSignaled})
	}
	p.A.Sent(sent) // so all receives have completed
	var wc [sent - 8]verbs.WC
	for _, want := range []int{len(wc), 8, 0} {
		n, err := p.B.RecvCQ.Poll(wc[:])
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}

// TestCapabilities: a plan takes away what it says, and the rest is the device's.
func TestCapabilities(t *testing.T) {
	all := verbs.CapSynchronous | verbs.CapSameHost
	for _, c := range []struct {
		plan faulty.Plan
		want verbs.DeviceCaps
	}{
		{faulty.Plan{}, all},
		{faulty.Plan{Asynchronous: true}, verbs.CapSameHost},
		{faulty.Plan{Remote: true}, verbs.CapSynchronous},
		{faulty.Plan{Asynchronous: true, Remote: true}, 0},
	} {
		ctx, err := newDriver(c.plan).Open()
		require.NoError(t, err)
		attr, err := ctx.QueryDevice()
		require.NoError(t, err)
		require.Equal(t, c.want, attr.Caps&all, "%+v", c.plan)
		require.NotZero(t, attr.Caps&verbs.CapAtomics)
		require.NoError(t, ctx.Close())
	}
}
