package rdmanet

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endless is a source that never ends and a sink that takes all.
type endless struct{}

func (endless) Read(p []byte) (int, error)  { return len(p), nil }
func (endless) Write(p []byte) (int, error) { return len(p), nil }

// racers are calls that go on until the connection is closed.
var racers = []struct {
	name string
	call func(c *Conn) error
}{
	{"Read", func(c *Conn) error { _, err := c.Read(make([]byte, 10)); return err }},
	{"Write", func(c *Conn) error { _, err := c.Write(make([]byte, 1<<20)); return err }},
	{"ReadFrom", func(c *Conn) error { _, err := c.ReadFrom(endless{}); return err }},
	{"WriteTo", func(c *Conn) error { _, err := c.WriteTo(endless{}); return err }},
	{"Peek and Discard", func(c *Conn) error {
		if _, err := c.Peek(1); err != nil {
			return err
		}
		_, err := c.Discard(1)
		return err
	}},
	{"Discard", func(c *Conn) error { _, err := c.Discard(1 << 20); return err }},
	{"Reserve and Commit", func(c *Conn) error {
		b, err := c.Reserve(MaxReserve)
		if err != nil {
			return err
		}
		return c.Commit(len(b))
	}},
	{"SetDeadline", func(c *Conn) error { return c.SetDeadline(time.Now().Add(time.Hour)) }},
	{"SetReadBuffer", func(c *Conn) error { return c.SetReadBuffer(1 << 20) }},
}

// TestCloseDuring closes one end while every kind of call is inside it, early and
// late in the call.
func TestCloseDuring(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	eachFlavour(t, func(t *testing.T, fl flavour) {
		for _, r := range racers {
			t.Run(r.name, func(t *testing.T) {
				for round := range rounds {
					client, server := fl.pair(t)
					if round%2 == 1 {
						// Somebody at the other end, so that the call has things to do.
						go func() { _, _ = io.Copy(server, server) }()
						go func() { _, _ = client.Write(make([]byte, 100)) }()
					}
					done := make(chan error, 2)
					for range 2 {
						go func() {
							for {
								if err := r.call(client); err != nil {
									done <- err
									return
								}
							}
						}()
					}
					for range round {
						runtime.Gosched()
					}
					require.NoError(t, client.Close())
					for range 2 {
						select {
						case err := <-done:
							// Calls of the same kind may meet what the other reserved.
							if !errors.Is(err, ErrReservation) {
								require.ErrorIs(t, err, net.ErrClosed)
							}
						case <-time.After(2 * patience):
							t.Fatal("still inside")
						}
					}
					require.ErrorIs(t, client.Close(), net.ErrClosed)
					require.NoError(t, server.Close())
				}
			})
		}
	})
}

// TestCloseOnce has many closers, of which one is the one.
func TestCloseOnce(t *testing.T) {
	for range 20 {
		client, server := pair(t)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var first int
		for i := range 8 {
			c := client
			if i%2 == 1 {
				c = server
			}
			wg.Go(func() {
				err := c.Close()
				if err == nil {
					mu.Lock()
					first++
					mu.Unlock()
				} else {
					assert.ErrorIs(t, err, net.ErrClosed)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 2, first)
	}
}

// TestCloseListenerDuring closes a listener under Accepts and Dials.
func TestCloseListenerDuring(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		for round := range 20 {
			l, err := fl.listen.listen(context.Background(), "rdma", testAddr())
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for {
						c, err := l.Accept()
						if err != nil {
							assert.ErrorIs(t, err, net.ErrClosed)
							return
						}
						assert.NoError(t, c.Close())
					}
				})
				wg.Go(func() {
					for {
						c, err := fl.dialer.Dial("rdma", l.Addr().String())
						if err != nil {
							var op *net.OpError
							assert.ErrorAs(t, err, &op)
							return
						}
						assert.NoError(t, c.Close())
					}
				})
			}
			wg.Go(func() {
				for l.SetDeadline(time.Now().Add(time.Hour)) == nil {
					runtime.Gosched()
				}
			})
			for range round * 3 {
				runtime.Gosched()
			}
			require.NoError(t, l.Close())
			within(t, 4*patience, "Accept or Dial", wg.Wait)
		}
	})
}

// TestCancelDuringDial cancels a dial at every stage of it.
func TestCancelDuringDial(t *testing.T) {
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	for delay := time.Duration(0); delay < 2*time.Millisecond; delay += 20 * time.Microsecond {
		ctx, cancel := context.WithCancel(context.Background())
		stop := time.AfterFunc(delay, cancel)
		c, err := new(Dialer).DialContext(ctx, "rdma", l.Addr().String())
		if err == nil {
			require.NoError(t, c.Close())
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		stop.Stop()
		cancel()
	}
	require.NoError(t, l.Close())
	wg.Wait()
}

// TestDialGivenUp gives up a dial whose listener has too much to do.
func TestDialGivenUp(t *testing.T) {
	l, err := (&ListenConfig{Backlog: 1}).Listen(context.Background(), "rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	first, err := Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	defer first.Close()

	_, err = DialTimeout("rdma", l.Addr().String(), 30*time.Millisecond)
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(30*time.Millisecond, cancel)
	_, err = new(Dialer).DialContext(ctx, "rdma", l.Addr().String())
	require.ErrorIs(t, err, context.Canceled)

	s, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// TestAcceptAndCloseAtOnce has the peer close before the dialer has looked: the
// dial has succeeded nevertheless, and what was written comes before the end.
func TestAcceptAndCloseAtOnce(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 50
	}
	eachFlavour(t, func(t *testing.T, fl flavour) {
		l, err := fl.listen.listen(context.Background(), "rdma", testAddr())
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, err = c.Write([]byte("bye"))
				assert.NoError(t, err)
				assert.NoError(t, c.Close())
			}
		})
		for range rounds {
			c, err := fl.dialer.Dial("rdma", l.Addr().String())
			require.NoError(t, err)
			b, err := io.ReadAll(c)
			require.NoError(t, err)
			require.Equal(t, "bye", string(b))
			require.NoError(t, c.Close())
		}
		require.NoError(t, l.Close())
		wg.Wait()
	})
}
