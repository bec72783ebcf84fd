package link

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// whileMoving runs f while the client is dialled again, and returns its stream at the next
// listener.
func (h *handOver) whileMoving(t *testing.T, f func()) *Stream {
	t.Helper()
	h.next.mu.Lock() // so that the dial waits
	held := sync.OnceFunc(h.next.mu.Unlock)
	defer held()
	h.leave(t)
	h.awaitMoving(t)
	f()
	held()
	return h.accept(t)
}

// awaitMoving waits until the client is being dialled again.
func (h *handOver) awaitMoving(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		e := h.client.e
		e.mu.Lock()
		defer e.mu.Unlock()
		return h.client.moving()
	}, patience, time.Millisecond)
}

// TestRedialKeepsSettings: what the program has set before or meanwhile holds where the stream is
// then, and what was counted stays.
func TestRedialKeepsSettings(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		eachHandOver(t, func(t *testing.T, h *handOver) {
			h.listenNext(t)
			logger := slog.New(slog.DiscardHandler)
			c, want := h.client, net.KeepAliveConfig{Enable: true, Idle: 77 * time.Second, Interval: time.Second, Count: 3}
			set := func() {
				c.SetBusyPoll(-1)
				c.SetLogger(logger)
				c.SetReadBuffer(4 << 10)
				c.SetKeepAlive(func(net.KeepAliveConfig) net.KeepAliveConfig { return want })
			}
			if !meanwhile {
				set()
			}
			c.out.waiter.parks.Add(1000)
			server := h.whileMoving(t, func() {
				if meanwhile {
					set()
				}
				require.Equal(t, want, c.Status().KeepAlive)
				require.NoError(t, c.Status().Err)
			})
			say(t, server, c)
			s := c.now()
			require.NotSame(t, c.stream, s)
			require.EqualValues(t, -1, s.in.waiter.busyPoll.Load())
			require.Equal(t, want, c.Status().KeepAlive)
			require.GreaterOrEqual(t, c.Status().Parks, uint64(1000))
			require.Eventually(t, func() bool { return c.Status().ReadBuffer == 4<<10 && server.Status().WriteBuffer == 4<<10 }, patience, time.Millisecond)
			s.e.mu.Lock()
			owns := s.e.alive.owns
			require.Same(t, logger, s.log())
			s.e.mu.Unlock()
			require.Equal(t, 1, owns)
			c.SetKeepAlive(func(old net.KeepAliveConfig) net.KeepAliveConfig {
				require.Equal(t, want, old)
				old.Count++
				return old
			})
			require.Equal(t, 4, c.Status().KeepAlive.Count)
			attr, err := c.QueryQP()
			require.NoError(t, err)
			require.NotZero(t, attr)
		})
	}
}

// TestRedialCounts: no count goes down when a stream is dialled again, and bytes count once.
func TestRedialCounts(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		c := h.client
		for range 2 { // the smallest lane has room for no more
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
		}
		var before Status
		server := h.whileMoving(t, func() {
			e := c.e
			e.mu.Lock()
			c.counts.keepAlives += 1000
			c.counts.count().grown += 1000
			e.mu.Unlock()
			before = c.Status()
		})
		_, err := io.ReadFull(server, make([]byte, 2))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return c.now() != c.stream }, patience, time.Millisecond)
		after := c.Status()
		require.Equal(t, before.Written, after.Written)
		require.Greater(t, after.Sent, before.Sent)
		require.Greater(t, after.RecordsSent, before.RecordsSent)
		require.GreaterOrEqual(t, after.RecordsGot, before.RecordsGot)
		require.GreaterOrEqual(t, after.Wakeups+after.Quiet, before.Wakeups+before.Quiet)
		require.GreaterOrEqual(t, after.KeepAlives, before.KeepAlives)
		require.GreaterOrEqual(t, after.Grown, before.Grown)
		require.GreaterOrEqual(t, after.Copied, before.Copied)
		require.GreaterOrEqual(t, after.Placed, before.Placed)
	})
}

