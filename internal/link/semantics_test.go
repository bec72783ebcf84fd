package link

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/rdmanet/go-rdmanet/internal/racedetector"
)

// TestNetConn runs the standard conformance test of a net.Conn on streams.
func TestNetConn(t *testing.T) {
	mostlyWaits(t)
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			client, server := b.dial(), b.accept()
			return client, server, func() {
				_ = client.Close()
				_ = server.Close()
			}, nil
		})
	})
}

// TestEnds looks at how streams end, at either end first.
func TestEnds(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		for _, dialerFirst := range []bool{true, false} {
			ends := func() (near, far *Stream) {
				near, far = b.pair()
				if !dialerFirst {
					near, far = far, near
				}
				deadline := time.Now().Add(patience)
				_ = near.SetDeadline(deadline)
				_ = far.SetDeadline(deadline)
				return near, far
			}
			t.Run("FIN", func(t *testing.T) {
				near, far := ends()
				_, err := near.Write([]byte("last words"))
				require.NoError(t, err)
				require.NoError(t, near.CloseWrite())
				require.NoError(t, near.CloseWrite())
				_, err = near.Write([]byte("x"))
				require.ErrorIs(t, err, syscall.EPIPE)
				got, err := io.ReadAll(far)
				require.NoError(t, err)
				require.Equal(t, "last words", string(got))
				_, err = far.Write([]byte("answer"))
				require.NoError(t, err)
				require.NoError(t, far.Close())
				got, err = io.ReadAll(near)
				require.NoError(t, err)
				require.Equal(t, "answer", string(got))
			})
			t.Run("Close", func(t *testing.T) {
				near, far := ends()
				_, err := near.Write([]byte("last words"))
				require.NoError(t, err)
				require.NoError(t, near.Close())
				require.ErrorIs(t, near.Close(), net.ErrClosed)
				got, err := io.ReadAll(far)
				require.NoError(t, err)
				require.Equal(t, "last words", string(got))
				n, err := far.Write([]byte("x"))
				require.ErrorIs(t, err, syscall.EPIPE)
				require.Zero(t, n)
				for _, f := range []func([]byte) (int, error){near.Read, near.Write} {
					_, err = f(make([]byte, 1))
					require.ErrorIs(t, err, net.ErrClosed)
				}
				require.ErrorIs(t, near.SetDeadline(time.Time{}), net.ErrClosed)
			})
			t.Run("CloseUnread", func(t *testing.T) {
				near, far := ends()
				_, err := far.Write([]byte("unread"))
				require.NoError(t, err)
				buffered(t, near, 6)
				require.NoError(t, near.Close())
				_, err = far.Read(make([]byte, 1))
				require.ErrorIs(t, err, syscall.ECONNRESET)
			})
			t.Run("Reset", func(t *testing.T) {
				near, far := ends()
				_, err := near.Write([]byte("before"))
				require.NoError(t, err)
				buffered(t, far, 6)
				require.NoError(t, near.Reset())
				got, err := io.ReadAll(far)
				require.ErrorIs(t, err, syscall.ECONNRESET)
				require.Equal(t, "before", string(got))
				_, err = far.Write([]byte("x"))
				require.ErrorIs(t, err, syscall.ECONNRESET)
			})
			t.Run("WakesReadAndWrite", func(t *testing.T) {
				near, far := ends()
				within(t, "calls of a closed stream", func() {
					all(func() {
						_, err := near.Read(make([]byte, 1))
						require.ErrorIs(t, err, net.ErrClosed)
					}, func() {
						for {
							if _, err := near.Write(make([]byte, 1<<16)); err != nil {
								require.ErrorIs(t, err, net.ErrClosed)
								return
							}
						}
					}, func() {
						awaitCalls(t, near)
						require.NoError(t, near.Close())
					})
				})
				_ = far
			})
		}
	})
}

// awaitCalls waits until a Read and a Write wait.
func awaitCalls(t *testing.T, s *Stream) {
	t.Helper()
	require.Eventually(t, func() bool { return s.in.waiter.waiting() && s.out.waiter.waiting() }, patience, time.Millisecond, "no calls wait")
}

// buffered waits until n bytes have arrived at s, whose application is in no call.
func buffered(t *testing.T, s *Stream, n uint64) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.e.mu.Lock()
		defer s.e.mu.Unlock()
		return s.st.Receiver().Buffered() >= n
	}, patience, time.Millisecond)
}

