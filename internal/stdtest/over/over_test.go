package over

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// recording has events go to a file for the length of a test, and returns its name.
func recording(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "events")
	events = openEvents(name)
	t.Cleanup(func() {
		require.NoError(t, events.Close())
		events = nil
	})
	return name
}

func TestDialAndListen(t *testing.T) {
	for _, network := range []string{"tcp", "tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "tcp6" {
				address = "[::1]:0"
			}
			name := recording(t)
			l, err := Listen(context.Background(), &net.ListenConfig{}, network, address)
			require.NoError(t, err)
			defer l.Close()
			c, err := Dial(context.Background(), &net.Dialer{Timeout: time.Minute}, network, l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			require.IsType(t, (*rdmanet.Conn)(nil), c)
			s, err := l.Accept()
			require.NoError(t, err)
			_, err = s.Write([]byte("over"))
			require.NoError(t, err)
			require.NoError(t, s.Close())
			got, err := io.ReadAll(c)
			require.NoError(t, err)
			require.Equal(t, "over", string(got))

			e, err := ReadEvents(name)
			require.NoError(t, err)
			require.Equal(t, Events{Dialled: 1, Listened: 1}, e)
		})
	}
}

func TestFailuresAreNoEvents(t *testing.T) {
	name := recording(t)
	control := func(string, string, syscall.RawConn) error { return nil }
	_, err := Dial(context.Background(), &net.Dialer{Control: control}, "tcp", "127.0.0.1:1")
	require.ErrorIs(t, err, errNoSocket)
	_, err = Listen(context.Background(), &net.ListenConfig{Control: control}, "tcp", "127.0.0.1:0")
	require.ErrorIs(t, err, errNoSocket)
	_, err = Dial(context.Background(), &net.Dialer{}, "tcp", "127.0.0.1:0")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	e, err := ReadEvents(name)
	require.NoError(t, err)
	require.Zero(t, e)
}

func TestReadEvents(t *testing.T) {
	dir := t.TempDir()
	e, err := ReadEvents(filepath.Join(dir, "none"))
	require.NoError(t, err)
	require.Zero(t, e)
	name := filepath.Join(dir, "bad")
	require.NoError(t, os.WriteFile(name, []byte(dialled+"dial"), 0o600))
	_, err = ReadEvents(name)
	require.ErrorContains(t, err, `unknown line "dial"`)
}

// TestCancel ends a dial by the channel of a net.Dialer.
func TestCancel(t *testing.T) {
	cancel := make(chan struct{})
	ctx, stop := canceledBy(context.Background(), cancel)
	require.NoError(t, ctx.Err())
	close(cancel)
	<-ctx.Done()
	stop()
	ctx, stop = canceledBy(context.Background(), make(chan struct{}))
	stop()
	<-ctx.Done()
}
