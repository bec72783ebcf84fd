package asktwice

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var somebody = netip.MustParseAddrPort("192.0.2.1:80")

// requireNobodyAsks sees that nothing is kept when all dials have ended.
func requireNobodyAsks(t *testing.T) {
	t.Helper()
	synctest.Wait()
	require.Zero(t, second.Load())
	listeners.mu.Lock()
	defer listeners.mu.Unlock()
	require.Empty(t, listeners.all)
}

// answerAfter is an attempt of which the first is answered after one time and the second
// after another; 0 is never.
func answerAfter(first, second time.Duration, asked *atomic.Int32) func(context.Context, *Request) (int, error) {
	return func(ctx context.Context, r *Request) (int, error) {
		n := int(asked.Add(1))
		wait := first
		if n == 2 {
			wait = second
		}
		stop := r.Sent()
		defer stop()
		var answer <-chan time.Time
		if wait > 0 {
			answer = time.After(wait)
		}
		select {
		case <-answer:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		if !r.Answered() {
			return 0, ErrOtherAnswer
		}
		return n, nil
	}
}

func TestAnsweredRequestIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		n, err := Dial(t.Context(), somebody, answerAfter(After-time.Millisecond, 0, &asked))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, asked.Load())
	})
}

// Of a lost request the dial hears nothing for seconds: the second is answered.
func TestLostRequestIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		began := time.Now()
		n, err := Dial(t.Context(), somebody, answerAfter(0, time.Millisecond, &asked))
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, After+time.Millisecond, time.Since(began))
		requireNobodyAsks(t)
	})
}

// The answer that comes first counts, and the other is not confirmed.
func TestSlowRequestIsRepeatedAndAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		n, err := Dial(t.Context(), somebody, answerAfter(600*time.Millisecond, time.Second, &asked))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		requireNobodyAsks(t)
		require.EqualValues(t, 2, asked.Load())
	})
}

// Both answers come at the same moment, again and again: one is confirmed.
func TestBothRequestsAreAnswered(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var asked, confirmed atomic.Int32
			attempt := answerAfter(After+time.Millisecond, time.Millisecond, &asked)
			_, err := Dial(t.Context(), somebody, func(ctx context.Context, r *Request) (int, error) {
				n, err := attempt(ctx, r)
				if err == nil {
					confirmed.Add(1)
				}
				return n, err
			})
			require.NoError(t, err)
			synctest.Wait()
			require.EqualValues(t, 1, confirmed.Load())
		})
	}
}

// A listener that answers the second request and ends before that is confirmed ends the dial,
// although the first request was lost.
func TestSecondAnswerInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takenBack := errors.New("taken back")
		began := time.Now()
		_, err := Dial(t.Context(), somebody, func(ctx context.Context, r *Request) (int, error) {
			stop := r.Sent()
			defer stop()
			if r.again != nil {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}
			require.True(t, r.Answered())
			time.Sleep(time.Millisecond)
			return 0, takenBack
		})
		require.ErrorIs(t, err, takenBack)
		require.Equal(t, After+time.Millisecond, time.Since(began))
		requireNobodyAsks(t)
	})
}

// answering has a listener answer dials of others, one every now and then, until stop.
func answering(t *testing.T, to netip.AddrPort) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for ctx.Err() == nil {
			_, _ = Dial(ctx, to, answerAfter(After/2, 0, new(atomic.Int32)))
		}
	})
	return func() {
		cancel()
		others.Wait()
	}
}

// While others are answered the listener is at work, and the request is not lost.
func TestRequestWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := answering(t, somebody)
		var asked atomic.Int32
		n, err := Dial(t.Context(), somebody, answerAfter(10*time.Second, 0, &asked))
		stop()
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.EqualValues(t, 1, asked.Load())
		requireNobodyAsks(t)
	})
}

// What other listeners do says nothing about this one.
func TestOtherListenersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := answering(t, netip.MustParseAddrPort("192.0.2.2:80"))
		began := time.Now()
		var asked atomic.Int32
		n, err := Dial(t.Context(), somebody, answerAfter(0, time.Millisecond, &asked))
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, After+time.Millisecond, time.Since(began))
		stop()
		requireNobodyAsks(t)
	})
}

// A dial that has nothing to ask with a second time waits.
func TestOnlyOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		attempt := answerAfter(time.Minute, 0, &asked)
		n, err := Dial(t.Context(), somebody, func(ctx context.Context, r *Request) (int, error) {
			r.Only()
			return attempt(ctx, r)
		})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.EqualValues(t, 1, asked.Load())
	})
}

func TestFailedRequestEndsTheDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		began := time.Now()
		_, err := Dial(t.Context(), somebody, func(ctx context.Context, r *Request) (int, error) {
			stop := r.Sent()
			defer stop()
			if r.again == nil {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}
			time.Sleep(time.Second)
			return 0, refused
		})
		require.ErrorIs(t, err, refused)
		require.Equal(t, time.Second, time.Since(began), "it does not wait for the second")
		requireNobodyAsks(t)
	})
}

// The second requests of a process are few, however many dials wait.
func TestSecondRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var second atomic.Int32
		for range 1000 {
			go Dial(ctx, somebody, func(ctx context.Context, r *Request) (int, error) {
				stop := r.Sent()
				defer stop()
				if r.again == nil {
					second.Add(1)
				}
				<-ctx.Done()
				return 0, ctx.Err()
			})
		}
		time.Sleep(30 * time.Second)
		require.EqualValues(t, maxSecond, second.Load())
		cancel()
		requireNobodyAsks(t)
	})
}