// TestRedialCountsOfALaneThatFails: bytes that the next listener has not got either, as its lane has failed, were
// written all the same.
func TestRedialCountsOfALaneThatFails(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		c := h.client
		h.links.cfg.Redial = func(ctx context.Context, dial func(context.Context) error) error {
			if err := dial(ctx); err != nil {
				return err
			}
			server, err := h.next.Accept(ctx)
			if err != nil {
				return err
			}
			server.e.fail(io.ErrUnexpectedEOF)
			_ = server.Close()
			h.links.mu.Lock()
			lanes := slices.Collect(maps.Keys(h.links.lanes))
			h.links.mu.Unlock()
			for _, e := range lanes {
				if e != c.e {
					<-e.done
				}
			}
			return nil
		}
		b, err := c.TakeBuffer()
		require.NoError(t, err)
		if b != nil {
			_, err = c.Send(b, 100)
			b.Free()
		} else {
			_, err = c.Write(make([]byte, 100))
		}
		require.NoError(t, err)
		before := c.Status()
		h.leave(t)
		require.Eventually(t, func() bool { return c.now() != c.stream }, patience, time.Millisecond)
		after := c.Status()
		require.Error(t, after.Err)
		require.EqualValues(t, 100, before.Written)
		require.Equal(t, before.Written, after.Written)
		require.Equal(t, before.Copied, after.Copied)
		require.Equal(t, before.Placed, after.Placed)
	})
}

// TestRedialStalls: a Write that waits until its stream is elsewhere counts as one that waits, while it does
// and afterwards.
func TestRedialStalls(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		wrote := make(chan error, 1)
		var waited time.Duration
		server := h.whileMoving(t, func() {
			go func() {
				_, err := h.client.Write([]byte("x"))
				wrote <- err
			}()
			require.Eventually(t, func() bool {
				waited = h.client.Status().StallTime
				return waited > time.Millisecond
			}, patience, time.Millisecond)
		})
		within(t, "the Write", func() { require.NoError(t, <-wrote) })
		_, err := io.ReadFull(server, make([]byte, 1))
		require.NoError(t, err)
		s := h.client.Status()
		require.EqualValues(t, 1, s.Stalls)
		require.GreaterOrEqual(t, s.StallTime, waited)
	})
}

// TestRedialStallsWhileItMoves: nor does the time go down that it has waited, whenever it is asked for.
func TestRedialStallsWhileItMoves(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		c := h.client
		c.OnFinish(func() {})
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		c.re.home.mu.Lock() // so that it is dialled and no more
		goesOn := sync.OnceFunc(c.re.home.mu.Unlock)
		defer goesOn()
		wrote := make(chan error, 1)
		server := h.whileMoving(t, func() {
			go func() {
				_, err := c.Write([]byte("y"))
				wrote <- err
			}()
			require.Eventually(t, c.out.waiter.waiting, patience, time.Millisecond)
		})
		_, err = io.ReadFull(server, make([]byte, 1))
		require.NoError(t, err)
		h.links.mu.Lock()
		lanes := slices.Collect(maps.Keys(h.links.lanes))
		h.links.mu.Unlock()
		near := lanes[slices.IndexFunc(lanes, func(e *laneEnd) bool { return e != c.e })]
		time.Sleep(20 * time.Millisecond) // the Write before is over
		near.mu.Lock()
		arrives := sync.OnceFunc(near.mu.Unlock)
		defer arrives()
		goesOn()
		require.Eventually(t, func() bool { // what it has counted is taken along
			c.e.mu.Lock()
			defer c.e.mu.Unlock()
			return c.stream.end.finished == nil
		}, patience, time.Millisecond)
		time.Sleep(5 * time.Millisecond) // for which the Write waits
		asked := make(chan Status, 1)
		go func() { asked <- c.Status() }()
		select {
		case s := <-asked:
			asked <- s
		case <-time.After(20 * time.Millisecond): // it is told when the stream is there
		}
		arrives()
		within(t, "the Write", func() { require.NoError(t, <-wrote) })
		before, after := <-asked, c.Status()
		require.EqualValues(t, 1, after.Stalls)
		require.LessOrEqual(t, before.StallTime, after.StallTime)
	})
}

