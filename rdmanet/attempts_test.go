package rdmanet

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A trialConn is a connection that knows how it was closed.
type trialConn struct {
	net.Conn
	reset, closed atomic.Bool
}

func (c *trialConn) SetLinger(int) error { c.reset.Store(true); return nil }
func (c *trialConn) Close() error        { c.closed.Store(true); return nil }

// attempt is a dial that takes so long and ends so.
type attempt struct {
	after time.Duration
	conn  *trialConn
	err   error
	deaf  bool // it does not hear that it was cancelled

	began int64 // read when the race is over
}

func (a *attempt) dial(ctx context.Context) (net.Conn, error) {
	a.began = time.Now().UnixNano()
	done := ctx.Done()
	if a.deaf {
		done = nil
	}
	select {
	case <-time.After(a.after):
	case <-done:
		return nil, ctx.Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	return a.conn, nil
}

var errFirst, errSecond = errors.New("first"), errors.New("second")

func TestRace(t *testing.T) {
	const headStart, long = 250 * time.Millisecond, time.Hour
	for _, tt := range []struct {
		name              string
		first, second     attempt
		timeout           time.Duration // of the context
		cancelAt          time.Duration
		want              int // which connection
		firstErr          error
		secondErr         error
		took, secondBegan time.Duration // -1 is never
	}{
		{name: "first at once", first: attempt{after: 0}, want: 1, secondBegan: -1},
		{name: "first just in time", first: attempt{after: headStart - 1}, want: 1, took: headStart - 1, secondBegan: -1},
		{name: "first fails at once", first: attempt{err: errFirst}, second: attempt{after: time.Second}, want: 2, firstErr: errFirst, took: time.Second},
		{name: "first fails before its head start ends", first: attempt{after: 100 * time.Millisecond, err: errFirst}, want: 2, firstErr: errFirst, took: 100 * time.Millisecond, secondBegan: 100 * time.Millisecond},
		{name: "first is slow", first: attempt{after: long}, second: attempt{after: time.Second}, want: 2, firstErr: ErrSlow, took: headStart + time.Second, secondBegan: headStart},
		{name: "first is slow, and sooner all the same", first: attempt{after: time.Second}, second: attempt{after: time.Second}, want: 1, took: time.Second, secondBegan: headStart},
		{name: "both are there, but the first is preferred", first: attempt{after: time.Second, deaf: true}, second: attempt{after: 500 * time.Millisecond}, want: 1, took: time.Second, secondBegan: headStart},
		{name: "second is deaf", first: attempt{after: time.Second}, second: attempt{after: 2 * time.Second, deaf: true}, want: 1, took: time.Second, secondBegan: headStart},
		{name: "first fails late", first: attempt{after: time.Second, err: errFirst}, second: attempt{after: 2 * time.Second}, want: 2, firstErr: errFirst, took: headStart + 2*time.Second, secondBegan: headStart},
		{name: "both fail", first: attempt{after: time.Second, err: errFirst}, second: attempt{after: 10 * time.Millisecond, err: errSecond}, firstErr: errFirst, secondErr: errSecond, took: time.Second, secondBegan: headStart},
		{name: "second fails and first does not", first: attempt{after: time.Second}, second: attempt{after: 10 * time.Millisecond, err: errSecond}, want: 1, took: time.Second, secondBegan: headStart},
		{name: "little time", first: attempt{after: long}, timeout: 100 * time.Millisecond, want: 2, firstErr: ErrSlow, took: 50 * time.Millisecond, secondBegan: 50 * time.Millisecond},
		{name: "no answer", first: attempt{after: long}, second: attempt{after: long}, timeout: time.Second, firstErr: context.DeadlineExceeded, secondErr: context.DeadlineExceeded, took: time.Second, secondBegan: headStart},
		{name: "given up", first: attempt{after: long}, second: attempt{after: long}, cancelAt: time.Second, firstErr: context.Canceled, secondErr: context.Canceled, took: time.Second, secondBegan: headStart},
		{name: "given up early", first: attempt{after: long}, second: attempt{after: long}, cancelAt: time.Millisecond, firstErr: context.Canceled, secondErr: context.Canceled, took: time.Millisecond, secondBegan: time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if tt.timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
				}
				defer cancel()
				if tt.cancelAt > 0 {
					time.AfterFunc(tt.cancelAt, cancel)
				}
				tt.first.conn, tt.second.conn = new(trialConn), new(trialConn)
				began := time.Now()
				conn, firstErr, secondErr := race(ctx, headStart, tt.first.dial, tt.second.dial)
				require.Equal(t, tt.took, time.Since(began))
				switch tt.want {
				case 1:
					require.Same(t, tt.first.conn, conn)
				case 2:
					require.Same(t, tt.second.conn, conn)
				default:
					require.Nil(t, conn)
				}
				require.ErrorIs(t, firstErr, tt.firstErr)
				require.ErrorIs(t, secondErr, tt.secondErr)
				if at := tt.second.began; tt.secondBegan < 0 {
					require.Zero(t, at)
				} else {
					require.Equal(t, tt.secondBegan, time.Unix(0, at).Sub(began))
				}
				time.Sleep(2 * long) // and whatever is still under way ends
				for i, c := range []*trialConn{tt.first.conn, tt.second.conn} {
					if i+1 == tt.want {
						require.False(t, c.closed.Load(), "the connection that won is closed")
					} else {
						require.Equal(t, c.closed.Load(), c.reset.Load())
					}
				}
				if tt.second.deaf {
					require.True(t, tt.second.conn.reset.Load(), "a connection that came too late is left open")
				}
			})
		})
	}
}

