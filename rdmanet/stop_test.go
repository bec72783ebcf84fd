//go:build linux

package rdmanet

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTwoProcessStop stops the other process: that is no error, and after it goes
// on so do the bytes.
func TestTwoProcessStop(t *testing.T) {
	const size = 4 << 20
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, end *remoteConn) {
			arrived := begin[RemoteSum](r, "Sum", end.ID)
			first := make([]byte, size)
			for i := range first {
				first[i] = byte(i >> 8)
			}
			_, err := c.Write(first)
			require.NoError(t, err)

			r.signal(syscall.SIGSTOP, "T")
			require.NoError(t, c.SetDeadline(time.Now().Add(100*time.Millisecond)))
			n, err := c.Write(first)
			requireTimeout(t, err)
			require.Less(t, n, size)
			_, err = c.Read(make([]byte, 1))
			requireTimeout(t, err)

			r.signal(syscall.SIGCONT, "SR")
			require.NoError(t, c.SetDeadline(time.Time{}))
			_, err = c.Write(first[n:])
			require.NoError(t, err)
			require.NoError(t, c.CloseWrite())
			want := sum(io.MultiReader(strings.NewReader(string(first)), strings.NewReader(string(first))))
			require.Equal(t, want, <-arrived)
			_, err = end.Write([]byte("back again"))
			require.NoError(t, err)
			require.Equal(t, "back again", string(readFull(t, c, 10)))
		})
	})
}

// TestTwoProcessStopAndClose closes a connection to a process that is stopped.
func TestTwoProcessStopAndClose(t *testing.T) {
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, end *remoteConn) {
			r.signal(syscall.SIGSTOP, "T")
			_, err := c.Write([]byte("while you slept"))
			require.NoError(t, err)
			within(t, soon, "Close", func() { requireClosed(t, c) })
			r.signal(syscall.SIGCONT, "SR")
			got, err := io.ReadAll(end)
			require.NoError(t, err)
			require.Equal(t, "while you slept", string(got))
			_, err = end.Write([]byte{1})
			require.ErrorIs(t, err, syscall.EPIPE)
		})
	})
}

// TestTwoProcessStopListener dials a process that is stopped.
func TestTwoProcessStopListener(t *testing.T) {
	r := startRemote(t)
	at := call[string](r, "Listen", RemoteListen{})
	r.signal(syscall.SIGSTOP, "T")
	d := Dialer{Timeout: 50 * time.Millisecond}
	c, err := d.dial(context.Background(), "rdma", at)
	requireDialError(t, dialled{c, err}, os.ErrDeadlineExceeded)
	r.signal(syscall.SIGCONT, "SR")
	d.Timeout = patience
	c, err = d.dial(context.Background(), "rdma", at)
	require.NoError(t, err)
	defer c.Close()
}

// signal sends a signal and waits until the process is in one of the states that
// /proc names by a letter.
func (r *remote) signal(s syscall.Signal, states string) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(s))
	require.Eventually(r.t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
		require.NoError(r.t, err)
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.ContainsAny(state[:1], states)
	}, patience, time.Millisecond)
}