// TestRedialBuffers: a Buffer that was taken before is sent afterwards, also if the first part of
// it was sent before, and one is taken meanwhile.
func TestRedialBuffers(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		if h.links.cfg.MaxRing < 4<<10 {
			t.Skip("a Buffer is larger than the ring")
		}
		h.listenNext(t)
		c := h.client
		b, err := c.TakeBuffer()
		require.NoError(t, err)
		if b == nil {
			t.Skip("Write sends from Go's memory")
		}
		n := 3 * int(h.links.cfg.FirstRing) // more than the place holds
		for i := range b.Bytes()[:n] {
			b.Bytes()[i] = byte(i * 7)
		}
		want := append(append([]byte(nil), b.Bytes()[:n]...), "more"...)
		sent := make(chan error, 1)
		go func() {
			k, err := c.Send(b, n)
			if err == nil && k != n {
				err = io.ErrShortWrite
			}
			b.Free()
			sent <- err
		}()
		require.Eventually(t, c.out.waiter.waiting, patience, time.Millisecond)
		more := make(chan *Buffer, 1)
		server := h.whileMoving(t, func() {
			go func() {
				b, err := c.TakeBuffer()
				if err != nil {
					t.Error(err)
				}
				more <- b
			}()
		})
		got := make([]byte, n)
		within(t, "the Buffer", func() {
			_, err = io.ReadFull(server, got)
			require.NoError(t, err)
			require.NoError(t, <-sent)
			require.Equal(t, want[:n], got)
			b = <-more
			require.NotNil(t, b)
			copy(b.Bytes(), "more")
			_, err = c.Send(b, 4)
			require.NoError(t, err)
			b.Free()
			_, err = io.ReadFull(server, got[:4])
			require.NoError(t, err)
			require.Equal(t, "more", string(got[:4]))
		})
	})
}

// TestRedialInUse: a lane is not loaded by a stream that it has lost.
func TestRedialInUse(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		old := h.client.e
		before := old.inUse.Load()
		server := h.whileMoving(t, func() { require.Equal(t, before-1, old.inUse.Load()) })
		say(t, h.client, server)
		now := h.client.now().e
		require.EqualValues(t, 1, now.inUse.Load())
		require.NoError(t, h.client.Close())
		require.Zero(t, now.inUse.Load())
		require.Equal(t, before-1, old.inUse.Load())
	})
	eachHandOver(t, func(t *testing.T, h *handOver) {
		old := h.client.e
		before := old.inUse.Load()
		h.leave(t)
		_, err := h.client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.NoError(t, h.client.Close())
		require.Equal(t, before-1, old.inUse.Load())
	})
}

// TestRedialFinish: a stream that was closed is not finished before it is known who has it, for
// its process may end then; and FinishWithin bounds that.
func TestRedialFinish(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		done := onFinish(h.client)
		_, err := h.client.Write([]byte("hello"))
		require.NoError(t, err)
		require.NoError(t, h.client.Close())
		e := h.client.e
		require.Eventually(t, func() bool { // the device of the first has the end
			e.mu.Lock()
			defer e.mu.Unlock()
			e.reap()
			e.ends.confirmed()
			return h.client.end.said != 0 && e.sq.completed >= h.client.end.said
		}, patience, time.Millisecond)
		unfinished := func() {
			select {
			case <-done:
				t.Error("it is finished, and nobody has it")
			case <-time.After(5 * time.Millisecond):
			}
		}
		unfinished()
		server := h.whileMoving(t, unfinished)
		requireRead(t, server, "hello")
		requireFinished(t, done)
	})
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		done := onFinish(h.client)
		_, err := h.client.Write([]byte("hello"))
		require.NoError(t, err)
		server := h.whileMoving(t, func() {
			require.NoError(t, h.client.Close())
			h.client.FinishWithin(time.Millisecond)
			requireFinished(t, done)
		})
		requireRead(t, server, "hello")
	})
}

