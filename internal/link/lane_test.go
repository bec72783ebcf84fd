package link

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// say and hear move one message.
func say(t *testing.T, from, to *Stream) {
	t.Helper()
	_, err := from.Write([]byte("hello"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(to, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
}

// TestKilledQP: when the QP of either end fails, everybody who waits is told at both ends,
// and the next dial makes another link.
func TestKilledQP(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.KeepAlive = soonAsked
		for _, dialers := range []bool{true, false} {
			b := newBed(t, cfg)
			var ends []*Stream
			for range 5 {
				client, server := b.pair()
				ends = append(ends, client, server)
			}
			within(t, "calls on a lane that has failed", func() {
				all(killCalls(t, ends, func() {
					s := ends[1]
					if dialers {
						s = ends[0]
					}
					require.NoError(t, s.e.p.qp.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
				})...)
			})
			client, server := b.pair()
			say(t, client, server)
			require.NotSame(t, ends[0].e, client.e)
		}
	})
}

// TestEndedLaneKeepsNoTables: a program that keeps a closed stream of a lane that has ended keeps
// no tables of all streams that the lane might have had.
func TestEndedLaneKeepsNoTables(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	client.e.fail(errors.New("ended by the test"))
	for _, s := range []*Stream{client, server} {
		<-s.e.done
		kept := func() bool {
			s.e.mu.Lock()
			defer s.e.mu.Unlock()
			return s.e.streams != nil || s.e.listener.places != nil
		}
		require.True(t, kept(), "the stream is open")
		require.NoError(t, s.Close())
		require.False(t, kept())
	}
}

// TestEndedLanesAreCollected: nothing refers to a lane that has ended, neither its links nor its
// listener, which go on.
func TestEndedLanesAreCollected(t *testing.T) {
	b := newBed(t, Config{Idle: time.Hour})
	var there atomic.Int32
	func() {
		for range 10 {
			client, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()}) // of which b keeps nothing
			require.NoError(t, err)
			server, err := b.l.Accept(b.ctx())
			require.NoError(t, err)
			say(t, client, server)
			for _, s := range []*Stream{client, server} {
				there.Add(1)
				runtime.AddCleanup(s.e, func(by int32) { there.Add(by) }, -1)
			}
			client.e.fail(errors.New("ended by the test"))
			for _, s := range []*Stream{client, server} {
				<-s.e.done
				require.NoError(t, s.Close())
			}
		}
	}()
	require.True(t, leaktest.Collected(func() bool { return there.Load() == 0 }), "ends of lanes are kept")
	require.NoError(t, b.l.Close()) // it was there all the time
}

// TestDisconnected: the connection manager's word alone, with no completion, ends the lane for
// a call that sleeps in the channel, and only behind what had arrived.
func TestDisconnected(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		for _, words := range []string{"", "last words"} {
			if words != "" && (os.Getenv("RDMANET_TEST_ADDR") != "" || strings.HasPrefix(cfg.CM.Device, "late0-remote")) {
				continue // what was written may not have arrived when the word comes
			}
			b := newBed(t, cfg)
			client, server := b.pair()
			say(t, client, server)
			within(t, "a call on a lane that has ended", func() {
				all(func() {
					got, err := io.ReadAll(server)
					requireDead(t, server, err)
					require.Equal(t, words, string(got))
				}, func() {
					require.Eventually(t, server.in.waiter.inChannel.Load, patience, time.Millisecond)
					if words != "" {
						_, err := client.Write([]byte(words))
						require.NoError(t, err)
					}
					server.e.event(&cm.Event{Type: cm.Disconnected})
				})
			})
		}
	})
}

// soonAsked is for a lane over a network that dies while nobody sends: there it is what becomes of the
// keepalive's request that tells.
var soonAsked = net.KeepAliveConfig{Enable: true, Idle: 50 * time.Millisecond, Interval: time.Second, Count: 30}

// killCalls returns calls that wait on all ends, half of them in Read and half in Write, and
// one that kills when they do. Each must fail.
func killCalls(t *testing.T, ends []*Stream, kill func()) (fs []func()) {
	var waiting atomic.Int32
	for i, s := range ends {
		if i/2%2 == 0 {
			fs = append(fs, func() {
				waiting.Add(1)
				_, err := s.Read(make([]byte, 1))
				requireDead(t, s, err)
			})
			continue
		}
		fs = append(fs, func() {
			waiting.Add(1)
			var err error
			for err == nil {
				_, err = s.Write(make([]byte, 1<<16))
			}
			requireDead(t, s, err)
		})
	}
	return append(fs, func() {
		for int(waiting.Load()) < len(ends) {
			runtime.Gosched()
		}
		time.Sleep(5 * time.Millisecond) // so that most of them wait; all must be told anyway
		kill()
	})
}

// requireDead sees that err is what a stream has whose lane is dead. Over a network the peer's device
// may be found not to answer.
func requireDead(t *testing.T, s *Stream, err error) {
	t.Helper()
	if !s.e.p.sameHost && errors.Is(err, syscall.ETIMEDOUT) {
		requireTimedOut(t, err)
		return
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// TestListenerCloses: streams that were accepted go on, others are reset, dials that come
// later are refused, and the next listener at the address gets another link.
func TestListenerCloses(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		waiting := b.dial()
		defer waiting.Close()
		require.NoError(t, b.l.Close())
		require.ErrorIs(t, b.l.Close(), net.ErrClosed)
		_, err := b.l.Accept(b.ctx())
		require.ErrorIs(t, err, net.ErrClosed)
		within(t, "a stream that nobody accepted", func() {
			_, err := waiting.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		})
		for range 10 {
			say(t, client, server)
			say(t, server, client)
		}
		ctx, cancel := context.WithTimeout(b.ctx(), patience)
		defer cancel()
		_, err = b.links.Dial(ctx, Target{Dst: b.l.Addr()})
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded)

		l, err := Listen(cfg, b.l.Addr())
		require.NoError(t, err)
		defer l.Close()
		again, err := b.links.Dial(ctx, Target{Dst: b.l.Addr()})
		require.NoError(t, err)
		defer again.Close()
		other, err := l.Accept(ctx)
		require.NoError(t, err)
		defer other.Close()
		say(t, again, other)
		say(t, client, server)
	})
}

