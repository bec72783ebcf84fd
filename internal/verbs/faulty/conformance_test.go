//go:build linux && (amd64 || arm64)

package faulty_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	_ "github.com/rdmanet/go-rdmanet/internal/verbs/drivers"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
)

// seedVar repeats a run; it is what a failed one has printed.
const seedVar = "RDMANET_FAULT_SEED"

var seed = func() uint64 {
	if s, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64); err == nil {
		return s
	}
	return uint64(time.Now().UnixNano())
}()

const faultyName = "soft0-faulty"

func newDriver(plan faulty.Plan) *faulty.Driver {
	all := verbs.Drivers()
	soft := slices.IndexFunc(all, func(d verbs.Driver) bool { return d.Name() == "soft" })
	return faulty.New(faultyName, all[soft], "soft0", plan)
}

func TestMain(m *testing.M) {
	d := newDriver(faulty.DefaultPlan(seed))
	verbstest.ServePeerIfAsked(verbstest.Peer{Open: d.Open, Driver: d, Device: faultyName})
	code := m.Run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "to repeat: %s=%d\n", seedVar, seed)
	}
	os.Exit(code)
}

// TestConformance runs the suite that every driver passes over one that is late, out of
// order and wakes for nothing.
func TestConformance(t *testing.T) {
	d := newDriver(faulty.DefaultPlan(seed))
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
			cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", seedVar, seed))
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
