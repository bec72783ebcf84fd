package rdmanet

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// quietly runs f with synthetic time in a process whose dials nobody has answered yet.
func quietly(t *testing.T, f func(t *testing.T)) {
	was := lastAnswer.Swap(0)
	t.Cleanup(func() { lastAnswer.Store(was) })
	synctest.Test(t, f)
}

// answerAfter is an attempt of which the first is answered after one time and the second
// after another; 0 is never.
func answerAfter(first, second time.Duration, asked *atomic.Int32) func(context.Context, *asking) (int, error) {
	return func(ctx context.Context, a *asking) (int, error) {
		n := int(asked.Add(1))
		wait := first
		if n == 2 {
			wait = second
		}
		stop := a.sent()
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
		if !a.claim() {
			return 0, errOtherAnswer
		}
		return n, nil
	}
}

func TestAnsweredRequestIsNotRepeated(t *testing.T) {
	quietly(t, func(t *testing.T) {
		var asked atomic.Int32
		n, err := askTwice(t.Context(), answerAfter(askAgainAfter-time.Millisecond, 0, &asked))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, asked.Load())
	})
}

// Of a lost request the dial hears nothing for seconds: the second is answered.
func TestLostRequestIsRepeated(t *testing.T) {
	quietly(t, func(t *testing.T) {
		var asked atomic.Int32
		began := time.Now()
		n, err := askTwice(t.Context(), answerAfter(0, time.Millisecond, &asked))
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, askAgainAfter+time.Millisecond, time.Since(began))
		synctest.Wait()
		require.Zero(t, len(secondAsks))
	})
}

// The answer that comes first counts, and the other is not confirmed.
func TestSlowRequestIsRepeatedAndAnswered(t *testing.T) {
	quietly(t, func(t *testing.T) {
		var asked atomic.Int32
		n, err := askTwice(t.Context(), answerAfter(600*time.Millisecond, time.Second, &asked))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		synctest.Wait()
		require.EqualValues(t, 2, asked.Load())
		require.Zero(t, len(secondAsks), "the second has ended")
	})
}

// Both answers come at the same moment, again and again: one is confirmed.
func TestBothRequestsAreAnswered(t *testing.T) {
	for range 200 {
		quietly(t, func(t *testing.T) {
			var asked, confirmed atomic.Int32
			attempt := answerAfter(askAgainAfter+time.Millisecond, time.Millisecond, &asked)
			_, err := askTwice(t.Context(), func(ctx context.Context, a *asking) (int, error) {
				n, err := attempt(ctx, a)
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
	quietly(t, func(t *testing.T) {
		takenBack := errors.New("taken back")
		began := time.Now()
		_, err := askTwice(t.Context(), func(ctx context.Context, a *asking) (int, error) {
			stop := a.sent()
			defer stop()
			if a.again != nil {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}
			require.True(t, a.claim())
			time.Sleep(time.Millisecond)
			return 0, takenBack
		})
		require.ErrorIs(t, err, takenBack)
		require.Equal(t, askAgainAfter+time.Millisecond, time.Since(began))
		synctest.Wait()
		require.Zero(t, len(secondAsks))
	})
}

// While others are answered the listener is at work, and the request is not lost.
func TestRequestWaitsItsTurn(t *testing.T) {
	quietly(t, func(t *testing.T) {
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-time.After(askAgainAfter / 2):
					noteAnswer()
				case <-stop:
					return
				}
			}
		}()
		var asked atomic.Int32
		n, err := askTwice(t.Context(), answerAfter(10*time.Second, 0, &asked))
		close(stop)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.EqualValues(t, 1, asked.Load())
	})
}

func TestFailedRequestEndsTheDial(t *testing.T) {
	quietly(t, func(t *testing.T) {
		refused := errors.New("refused")
		began := time.Now()
		_, err := askTwice(t.Context(), func(ctx context.Context, a *asking) (int, error) {
			stop := a.sent()
			defer stop()
			if a.again == nil {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}
			time.Sleep(time.Second)
			return 0, refused
		})
		require.ErrorIs(t, err, refused)
		require.Equal(t, time.Second, time.Since(began), "it does not wait for the second")
		synctest.Wait()
		require.Zero(t, len(secondAsks))
	})
}

// The second requests of a process are few, however many dials wait.
func TestSecondRequestsAreBounded(t *testing.T) {
	quietly(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var second atomic.Int32
		for range 1000 {
			go askTwice(ctx, func(ctx context.Context, a *asking) (int, error) {
				stop := a.sent()
				defer stop()
				if a.again == nil {
					second.Add(1)
				}
				<-ctx.Done()
				return 0, ctx.Err()
			})
		}
		time.Sleep(30 * time.Second)
		require.EqualValues(t, maxSecondAsks, second.Load())
		cancel()
		synctest.Wait()
		require.Zero(t, len(secondAsks))
	})
}