// TestRedialShut: CloseRead and CloseWrite end what waits for them while the stream is dialled
// again, and hold afterwards.
func TestRedialShut(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		n := fill(t, h.client)
		server := h.whileMoving(t, func() {
			read, wrote := make(chan error), make(chan error)
			go func() { _, err := h.client.Read(make([]byte, 1)); read <- err }()
			go func() { _, err := h.client.Write([]byte("x")); wrote <- err }()
			awaitCalls(t, h.client)
			require.NoError(t, h.client.CloseRead())
			require.NoError(t, h.client.CloseWrite())
			within(t, "the calls", func() {
				require.ErrorIs(t, <-read, io.EOF)
				require.ErrorIs(t, <-wrote, syscall.EPIPE)
			})
		})
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Len(t, got, n)
		_, err = h.client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = h.client.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

// TestRedialAnyTime makes calls of all kinds at any time about the swap. What was written before
// the end comes out once and in order, whoever has the stream then.
func TestRedialAnyTime(t *testing.T) {
	for seed := range uint64(10) {
		eachHandOver(t, func(t *testing.T, h *handOver) {
			h.listenNext(t)
			rng := rand.New(rand.NewPCG(seed, 1))
			pause := func() time.Duration { return time.Duration(rng.IntN(3000)) * time.Microsecond }
			c := h.client
			reset := rng.IntN(4) == 0
			done := onFinish(c)
			var calls sync.WaitGroup
			at := func(d time.Duration, f func()) {
				calls.Go(func() {
					time.Sleep(d)
					f()
				})
			}
			wrote := 0
			calls.Go(func() {
				for {
					n, err := c.Write([]byte{byte(wrote), byte(wrote + 1), byte(wrote + 2)})
					if wrote += n; err != nil {
						return
					}
				}
			})
			for range 20 {
				at(pause(), func() { _ = c.SetReadDeadline(time.Now()) })
				at(pause(), func() { _ = c.SetReadDeadline(time.Time{}) })
				at(pause(), func() { c.SetReadBuffer(2048) })
				at(pause(), func() { c.SetKeepAlive(func(k net.KeepAliveConfig) net.KeepAliveConfig { k.Count++; return k }) })
				at(pause(), func() { _, _ = c.Read(make([]byte, 1)) })
				at(pause(), func() { _ = c.Status(); c.LaneStats(); _, _ = c.QueryQP() })
			}
			at(5*time.Millisecond+pause(), func() {
				if reset {
					_ = c.Reset()
				} else {
					_ = c.Close()
				}
			})
			at(pause(), func() { h.leave(t) })
			if reset { // nobody may get it
				within(t, "the calls", func() { calls.Wait(); requireFinished(t, done) })
				return
			}
			server := h.accept(t)
			got, err := io.ReadAll(server)
			if err != nil {
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
			require.NoError(t, server.Close())
			within(t, "the calls", func() { calls.Wait(); requireFinished(t, done) })
			require.NoError(t, err, "nothing was unread at its end")
			require.Len(t, got, wrote)
			for i, b := range got {
				require.Equal(t, byte(i), b)
			}
		})
	}
}

// TestRedialAfterFailure: a stream that has failed for another reason before its listener left has
// told the program, and stays so.
func TestRedialAfterFailure(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		e := h.client.e
		e.mu.Lock()
		h.client.failWith(os.ErrProcessDone)
		e.mu.Unlock()
		h.leave(t)
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return h.client.st.Quiet()
		}, patience, time.Millisecond)
		_, err := h.client.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrProcessDone)
		e.mu.Lock()
		defer e.mu.Unlock()
		require.False(t, h.client.moving())
	})
}

// TestRedialFrames: with checksums what was kept is framed anew, by the sums of its new lane.
func TestRedialFrames(t *testing.T) {
	if cm.DefaultDevice() != "" {
		t.Skip("no two listeners have one address there")
	}
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Checksum = true
		h := beginHandOver(t, cfg)
		h.listenNext(t)
		for _, part := range []string{"hel", "lo"} {
			n, err := h.client.Write([]byte(part))
			require.NoError(t, err)
			require.Equal(t, len(part), n)
		}
		n := 5 + fill(t, h.client)
		h.leave(t)
		server := h.accept(t)
		require.NoError(t, h.client.SetWriteDeadline(time.Time{}))
		require.NoError(t, h.client.CloseWrite())
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Len(t, got, n)
		require.Equal(t, "hello", string(got[:5]))
		require.True(t, server.Checksum())
		require.True(t, h.client.Checksum())
		say(t, server, h.client)
	})
}

