//go:build linux

package rdmanet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

const descriptorsRole = "descriptors"

func init() {
	roles[descriptorsRole] = func() int {
		for _, target := range leaktest.OpenFiles() {
			fmt.Println(target)
		}
		return 0
	}
}

// TestExecUnderLoad starts processes while connections come and go and bytes move: none
// of them inherits a descriptor, and no byte is changed.
func TestExecUnderLoad(t *testing.T) {
	fl, seed := flavour{}, testSeed(t)
	s := newThisSide(t, fl, seed)
	var stop atomic.Bool
	var load, children sync.WaitGroup
	for range 3 {
		load.Go(func() {
			for !stop.Load() {
				c, err := fl.dialer.dial(context.Background(), "rdma", s.l.Addr().String())
				if !assert.NoError(t, err) {
					return
				}
				s.converse(c, true)
			}
		})
	}
	for range 2 {
		children.Go(func() {
			for range scale(20) {
				out, err := roleCommand(descriptorsRole).CombinedOutput()
				assert.NoError(t, err)
				for _, kind := range []string{"memfd", "socket", "eventfd"} {
					assert.NotContains(t, string(out), kind, "a descriptor was inherited")
				}
			}
		})
	}
	children.Wait()
	stop.Store(true)
	load.Wait()
	require.Eventually(t, s.quiet, patience, time.Millisecond)
	s.requireNoEnds()
	require.Positive(t, s.whole)
	require.NoError(t, s.l.Close())
	<-s.served
}

const outlivingRole = "outliving"

func init() {
	roles[outlivingRole] = func() int {
		time.Sleep(lasting) // or until it is killed
		return 0
	}
}

// TestExecOutlived kills processes that have started others, which live on: these keep
// no connection alive, nor a listener's address.
func TestExecOutlived(t *testing.T) {
	const children = 3
	fl := flavour{name: "default"}
	rng := rand.New(rand.NewPCG(testSeed(t), 0))
	s := newThisSide(t, fl, rng.Uint64())
	var idle *Conn
	s.round(startRemote(t), rng, func(r *remote) {
		for range children {
			child, err := os.FindProcess(call[int](r, "Start", outlivingRole))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, child.Kill()) }) // so long it has lived
		}
		var err error
		idle, err = fl.dialer.dial(context.Background(), "rdma", s.at)
		require.NoError(t, err)
	})
	requireEnd(t, idle, syscall.ECONNRESET)
	l, err := fl.listen.listen(context.Background(), "rdma", s.at)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, s.l.Close())
	<-s.served
}
