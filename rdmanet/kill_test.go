//go:build linux

package rdmanet

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireReset waits for the error of a call, which is promised within a second.
func requireReset(t testing.TB, what string, done <-chan error) {
	t.Helper()
	var err error
	inTime(t, soon, what+" after the kill", func() { err = <-done })
	require.ErrorIs(t, err, syscall.ECONNRESET, what)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.False(t, op.Timeout())
}

// TestTwoProcessKillInMidStream kills the other process while bytes move both ways.
func TestTwoProcessKillInMidStream(t *testing.T) {
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, end *remoteConn) {
			begin[RemoteSum](r, "Echo", end.ID)
			flowing := make(chan struct{})
			read, written := make(chan error, 1), make(chan error, 1)
			go func() {
				buf := make([]byte, 50_000)
				for {
					if _, err := c.Write(buf); err != nil {
						written <- err
						return
					}
				}
			}()
			go func() {
				buf := make([]byte, 32<<10)
				for n := 0; ; {
					m, err := c.Read(buf)
					if err != nil {
						read <- err
						return
					}
					if n < 1<<20 && n+m >= 1<<20 {
						close(flowing)
					}
					n += m
				}
			}()
			<-flowing
			r.kill()
			requireReset(t, "Read", read)
			requireReset(t, "Write", written)
			requireClosed(t, c)
		})
	})
}

// TestTwoProcessKillWhileIdle kills the other process while nothing moves.
func TestTwoProcessKillWhileIdle(t *testing.T) {
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, _ *remoteConn) {
			read := make(chan error, 1)
			go func() {
				_, err := c.Read(make([]byte, 1))
				read <- err
			}()
			require.Eventually(t, func() bool { return c.Stats().Parks > 0 }, patience, time.Millisecond)
			r.kill()
			requireReset(t, "Read", read)
			_, err := c.Write([]byte{1})
			require.ErrorIs(t, err, syscall.ECONNRESET)
			requireClosed(t, c)
		})
	})
}

// TestTwoProcessKillUnnoticed kills the other process while this one is in no call.
// What it had sent is still there.
func TestTwoProcessKillUnnoticed(t *testing.T) {
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, end *remoteConn) {
			_, err := end.Write([]byte("last words"))
			require.NoError(t, err)
			r.kill()
			_ = r.cmd.Wait()
			require.Equal(t, "last words", string(readFull(t, c, 10)))
			read := make(chan error, 1)
			go func() {
				_, err := c.Read(make([]byte, 1))
				read <- err
			}()
			requireReset(t, "Read", read)
			requireEnd(t, c, syscall.ECONNRESET)
		})
	})
}

// TestTwoProcessKillWriter kills the other process while a Write waits for room.
func TestTwoProcessKillWriter(t *testing.T) {
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, _ *remoteConn) {
			written := make(chan error, 1)
			go func() {
				_, err := c.Write(make([]byte, 8<<20)) // more than the largest ring
				written <- err
			}()
			require.Eventually(t, func() bool { return c.Stats().Parks > 0 }, patience, time.Millisecond)
			r.kill()
			requireReset(t, "Write", written)
			requireClosed(t, c)
		})
	})
}

// TestTwoProcessKillDialing kills a process that dials as fast as it can, at a
// different moment each time: the listener goes on for others.
func TestTwoProcessKillDialing(t *testing.T) {
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		for kills := range 5 {
			r := startRemote(t)
			for range 4 {
				begin[RemoteError](r, "DialAgain", RemoteDial{Flavour: fl.name, Addr: l.Addr().String()})
			}
			for range 10 + kills {
				c, err := l.AcceptConn()
				require.NoError(t, err)
				requireClosed(t, c)
			}
			r.kill()
			requireServedAmong(t, fl, l)
		}
		s := l.Stats()
		require.Zero(t, s.Refused)
		require.Zero(t, s.Malformed)
	})
}

// TestTwoProcessDialAfterKill: a dial to a process that has ended fails, as over TCP, although a lane to it
// stands that nobody has told yet.
func TestTwoProcessDialAfterKill(t *testing.T) {
	onSoftware(t)
	fl := flavour{name: "default"}
	for range 10 {
		r := startRemote(t)
		var at []string
		for range 16 {
			at = append(at, call[string](r, "Listen", RemoteListen{Flavour: fl.name}))
			c, err := fl.dialer.dial(t.Context(), "rdma", at[len(at)-1])
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
		r.killed = true
		require.NoError(t, r.cmd.Process.Kill())
		_, _ = r.cmd.Process.Wait()
		for _, at := range at {
			_, err := fl.dialer.dial(t.Context(), "rdma", at)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
	}
}