// TestDeadlines: one that has passed ends calls at once, one that is set ends calls that wait,
// and a later one lets go on.
func TestDeadlines(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		past := time.Now().Add(-time.Second)
		require.NoError(t, client.SetDeadline(past))
		for _, f := range []func([]byte) (int, error){client.Read, client.Write} {
			_, err := f(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		}
		require.NoError(t, client.SetDeadline(time.Time{}))
		for _, in := range []time.Duration{0, 20 * time.Millisecond} {
			within(t, "calls with a deadline", func() {
				all(func() {
					_, err := client.Read(make([]byte, 1))
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				}, func() {
					var err error
					for err == nil {
						_, err = client.Write(make([]byte, 1<<16))
					}
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				}, func() {
					awaitCalls(t, client)
					_ = client.SetDeadline(time.Now().Add(time.Hour))
					awaitCalls(t, client)
					_ = client.SetDeadline(time.Now().Add(in))
				})
			})
			require.NoError(t, client.SetDeadline(time.Time{}))
		}
		_, err := server.Write([]byte("still there"))
		require.NoError(t, err)
		got := make([]byte, 11)
		_, err = io.ReadFull(client, got)
		require.NoError(t, err)
		require.Equal(t, "still there", string(got))
	})
}

// TestAddrs: both ends agree on the addresses, and no two streams of a link have the same.
func TestAddrs(t *testing.T) {
	b := newBed(t, Config{})
	seen := map[string]bool{}
	for range 10 {
		client, server := b.pair()
		require.Equal(t, client.LocalAddr(), server.RemoteAddr())
		require.Equal(t, client.RemoteAddr(), server.LocalAddr())
		require.Equal(t, b.l.Addr().String(), client.RemoteAddr().String())
		require.False(t, seen[client.LocalAddr().String()])
		seen[client.LocalAddr().String()] = true
	}
}

// TestBothWriteFirst: both ends write before they read, as programs do over TCP. So much is
// taken by an end that is in no call.
func TestBothWriteFirst(t *testing.T) {
	for _, fl := range flavours() {
		if fl.cfg.MaxRing != 0 {
			continue // smaller rings take less
		}
		t.Run(fl.name, func(t *testing.T) {
			b := newBed(t, fl.cfg)
			client, server := b.pair()
			data := bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16)
			within(t, "writing first", func() {
				all(func() {
					_, err := client.Write(data)
					require.NoError(t, err)
				}, func() {
					_, err := server.Write(data)
					require.NoError(t, err)
				})
				for _, s := range []*Stream{client, server} {
					got := make([]byte, len(data))
					_, err := io.ReadFull(s, got)
					require.NoError(t, err)
					require.True(t, bytes.Equal(data, got))
				}
			})
		})
	}
}

// TestUnread: an end that is in no call takes 4 MiB at once, or 100,000 messages of a byte.
func TestUnread(t *testing.T) {
	mostlyWaits(t)
	for _, fl := range flavours() {
		if fl.cfg.MaxRing != 0 {
			continue
		}
		t.Run(fl.name, func(t *testing.T) {
			b := newBed(t, fl.cfg)
			for _, piece := range []int{1, 4 << 10} {
				client, server := b.pair()
				n := min(100_000*piece, 4<<20)
				if os.Getenv("RDMANET_TEST_ADDR") != "" || racedetector.Enabled { // they take their time
					n /= 10
				}
				within(t, "writing to who does not read", func() {
					var err error
					for sent := 0; sent < n && err == nil; sent += piece {
						_, err = client.Write(bytes.Repeat([]byte{byte(sent / piece)}, piece))
					}
					require.NoError(t, err)
				})
				want := make([]byte, n)
				for i := range want {
					want[i] = byte(i / piece)
				}
				got := make([]byte, n)
				_, err := io.ReadFull(server, got)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got))
				_ = client.Close()
				_ = server.Close()
			}
		})
	}
}

// TestNeighbours: streams whose peers do not read, with as much written to them as they take,
// do not stop the one beside them.
func TestNeighbours(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan struct{}, 4)
		var flooded []*Stream
		for range 4 {
			client, _ := b.pair()
			flooded = append(flooded, client)
			go func() {
				defer func() { done <- struct{}{} }()
				for ctx.Err() == nil {
					if _, err := client.Write(make([]byte, 4096)); err != nil {
						return
					}
				}
			}()
		}
		client, server := b.pair()
		within(t, "an echo beside floods", func() {
			for range 300 {
				_, err := client.Write(make([]byte, 100))
				require.NoError(t, err)
				_, err = io.ReadFull(server, make([]byte, 100))
				require.NoError(t, err)
				_, err = server.Write(make([]byte, 100))
				require.NoError(t, err)
				_, err = io.ReadFull(client, make([]byte, 100))
				require.NoError(t, err)
			}
		})
		cancel()
		for _, s := range flooded {
			_ = s.Close()
		}
		for range flooded {
			<-done
		}
	})
}
