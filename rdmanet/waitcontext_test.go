package rdmanet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWaitContext has it do what a context with a timer does, which it has only when somebody waits.
func TestWaitContext(t *testing.T) {
	late := errors.New("late")
	type key struct{}
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWaitContext(context.WithValue(t.Context(), key{}, 1), time.Minute, late)
			defer w.stop()
			if waits {
				select {
				case <-w.Done():
					t.Fatal("it has ended")
				default:
				}
			}
			at, ok := w.Deadline()
			require.True(t, ok)
			require.Equal(t, time.Now().Add(time.Minute), at)
			time.Sleep(time.Minute - time.Nanosecond)
			require.NoError(t, w.Err())
			require.NoError(t, context.Cause(w))
			require.Equal(t, 1, w.Value(key{}))
			require.Equal(t, waits, w.timed.Load() != nil)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.ErrorIs(t, w.Err(), context.DeadlineExceeded)
			require.Equal(t, late, context.Cause(w))
			<-w.Done()
			require.Equal(t, 1, w.Value(key{}))
		})
	}

	inner, cancel := context.WithCancelCause(t.Context())
	w := newWaitContext(inner, time.Hour, late)
	defer w.stop()
	gone := errors.New("gone")
	cancel(gone)
	require.ErrorIs(t, w.Err(), context.Canceled)
	require.Equal(t, gone, context.Cause(w))
	<-w.Done()
	require.Equal(t, gone, context.Cause(w))

	for _, waits := range []bool{false, true} {
		w := newWaitContext(t.Context(), time.Hour, late)
		if waits {
			w.Done()
		}
		w.stop()
		<-w.Done()
		require.ErrorIs(t, w.Err(), context.Canceled)
	}

	soon, cancelSoon := context.WithTimeout(t.Context(), time.Minute)
	defer cancelSoon()
	want, _ := soon.Deadline()
	got, _ := newWaitContext(soon, time.Hour, late).Deadline()
	require.Equal(t, want, got)
}
