package link

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCloseRead: Reads that wait return io.EOF and what has arrived can be read; the peer is
// told when nothing is written any more either.
func TestCloseRead(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		within(t, "a Read", func() {
			all(func() {
				_, err := client.Read(make([]byte, 1))
				require.Equal(t, io.EOF, err)
			}, func() {
				require.Eventually(t, client.in.waiter.waiting, patience, time.Millisecond)
				require.NoError(t, client.CloseRead())
				require.NoError(t, client.CloseRead())
			})
		})
		_, err := server.Write([]byte("late"))
		require.NoError(t, err, "the peer is not told")
		buffered(t, client, 4)
		got := make([]byte, 8)
		n, err := client.Read(got)
		require.NoError(t, err)
		require.Equal(t, "late", string(got[:n]))
		_, err = client.Write([]byte("still"))
		require.NoError(t, err)
		require.NoError(t, client.CloseWrite())
		all5, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, "still", string(all5))
		within(t, "Writes to who reads and writes no more", func() {
			for err = nil; err == nil; {
				_, err = server.Write([]byte("x"))
			}
			require.ErrorIs(t, err, syscall.EPIPE)
		})
	})
}

// TestShutTwice: there is nothing to shut when both ends have said their last byte.
func TestShutTwice(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	require.NoError(t, client.CloseWrite())
	_, err := server.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	require.NoError(t, server.CloseWrite())
	require.ErrorIs(t, server.CloseWrite(), syscall.ENOTCONN)
	require.ErrorIs(t, server.CloseRead(), syscall.ENOTCONN)
}

// TestOnFinish: a stream is finished when it is closed and its peer has taken note, and one
// whose lane has ended when it is closed.
func TestOnFinish(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		other, _ := b.pair()
		finished := make(chan *Stream, 3)
		for _, s := range []*Stream{client, server, other} {
			s.OnFinish(func() { finished <- s })
		}
		next := func() *Stream {
			select {
			case s := <-finished:
				return s
			case <-time.After(patience):
				t.Fatal("not finished")
				return nil
			}
		}
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, client.Close())
		require.Same(t, client, next())
		require.NoError(t, server.Close())
		require.Same(t, server, next())
		other.e.fail(errGone)
		require.NoError(t, other.Close())
		require.Same(t, other, next())
	})
}

// TestStatus is what can be seen of a stream.
func TestStatus(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	_, err := client.Write(make([]byte, 100))
	require.NoError(t, err)
	buffered(t, server, 100)
	_, err = server.Read(make([]byte, 30))
	require.NoError(t, err)
	s := server.Status()
	require.EqualValues(t, 30, s.Read)
	require.EqualValues(t, 1, s.Received)
	require.Equal(t, 70, s.Unread)
	require.Equal(t, DefaultFirstRing, s.ReadBuffer)
	c := client.Status()
	require.EqualValues(t, 100, c.Written)
	require.EqualValues(t, 1, c.Sent)
	require.Zero(t, c.Stalls)
	require.Equal(t, DefaultFirstRing, c.WriteBuffer)
	require.NoError(t, c.Err)
	require.NotEmpty(t, client.Device())
	require.NoError(t, client.CloseWrite())
	require.Eventually(t, func() bool { return server.Status().Ended }, patience, time.Millisecond)
	require.True(t, client.Status().Shut)
	client.e.fail(errGone)
	require.ErrorIs(t, client.Status().Err, syscall.ECONNRESET)
}

// TestStatusOfWaits: a Write that waits for room counts as it waits, and sleeps are counted.
func TestStatusOfWaits(t *testing.T) {
	b := newBed(t, Config{FirstRing: 1 << 10, MaxRing: 1 << 10})
	client, server := b.pair()
	written := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, 64<<10))
		written <- err
	}()
	require.Eventually(t, func() bool {
		s := client.Status()
		return s.Stalls > 0 && s.StallTime > 10*time.Millisecond && s.Parks > 0
	}, patience, time.Millisecond)
	_, err := io.ReadFull(server, make([]byte, 64<<10))
	require.NoError(t, err)
	require.NoError(t, <-written)
	s := client.Status()
	require.Positive(t, s.Stalls)
	require.GreaterOrEqual(t, s.StallTime, 10*time.Millisecond)
	require.GreaterOrEqual(t, s.Sent, uint64(64))
}

// TestCloseLooks: what has come when a stream is closed is unread, though no call has taken
// it in yet.
func TestCloseLooks(t *testing.T) {
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		t.Skip("on a network what was written has not come when Write returns")
	}
	b := newBed(t, Config{})
	for range 50 {
		client, server := b.pair()
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		_, err = server.Read(make([]byte, 1)) // the device knows the ring from now on
		require.NoError(t, err)
		require.Eventually(t, func() bool { // nobody polls any more, and a Close does not wait for that
			e := server.e
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.polling.role.Holds(0)
		}, patience, 100*time.Microsecond)
		_, err = client.Write([]byte("unread"))
		require.NoError(t, err)
		require.NoError(t, server.Close())
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
}

// TestBusyPoll: a call polls for as long as it was told to, and never sleeps if that is long.
func TestBusyPoll(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	// read is a Read for which there is something later. It reports whether it has slept.
	read := func(wait func(parks uint64)) bool {
		parks := client.Status().Parks
		done := make(chan error, 1)
		go func() {
			_, err := client.Read(make([]byte, 1))
			done <- err
		}()
		wait(parks)
		_, err := server.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, <-done)
		return client.Status().Parks > parks
	}
	client.SetBusyPoll(-1)
	read(func(parks uint64) {
		require.Eventually(t, func() bool { return client.Status().Parks > parks }, patience, time.Millisecond)
	})
	if runtime.GOMAXPROCS(0) == 1 { // nobody polls
		return
	}
	client.SetBusyPoll(time.Hour)
	awake := func(uint64) { time.Sleep(20 * time.Millisecond) } // longer than it polls by itself
	for began := time.Now(); read(awake); {                     // nor while others poll with all processors
		require.Less(t, time.Since(began), patience, "it sleeps")
	}
}