// TestRedialOfAStreamThatEnds: the next listener's application may have answered and closed before
// the dialer has put the stream in its place. What it said arrives.
func TestRedialOfAStreamThatEnds(t *testing.T) {
	for _, said := range []string{"", "hi"} {
		t.Run("said="+said, func(t *testing.T) {
			eachHandOver(t, func(t *testing.T, h *handOver) {
				h.listenNext(t)
				h.links.cfg.Redial = func(ctx context.Context, dial func(context.Context) error) error {
					if err := dial(ctx); err != nil {
						return err
					}
					s, err := h.next.Accept(ctx)
					if err != nil {
						return err
					}
					_, _ = s.Write([]byte("bye"))
					_ = s.Close()
					time.Sleep(20 * time.Millisecond) // for the dialer to hear of it, which it need not
					return nil
				}
				h.redialled(0) // which orders the function before its call
				_, err := h.client.Write([]byte(said))
				require.NoError(t, err)
				h.leave(t)
				b, err := io.ReadAll(h.client)
				require.NoError(t, err)
				require.Equal(t, "bye", string(b))
			})
		})
	}
}

// TestRedialKeepsNoMoreThanAPlace: a listener that takes more than that has the stream, whatever it
// says, so that is not dialled again.
func TestRedialKeepsNoMoreThanAPlace(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		s := h.client.stream
		s.e.mu.Lock()
		s.keep(make([]byte, MaxFirstRing))
		require.Len(t, s.re.kept, MaxFirstRing)
		s.keep([]byte{1})
		require.Empty(t, s.re.kept)
		s.keep([]byte{1})
		require.Empty(t, s.re.kept)
		s.e.mu.Unlock()
		h.leave(t)
		_, err := h.client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

// TestAwaitEndWhileMoving: what was written is safe when the next listener has the stream, and not before.
func TestAwaitEndWhileMoving(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		_, err := h.client.Write([]byte("hello"))
		require.NoError(t, err)
		safe := make(chan bool, 1)
		server := h.whileMoving(t, func() {
			require.NoError(t, h.client.Close())
			go func() { safe <- h.client.AwaitEnd() }()
			select {
			case <-safe:
				t.Error("with this process what was written would be lost")
				safe <- false
			case <-time.After(50 * time.Millisecond): // which is what a defect has to be seen in
			}
		})
		within(t, "the end", func() { require.True(t, <-safe) })
		b, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, "hello", string(b))
	})
}

// TestAwaitEndOfOneThatNobodyTakes: it waits no longer than the dial does, by which the stream has failed.
func TestAwaitEndOfOneThatNobodyTakes(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		refuse := h.closeWhileMoving(t)
		time.AfterFunc(10*time.Millisecond, refuse) // AwaitEnd waits by then, as a rule
		within(t, "the end", func() { require.True(t, h.client.AwaitEnd(), "it went on to wait") })
	})
}

// TestAwaitEndBehindOneThatNobodyTook: many that are closed one after the other do not each wait in vain for as long
// as the first has.
func TestAwaitEndBehindOneThatNobodyTook(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		refuse := h.closeWhileMoving(t)
		e := h.client.e
		e.owner.endsGivenUp(e).at.Store(int64(time.Since(epoch) + patience)) // recent, however slow this machine is
		began := time.Now()
		within(t, "the end", func() { require.False(t, h.client.AwaitEnd()) })
		require.Less(t, time.Since(began), roomPatience)
		refuse()
	})
}

// closeWhileMoving has the client written to, and closed while it is dialled again, which goes on until refuse is called.
func (h *handOver) closeWhileMoving(t *testing.T) (refuse func()) {
	t.Helper()
	waits := make(chan struct{})
	refuse = sync.OnceFunc(func() { close(waits) })
	t.Cleanup(refuse)
	h.links.cfg.Redial = func(context.Context, func(context.Context) error) error {
		<-waits
		return syscall.ECONNREFUSED
	}
	_, err := h.client.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, h.client.Close())
	h.leave(t)
	h.awaitMoving(t)
	return refuse
}
