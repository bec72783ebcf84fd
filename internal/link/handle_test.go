package link

import (
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

// collects runs the collector until done, and fails the test if that never comes.
func collects(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.True(t, leaktest.Collected(done), "%s, whatever the collector did", what)
}

// TestDropped: the program loses a Stream without closing it. The collector closes it: the
// peer reads what was written and then the end of file, or has a reset if there was something
// that nobody will read; and nothing is left of the stream.
func TestDropped(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		for _, unread := range []bool{false, true} {
			b := newBed(t, cfg)
			server, inner := b.dropOne(t, unread)
			ended := make(chan error, 1)
			go func() {
				got, err := io.ReadAll(server)
				if err == nil && string(got) != "last words" {
					err = io.ErrUnexpectedEOF
				}
				ended <- err
			}()
			var err error
			collects(t, "a stream stayed open that the program has dropped", func() bool {
				select {
				case err = <-ended:
					return true
				default:
					return false
				}
			})
			if unread {
				require.ErrorIs(t, err, syscall.ECONNRESET)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, server.Close())
			e := inner.e
			require.Eventually(t, func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				return inner.freed && e.live == 0
			}, patience, time.Millisecond)
		}
	})
}

// dropOne makes a stream and loses the dialer's end, in a frame of its own so that no variable
// of the test keeps it.
func (b *bed) dropOne(t *testing.T, unread bool) (server *Stream, inner *stream) {
	client := b.dial()
	server = b.accept()
	say(t, client, server)
	_, err := client.Write([]byte("last words"))
	require.NoError(t, err)
	if unread {
		_, err := server.Write([]byte("nobody reads this"))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			client.e.mu.Lock()
			defer client.e.mu.Unlock()
			return client.st.Receiver().Buffered() > 0
		}, patience, time.Millisecond)
	}
	return server, client.stream
}

// TestDroppedInACall: a Stream that only its waiting call knows of stays open.
func TestDroppedInACall(t *testing.T) {
	b := newBed(t, Config{})
	got := make(chan error, 1)
	server, inner := b.readAndDrop(got)
	require.Eventually(t, inner.reader.waiting.Load, patience, time.Millisecond)
	for range 20 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	_, err := server.Write([]byte("hello"))
	require.NoError(t, err)
	within(t, "a Read of a stream that nobody else knows of", func() { require.NoError(t, <-got) })
	require.NoError(t, server.Close())
	collects(t, "the stream stayed open behind its last call", inner.gone.Load)
}

func (b *bed) readAndDrop(got chan<- error) (server *Stream, inner *stream) {
	client := b.dial()
	server = b.accept()
	inner = client.stream
	go func() {
		_, err := client.Read(make([]byte, 5)) // the last that is known of it
		got <- err
	}()
	return server, inner
}
