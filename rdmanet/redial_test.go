package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// TestRedial has a listener that has no place for a while, or for ever.
func TestRedial(t *testing.T) {
	noPlace := fmt.Errorf("somewhere: %w", cm.ErrTryAgain)
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
		require.Equal(t, time.Hour, time.Since(began))
		began = time.Now()
		_, err = redial(context.Background(), dial)
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.ErrorIs(t, err, cm.ErrTryAgain)
		require.InDelta(t, dialPatience, time.Since(began), float64(2*lastRedial))
		canceled, stop := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, stop)
		_, err = redial(canceled, dial)
		require.True(t, errors.Is(err, context.Canceled))
	})
}
