package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStress has many connections at once on which everything happens at random:
// reads and writes of every kind and size, half-closes, deadlines that come and go.
// What arrives has to be what was sent.
func TestStress(t *testing.T) {
	const conns = 16
	limit := time.Duration(slice(int(2 * time.Second)))
	eachFlavour(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		until := time.Now().Add(limit)
		var mu sync.Mutex
		var failed []error
		run := func(seed int, f func() error) {
			if err := f(); err != nil {
				mu.Lock()
				failed = append(failed, fmt.Errorf("seed %d: %w", seed, err))
				mu.Unlock()
			}
		}
		within(t, limit+lasting, "the connections", func() {
			var all sync.WaitGroup
			for seed := range conns {
				all.Go(func() {
					for round := seed; time.Now().Before(until); round += conns {
						run(round, func() error { return stressOne(fl, l, round) })
					}
				})
			}
			all.Wait()
		})
		require.NoError(t, errors.Join(failed...))
		require.Zero(t, l.Stats().Pending)
	})
}

// stressOne makes a connection and lets both ends of it do as the seed says.
func stressOne(fl flavour, l *Listener, seed int) error {
	client, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		return err
	}
	defer client.Close()
	accepted, err := l.AcceptConn()
	if err != nil {
		return err
	}
	defer accepted.Close()
	// Others dial too, so these need not be the ends of one connection. It does not
	// matter: an end need know nothing of the one that it talks to.
	ends := [2]*stressEnd{newStressEnd(client, seed), newStressEnd(accepted, seed+1<<20)}
	errs := make(chan error, 4)
	for _, e := range ends {
		go func() { errs <- e.write() }()
		go func() { errs <- e.read() }()
	}
	for range 4 {
		err = errors.Join(err, <-errs)
	}
	return err
}
