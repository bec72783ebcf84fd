package shortage

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTurns has three clients wait: the first tries again after pauses that grow;
// for lack of descriptors the last is sent away, so that who holds what the first one lacks
// gives it back; who is served lets the next one try at once.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := false
		q := NewQueue(func(hold bool) { held = hold })
		began := time.Now()
		a, b, c := q.join(true), q.join(true), q.join(true)
		require.True(t, held)
		<-a.turn
		require.Equal(t, firstPause, time.Since(began))
		q.failed(a, false) // of memory, which nobody who waits has
		<-a.turn
		require.Equal(t, 3*firstPause, time.Since(began))
		require.Empty(t, b.turn)
		q.failed(a, true)
		_, mine := <-c.turn
		require.False(t, mine, "the last one is to give back what it holds")
		q.leave(c, false)
		<-a.turn
		require.Equal(t, 5*firstPause, time.Since(began), "the pause does not grow where somebody gave way")
		q.failed(a, true)
		_, mine = <-b.turn
		require.False(t, mine)
		for range 12 {
			<-a.turn
			q.failed(a, true)
		}
		began = time.Now()
		<-a.turn
		require.Equal(t, LastPause, time.Since(began))
		d := q.join(true)
		q.failed(a, false)
		began = time.Now()
		Freed()
		<-a.turn
		Freed() // while it tries
		q.failed(a, false)
		<-a.turn
		require.Zero(t, time.Since(began), "it tried too early")
		q.leave(a, true)
		<-d.turn
		require.Zero(t, time.Since(began), "they do not wait for the pause")
		require.True(t, held)
		q.leave(d, true)
		require.False(t, held)
		require.False(t, q.Waiting())
	})
}

// TestOfOthers has clients wait of whom not all hold descriptors: only those that do
// are sent away.
func TestOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(func(bool) {})
		a, b, c, d := q.join(false), q.join(true), q.join(true), q.join(false)
		for _, next := range []*client{c, b} {
			<-a.turn
			q.failed(a, true)
			_, mine := <-next.turn
			require.False(t, mine)
		}
		for pause := firstPause; pause < LastPause; pause *= 2 {
			began := time.Now()
			<-a.turn
			q.failed(a, true) // nobody is left who could give something back
			require.Equal(t, pause, time.Since(began))
		}
		require.Empty(t, d.turn)
		<-a.turn
		q.leave(a, true)
		_, mine := <-d.turn
		require.True(t, mine)
		q.leave(d, true)
		require.False(t, q.Waiting())
	})
}

// TestTell has who waits at that moment hear of a shortage, and nobody later, and
// warns once in a while.
func TestTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(func(bool) {})
		first, second := errors.New("first"), errors.New("second")
		require.True(t, q.Tell(first))
		heard := make(chan error, 1)
		go func() { heard <- <-q.Errors() }()
		synctest.Wait()
		require.False(t, q.Tell(second))
		require.Equal(t, second, <-heard)
		time.Sleep(logged)
		require.True(t, q.Tell(first))
		require.EqualValues(t, 3, q.Count())
		select {
		case err := <-q.Errors():
			t.Fatalf("kept for later: %v", err)
		default:
		}
	})
}
