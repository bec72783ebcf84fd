package rdmanet

import (
	"context"
	"errors"
	"runtime"
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

// TestWaitContextLetsGo has what a dial that waited was made with be collected when it is done: the runtime
// keeps a timer that was stopped, and what its function refers to, for as long as it would have run.
func TestWaitContextLetsGo(t *testing.T) {
	const others = 1000 // so few of all timers are stopped ones that the runtime does not remove those
	var timers [others]*time.Timer
	for i := range timers {
		timers[i] = time.AfterFunc(time.Hour, func() {})
	}
	defer func() {
		for _, other := range timers {
			other.Stop()
		}
	}()

	collected := make(chan struct{})
	func() {
		type key struct{}
		value := new([64]byte)
		runtime.AddCleanup(value, func(done chan struct{}) { close(done) }, collected)
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, value))
		defer cancel()
		w := newWaitContext(parent, 30*time.Minute, errors.New("late"))
		defer w.stop()
		select {
		case <-w.Done():
			t.Fatal("it has ended")
		default:
		}
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	}, 10*time.Second, 10*time.Millisecond)
}
