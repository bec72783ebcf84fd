//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func newChannelOf(t *testing.T) (*devContext, *compChannel) {
	ctx := soft0.open()
	ch, err := ctx.CreateCompChannel()
	require.NoError(t, err)
	return ctx, ch.(*compChannel)
}

// TestChannelWakesBoth: one event wakes the waiters of both directions, whoever it
// is from.
func TestChannelWakesBoth(t *testing.T) {
	t.Run("this process", func(t *testing.T) { wakesBoth(t, (*compChannel).signal) })
	t.Run("another", func(t *testing.T) {
		wakesBoth(t, func(ch *compChannel) { require.True(t, writeEvent(ch.fd)) })
	})
}

func wakesBoth(t *testing.T, wake func(*compChannel)) {
	ctx, ch := newChannelOf(t)
	for range 200 {
		entered := make(chan struct{}, 2)
		done := make(chan error, 2)
		open := make(chan struct{})
		first := [2]bool{true, true}
		try := func(i int) func() bool {
			return func() bool {
				if first[i] {
					first[i] = false
					entered <- struct{}{}
					return false
				}
				select {
				case <-open:
					return true
				default:
					return false
				}
			}
		}
		go func() { done <- ch.WaitRead(try(0)) }()
		go func() { done <- ch.WaitWrite(try(1)) }()
		<-entered
		<-entered
		close(open)
		wake(ch) // before, while or after they go to sleep
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	}
	require.NoError(t, ch.Close())
	require.NoError(t, ctx.Close())
}

func TestChannelDeadlines(t *testing.T) {
	ctx, ch := newChannelOf(t)
	never := func() bool { return false }
	require.NoError(t, ch.SetReadDeadline(time.Now().Add(time.Millisecond)))
	require.ErrorIs(t, ch.WaitRead(never), os.ErrDeadlineExceeded)

	// A deadline reaches a wait in progress, and only in its direction.
	done := make(chan error)
	go func() { done <- ch.WaitWrite(never) }()
	require.NoError(t, ch.SetReadDeadline(time.Unix(1, 0)))
	require.NoError(t, ch.SetWriteDeadline(time.Unix(1, 0)))
	require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
	require.NoError(t, ch.SetWriteDeadline(time.Time{}))
	require.NoError(t, ch.WaitWrite(func() bool { return true }))

	// Close wakes the waiters.
	go func() { done <- ch.WaitWrite(never) }()
	require.NoError(t, ch.Close())
	require.ErrorIs(t, <-done, os.ErrClosed)
	require.ErrorIs(t, ch.WaitRead(never), os.ErrClosed)
	require.ErrorIs(t, ch.Close(), verbs.ErrClosed)
	require.NoError(t, ctx.Close())
}

// TestUnclogClosed has a peer ask for a wake-up when the channel is closed and its number
// is another file's.
func TestUnclogClosed(t *testing.T) {
	made, err := soft0.open().CreateCompChannel()
	require.NoError(t, err)
	ch := made.(*compChannel)
	require.NoError(t, ch.Close())
	other, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(other)
	if other != ch.fd { // an earlier number was free
		require.NoError(t, unix.Dup3(other, ch.fd, unix.O_CLOEXEC))
		defer unix.Close(ch.fd)
	}
	ch.unclog()
	var buf [8]byte
	_, err = unix.Read(other, buf[:])
	require.ErrorIs(t, err, unix.EAGAIN)
}

// TestChannelClosedBesideGetEvent: Close waits for a GetEvent that is under way, which does not wait for it.
func TestChannelClosedBesideGetEvent(t *testing.T) {
	const rounds = 5000
	ctx := soft0.open()
	var ch verbs.CompChannel
	var begun, ended atomic.Int64
	errs := make([]error, rounds+1)
	go func() {
		for i := int64(1); i <= rounds; i++ {
			spin(&begun, i)
			_, errs[i] = ch.GetEvent()
			ended.Store(i)
		}
	}()
	for i := int64(1); i <= rounds; i++ {
		var err error
		ch, err = ctx.CreateCompChannel()
		require.NoError(t, err)
		begun.Store(i)
		for range i % 1500 { // meets the call at ever different moments
			_ = begun.Load()
		}
		require.NoError(t, ch.Close())
		spin(&ended, i)
		require.ErrorIs(t, errs[i], os.ErrClosed)
		require.ErrorIs(t, ch.Close(), verbs.ErrClosed)
	}
	require.NoError(t, ctx.Close())
}
