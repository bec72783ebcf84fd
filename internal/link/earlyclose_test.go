package link

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEarlyAnswer: a server that answers and closes without reading everything costs its client
// neither the Write nor the answer, as over TCP beside it.
func TestEarlyAnswer(t *testing.T) {
	t.Run("TCP", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		earlyAnswers(t, l.Accept, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })
	})
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		ctx := b.ctx()
		earlyAnswers(t, func() (net.Conn, error) { return b.l.Accept(ctx) },
			func() (net.Conn, error) { return b.links.Dial(ctx, Target{Dst: b.l.Addr()}) })
	})
}

// earlyAnswers has clients write to servers that have read some of it when they answer.
func earlyAnswers(t *testing.T, accept, dial func() (net.Conn, error)) {
	const clients, atOnce, answer = 64, 4, "spoken to in another protocol"
	for _, size := range []int{1536, 16 << 10} {
		for _, first := range []int{0, 100} {
			t.Run(fmt.Sprintf("%dOf%d", first, size), func(t *testing.T) {
				serve := func() error {
					c, err := accept()
					if err != nil {
						return err
					}
					defer c.Close()
					_ = c.SetDeadline(time.Now().Add(patience))
					if _, err := io.ReadFull(c, make([]byte, first)); err != nil {
						return err
					}
					_, err = io.WriteString(c, answer)
					return err
				}
				ask := func() error {
					c, err := dial()
					if err != nil {
						return err
					}
					defer c.Close()
					_ = c.SetDeadline(time.Now().Add(patience))
					if n, err := c.Write(make([]byte, size)); n != size || err != nil {
						return fmt.Errorf("Write: %d, %w", n, err)
					}
					got := make([]byte, len(answer))
					if _, err := io.ReadFull(c, got); err != nil || string(got) != answer {
						return fmt.Errorf("answer %q: %w", got, err)
					}
					return nil
				}
				var wg sync.WaitGroup
				errs := make(chan error, 2*clients)
				for range atOnce {
					for _, f := range []func() error{serve, ask} {
						wg.Go(func() {
							for range clients / atOnce {
								errs <- f()
							}
						})
					}
				}
				wg.Wait()
				close(errs)
				for err := range errs {
					require.NoError(t, err)
				}
			})
		}
	}
}

// TestWriteThatThePeerCloses: what of a waiting Write a socket would have buffered is forgotten,
// and the next Write is told. More fails, as does what this end has ended.
func TestWriteThatThePeerCloses(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.MaxRing = max(cfg.FirstRing, 4<<10)
		b := newBed(t, cfg)
		for _, c := range []struct {
			name  string
			size  int
			end   func(client, server *Stream) error
			err   error
			after error
		}{
			{"unread", 32 << 10, func(_, server *Stream) error { return server.Close() }, nil, syscall.ECONNRESET},
			{"reset", 32 << 10, func(_, server *Stream) error { return server.Reset() }, nil, syscall.ECONNRESET},
			{"much", 1 << 20, func(_, server *Stream) error { return server.Close() }, syscall.ECONNRESET, syscall.ECONNRESET},
			{"closed", 32 << 10, func(client, _ *Stream) error { return client.Close() }, net.ErrClosed, net.ErrClosed},
			{"shut", 32 << 10, func(client, _ *Stream) error { return client.CloseWrite() }, syscall.EPIPE, syscall.EPIPE},
		} {
			t.Run(c.name, func(t *testing.T) {
				client, server := b.pair()
				wrote := make(chan error, 1)
				go func() {
					n, err := client.Write(make([]byte, c.size))
					if err == nil && n != c.size {
						err = io.ErrShortWrite
					}
					wrote <- err
				}()
				buffered(t, server, 100)
				require.NoError(t, c.end(client, server))
				within(t, "Write", func() { require.ErrorIs(t, <-wrote, c.err) })
				n, err := client.Write([]byte("x"))
				require.ErrorIs(t, err, c.after)
				require.Zero(t, n)
			})
		}
	})
}

// TestWriteAfterThePeersClose: the first of up to 64 KiB succeeds, unless the program has been told
// by a Read or by a Write that failed. A Write that its deadline ends, one of nothing and TakeBuffer
// tell nothing. What the peer had written stays readable.
func TestWriteAfterThePeersClose(t *testing.T) {
	const answer = "answer"
	write := func(t *testing.T, c *Stream, size int, want error) {
		t.Helper()
		n, err := c.Write(make([]byte, size))
		require.ErrorIs(t, err, want)
		if want == nil {
			require.Equal(t, size, n)
		} else {
			require.Zero(t, n)
		}
	}
	readAll := func(t *testing.T, c *Stream) {
		t.Helper()
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, answer, string(got))
	}
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		for _, c := range []struct {
			name  string
			first func(t *testing.T, c *Stream)
			told  bool
		}{
			{"at once", func(*testing.T, *Stream) {}, false},
			{"end read", readAll, true},
			{"more written", func(t *testing.T, c *Stream) { write(t, c, mostDropped+1, syscall.EPIPE) }, true},
			{"deadline", func(t *testing.T, c *Stream) {
				require.NoError(t, c.SetWriteDeadline(time.Now().Add(-time.Second)))
				write(t, c, 1, os.ErrDeadlineExceeded)
				require.NoError(t, c.SetWriteDeadline(time.Time{}))
			}, false},
			{"nothing", func(t *testing.T, c *Stream) { write(t, c, 0, nil) }, false},
			{"buffer", func(t *testing.T, c *Stream) {
				got, err := c.TakeBuffer()
				require.NoError(t, err)
				require.Nil(t, got)
			}, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				client, server := b.pair()
				_, err := server.Write([]byte(answer))
				require.NoError(t, err)
				require.NoError(t, server.Close())
				awaitQuiet(t, client.stream)
				c.first(t, client)
				if !c.told {
					write(t, client, mostDropped, nil)
				}
				write(t, client, 1, syscall.EPIPE)
				_, err = client.TakeBuffer()
				require.ErrorIs(t, err, syscall.EPIPE)
				if c.name != "end read" {
					readAll(t, client)
				}
			})
		}
	})
}