// TestBacklog: dials beyond the backlog wait, each until its own end, and go on in order as
// streams are accepted.
func TestBacklog(t *testing.T) {
	cfg := Config{Backlog: 2, Places: 2}
	b := newBed(t, cfg)
	var ends []*Stream
	defer func() {
		for _, s := range ends {
			_ = s.Close()
		}
	}()
	for range 2 {
		ends = append(ends, b.dial())
	}
	ctx, cancel := context.WithCancelCause(b.ctx())
	left := errors.New("has left")
	time.AfterFunc(20*time.Millisecond, func() { cancel(left) })
	_, err := b.links.Dial(ctx, Target{Dst: b.l.Addr()})
	require.ErrorIs(t, err, left)

	got := make(chan *Stream)
	go func() {
		s, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
		require.NoError(t, err)
		got <- s
	}()
	select {
	case <-got:
		t.Fatal("a dial went beyond the backlog")
	case <-time.After(20 * time.Millisecond):
	}
	ends = append(ends, b.accept())
	within(t, "the dial that has waited", func() { ends = append(ends, <-got) })
}

// TestRecall: places that one dialer keeps in store go to another that waits.
func TestRecall(t *testing.T) {
	cfg := Config{Backlog: 4, Places: 4}
	b := newBed(t, cfg)
	first, second := b.pair()
	say(t, first, second)
	links := b.anotherLinks()
	within(t, "dials beside a link that holds all places", func() {
		for range 3 {
			s, err := links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
			require.NoError(t, err)
			defer s.Close()
		}
	})
	require.NotSame(t, first.e, second.e)
}

// TestChurn opens and closes streams, one after the other and at once: ids are used again,
// and so is memory.
func TestChurn(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Streams = 100
		cfg.Budget = budgetOf(4 << 20)
		b := newBed(t, cfg)
		go func() {
			for {
				s, err := b.l.Accept(b.ctx())
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(writerOnly{s}, readerOnly{s})
					_ = s.Close()
				}()
			}
		}()
		within(t, "churn", func() {
			var fs []func()
			for range 8 {
				fs = append(fs, func() {
					for range 100 {
						s := b.dial()
						say(t, s, s)
						require.NoError(t, s.Close())
					}
				})
			}
			all(fs...)
		})
		require.NoError(t, b.l.Close())
		require.NoError(t, b.links.Close())
		require.Eventually(t, func() bool { return cfg.Budget.InUse() == 0 }, patience, 5*time.Millisecond, "memory is left")
	})
}

// TestIdle: nobody polls a lane whose streams all wait. What processor time that takes
// TestTimingIdle measures, where nothing else runs.
func TestIdle(t *testing.T) { testIdle(t, func() {}) }

// testIdle calls idle while all wait.
func testIdle(t *testing.T, idle func()) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		var ends []*Stream
		var fs []func()
		for range 10 {
			client, server := b.pair()
			ends = append(ends, client, server)
			for _, s := range []*Stream{client, server} {
				fs = append(fs, func() {
					_, err := s.Read(make([]byte, 1))
					if !errors.Is(err, net.ErrClosed) { // the other end may be first
						require.ErrorIs(t, err, io.EOF)
					}
				})
			}
		}
		fs = append(fs, func() {
			quiet := func(e *laneEnd) bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				asleep := e.polling.role.Holds(0)
				for _, w := range e.polling.calls {
					asleep = asleep || w != nil && w.inChannel.Load()
				}
				return asleep && len(e.polling.calls)-len(e.polling.unused) == 10
			}
			require.Eventually(t, func() bool { return quiet(ends[0].e) && quiet(ends[1].e) }, patience, time.Millisecond)
			idle()
			for _, s := range ends {
				_ = s.Close()
			}
		})
		within(t, "reads that end", func() { all(fs...) })
	})
}

// TestAfterAConversation: an end that was in a conversation, and is in no call any more, still
// takes in what its peer sends, whatever the last call has left behind.
func TestAfterAConversation(t *testing.T) {
	mostlyWaits(t)
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		for range 5 {
			client, server := b.pair()
			for range 100 {
				say(t, client, server)
				say(t, server, client)
			}
			n := int(b.l.cfg.FirstRing)
			within(t, "writing to who is in no call", func() {
				for range n / 4 { // many more than there are receives
					_, err := server.Write(make([]byte, 4))
					require.NoError(t, err)
				}
			})
			got := make([]byte, n)
			_, err := io.ReadFull(client, got)
			require.NoError(t, err)
		}
	})
}

// TestOneProcessor: with one processor nobody can poll for what another has to do.
func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b := newBed(t, Config{})
	client, server := b.pair()
	within(t, "echoes on one processor", func() {
		all(func() {
			for range 200 {
				say(t, client, client)
			}
		}, func() {
			for range 200 {
				_, err := io.CopyN(writerOnly{server}, readerOnly{server}, 5)
				require.NoError(t, err)
			}
		})
	})
}