// TestKeepAhead has a longer head start end by its time, by half of a deadline, and at once when the first
// attempt has failed or the race has ended. The first that succeeds keeps the second from beginning at all.
func TestKeepAhead(t *testing.T) {
	const longer = 2 * time.Second
	for _, tt := range []struct {
		name                     string
		since                    time.Duration // the race has begun so long ago
		timeout, endsAt, givenUp time.Duration // 0: it does not
		err                      error         // of the first attempt, when it ends
		elsewhere                bool
		want                     time.Duration
	}{
		{name: "all of it", want: longer},
		{name: "the rest of it", since: time.Second, want: time.Second},
		{name: "none is left", since: time.Minute, want: 0},
		{name: "much time", timeout: time.Hour, want: longer},
		{name: "little time", timeout: time.Second, want: 500 * time.Millisecond},
		{name: "the rest of little time", since: 200 * time.Millisecond, timeout: 800 * time.Millisecond, want: 300 * time.Millisecond},
		{name: "the first has failed", endsAt: time.Second, err: ErrNoDevice, want: time.Second},
		{name: "the first was there", endsAt: time.Second, givenUp: time.Second + time.Millisecond, want: time.Second + time.Millisecond},
		{name: "given up", givenUp: time.Second, want: time.Second},
		{name: "another host", elsewhere: true, want: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var began time.Time
				ahead, behind := keepAhead(longer, func() bool { return !tt.elsewhere },
					func(ctx context.Context) (net.Conn, error) {
						if tt.endsAt > 0 {
							time.Sleep(tt.since + tt.endsAt)
							return nil, tt.err
						}
						<-ctx.Done()
						return nil, ctx.Err()
					},
					func(ctx context.Context) (net.Conn, error) {
						began = time.Now()
						return nil, ctx.Err()
					})
				firstCtx, cancelFirst := context.WithCancel(t.Context())
				go func() { _, _ = ahead(firstCtx) }()
				time.Sleep(tt.since)
				ctx, cancel := context.WithCancel(t.Context())
				if tt.timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
				}
				defer cancel()
				if tt.givenUp > 0 {
					defer time.AfterFunc(tt.givenUp, cancel).Stop()
				}
				now := time.Now()
				_, err := behind(ctx)
				require.Equal(t, tt.want, began.Sub(now))
				require.Equal(t, tt.givenUp > 0, err != nil, "what the race has given up dials nobody")
				cancelFirst()
			})
		})
	}
}
