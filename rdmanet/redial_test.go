package rdmanet

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestRedial has a listener that has no place for a while, or for ever.
func TestRedial(t *testing.T) {
	noPlace := fmt.Errorf("somewhere: %w", verbs.ErrTryAgain)
	dialUntil := func(n int, last error) (func() (int, error), *int) {
		tries := new(int)
		return func() (int, error) {
			if *tries++; *tries < n {
				return 0, noPlace
			}
			return *tries, last
		}, tries
	}
	synctest.Test(t, func(t *testing.T) {
		dial, _ := dialUntil(100, nil)
		began := time.Now()
		n, err := redial(context.Background(), dial)
		require.NoError(t, err)
		require.Equal(t, 100, n)
		require.Greater(t, time.Since(began), 50*lastRedial/2, "it does not press")
		require.Less(t, time.Since(began), 150*lastRedial)

		dial, tries := dialUntil(3, io.ErrNoProgress)
		_, err = redial(context.Background(), dial)
		require.Equal(t, io.ErrNoProgress, err, "that is another matter")
		require.Equal(t, 3, *tries)

		// Its own deadline ends it, or else the system's patience.
		dial, _ = dialUntil(1<<30, nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		began = time.Now()
		_, err = redial(ctx, dial)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.ErrorIs(t, err, verbs.ErrTryAgain, "and why")
		require.EqualError(t, err, "i/o timeout: "+noPlace.Error())
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.Equal(t, time.Hour, time.Since(began))
		began = time.Now()
		_, err = redial(context.Background(), dial)
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.ErrorIs(t, err, verbs.ErrTryAgain)
		require.InDelta(t, dialPatience, time.Since(began), float64(2*lastRedial))
		canceled, stop := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, stop)
		_, err = redial(canceled, dial)
		require.Equal(t, context.Canceled, err)
	})
}

// TestRedialSaysWhy has a dial end while it is tried once more: by its time, or by another
// failure, which is told as it is.
func TestRedialSaysWhy(t *testing.T) {
	noPlace := fmt.Errorf("somewhere: %w", verbs.ErrTryAgain)
	stale := fmt.Errorf("stale: %w: %w", verbs.ErrTryAgain, syscall.ECONNREFUSED)
	starved := &cm.RefusedError{Refusal: cm.Refusal{Code: cm.RefusedResources, Text: "no descriptors"}}
	for _, c := range []struct {
		name  string
		tries []error
		text  string
	}{
		{"no place", []error{noPlace, context.DeadlineExceeded}, "i/o timeout: " + noPlace.Error()},
		{"no resources", []error{noPlace, starved, context.DeadlineExceeded}, "i/o timeout: the listener had no resources: " + starved.Error()},
		{"the last of several", []error{starved, noPlace, context.DeadlineExceeded}, "i/o timeout: " + noPlace.Error()},
		{"a refusal that passes", []error{stale, context.DeadlineExceeded}, "i/o timeout: " + stale.Error()},
		{"not made again", []error{context.DeadlineExceeded}, context.DeadlineExceeded.Error()},
		{"canceled", []error{noPlace, context.Canceled}, context.Canceled.Error()},
		{"another", []error{noPlace, io.ErrNoProgress}, io.ErrNoProgress.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				_, err := redial(context.Background(), func() (int, error) {
					tries++
					return 0, c.tries[tries-1]
				})
				require.EqualError(t, err, c.text)
				require.ErrorIs(t, err, c.tries[len(c.tries)-1])
				if c.text[:3] == "i/o" {
					if last := c.tries[len(c.tries)-2]; last == stale {
						require.NotErrorIs(t, err, syscall.ECONNREFUSED, "which would say that nobody listens")
						require.ErrorIs(t, err, verbs.ErrTryAgain)
					} else {
						require.ErrorIs(t, err, last)
					}
					require.EqualError(t, opError(opDial, "rdma", nil, nil, err), "dial rdma: "+c.text)
				}
			})
		})
	}
}
