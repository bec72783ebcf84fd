//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// noPoll has the poller refuse the next n files that match.
func noPoll(t *testing.T, n int64, match func(fd int) bool) {
	t.Helper()
	var left atomic.Int64
	left.Store(n)
	fault := func(f *os.File) (err error) {
		rc, _ := f.SyscallConn()
		_ = rc.Control(func(fd uintptr) {
			if match(int(fd)) && left.Add(-1) >= 0 {
				err = os.ErrNoDeadline // as of a file that it did not take
			}
		})
		return err
	}
	control.PollFault.Store(&fault)
	t.Cleanup(func() { control.PollFault.Store(nil) })
}

// isAccepted reports whether fd is a socket that has a peer.
func isAccepted(fd int) bool {
	_, err := unix.Getpeername(fd)
	return err == nil
}

// TestListenWithoutPollerMemory has a listener without memory to wait for its clients: each
// is told to dial again, the application hears of it, and nothing is left behind.
func TestListenWithoutPollerMemory(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	const times = 3
	noPoll(t, times, isAccepted)
	for range times {
		d := dialTo(t, l.LocalAddr())
		err := l.next(driver.CMConnectError).Err
		require.ErrorIs(t, err, verbs.ErrNoMemory)
		require.ErrorIs(t, err, unix.ENOMEM)
		require.ErrorIs(t, d.next(driver.CMConnectError).Err, verbs.ErrTryAgain)
		d.close()
	}
	honest(t, l)
	require.Zero(t, l.ListenStats().Denied+l.ListenStats().Malformed+l.ListenStats().Hangup)
}

// TestNoPollerMemory has objects that wait fail as if other memory were used up.
func TestNoPollerMemory(t *testing.T) {
	noLeaks(t)
	ctx := soft0.sharedContext()
	noPoll(t, 1, func(int) bool { return true })
	_, err := ctx.CreateCompChannel()
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.ErrorContains(t, err, "max_user_watches")
	ch, err := ctx.CreateCompChannel()
	require.NoError(t, err)
	require.NoError(t, ch.Close())
}

// TestBlockWithoutPollerMemory: a block of QP numbers for whose socket there is no memory to wait keeps
// its name, without which another process could give the same numbers, and is listened on later.
func TestBlockWithoutPollerMemory(t *testing.T) {
	noLeaks(t)
	ctx := soft0.open()
	defer ctx.Close()
	n, err := ctx.qpns.take(soft0, &qp{})
	require.NoError(t, err)
	defer ctx.qpns.give(n)
	noPoll(t, 1, func(int) bool { return true })
	require.ErrorIs(t, ctx.qpns.listen(n), verbs.ErrNoMemory)
	_, err = control.HoldName(blockName(soft0.name, n>>qpnBlockBits))
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.NoError(t, ctx.qpns.listen(n))
	_, err = control.HoldName(blockName(soft0.name, n>>qpnBlockBits))
	require.ErrorIs(t, err, unix.EADDRINUSE)
}
