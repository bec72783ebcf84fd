package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// shortOfQPs is a listener whose device has no QP as long as want says so.
func shortOfQPs(t *testing.T, told func(error)) (b *bed, want *atomic.Bool) {
	t.Helper()
	needFailing(t)
	want = new(atomic.Bool)
	want.Store(true)
	failing.OnAcquire(func(what string) error {
		if what == faulty.CreateQP && want.Load() {
			return fmt.Errorf("no QP: %w", syscall.EMFILE)
		}
		return nil
	})
	t.Cleanup(func() { failing.OnAcquire(nil) })
	b = newBed(t, Config{CM: cm.Options{Device: "soft0"}, Idle: time.Millisecond})
	require.NoError(t, b.l.Close())
	var err error
	b.l, err = Listen(Config{CM: cm.Options{Device: "failing0"}, OnShortage: told}, testAddr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.l.Close() })
	return b, want
}

// TestDialersWaitForLanes: for whom a listener has no QP waits, and all get through when there
// are some.
func TestDialersWaitForLanes(t *testing.T) {
	var told atomic.Int64
	b, want := shortOfQPs(t, func(err error) {
		if shortage.OfDescriptors(err) {
			told.Add(1)
		}
	})
	go serveEchoes(b.l)
	const dialers = 5
	ended := make(chan error, dialers)
	for range dialers {
		links, err := NewLinks(Config{CM: cm.Options{Device: "soft0"}, Idle: time.Millisecond})
		require.NoError(t, err)
		defer links.Close()
		go func() {
			for {
				err := converse(links, b.l)
				var refused *cm.RefusedError
				if errors.As(err, &refused) && refused.Code == cm.RefusedResources {
					continue // who comes last gives back what it holds, and dials again
				}
				ended <- err
				return
			}
		}()
	}
	require.Eventually(t, func() bool { return told.Load() > 2*dialers }, patience, time.Millisecond)
	require.Empty(t, ended)
	want.Store(false)
	within(t, "dials that were waiting", func() {
		for range dialers {
			require.NoError(t, <-ended)
		}
	})
}

// TestTriesHavePauses: a lane that could not be made is tried again after pauses that grow, though
// what was made of it is given back each time.
func TestTriesHavePauses(t *testing.T) {
	var told atomic.Int64
	b, want := shortOfQPs(t, func(error) { told.Add(1) })
	go serveEchoes(b.l)
	ended := make(chan error, 1)
	go func() { ended <- converse(b.links, b.l) }()
	require.Eventually(t, func() bool { return told.Load() >= 5 }, patience, time.Millisecond)
	time.Sleep(500 * time.Millisecond)
	require.Less(t, told.Load(), int64(200)) // 8 or so, and thousands without pauses
	want.Store(false)
	within(t, "the dialer", func() { require.NoError(t, <-ended) })
}

// TestDialerLeavesTheQueue: one that gives up does not hold up the next, and nobody waits for a
// listener that closes.
func TestDialerLeavesTheQueue(t *testing.T) {
	b, want := shortOfQPs(t, nil)
	go serveEchoes(b.l)
	ctx, cancel := context.WithCancel(b.ctx())
	first := make(chan error, 1)
	go func() {
		_, err := b.links.Dial(ctx, Target{Dst: b.l.Addr()})
		first <- err
	}()
	require.Eventually(t, b.l.shortages.Waiting, patience, time.Millisecond)
	cancel()
	within(t, "a dial that is given up", func() { require.ErrorIs(t, <-first, context.Canceled) })
	require.Eventually(t, func() bool { return !b.l.shortages.Waiting() }, patience, time.Millisecond)
	require.Positive(t, b.l.shortages.Count())
	want.Store(false)
	within(t, "the next", func() { require.NoError(t, converse(b.links, b.l)) })
	require.Eventually(t, func() bool { // the link is idle for long enough to go
		b.links.mu.Lock()
		defer b.links.mu.Unlock()
		return len(b.links.links) == 0
	}, patience, time.Millisecond)

	want.Store(true)
	go func() {
		_, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
		first <- err
	}()
	require.Eventually(t, b.l.shortages.Waiting, patience, time.Millisecond)
	require.NoError(t, b.l.Close())
	within(t, "a dial whose listener closes", func() { require.Error(t, <-first) })
	require.False(t, b.l.shortages.Waiting())
	_, err := b.l.Accept(b.ctx())
	require.ErrorIs(t, err, net.ErrClosed)
}
