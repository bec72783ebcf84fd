//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
)

// asUser runs f on a thread whose effective user is uid.
func asUser(t *testing.T, uid int, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user for a moment")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Not unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		// The raw call concerns this thread alone.
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0))
		if errno != 0 {
			t.Error(errno)
			return
		}
		f()
	}()
	<-done
}

func TestDialerOfAnotherUser(t *testing.T) {
	noLeaks(t)
	for _, anyUser := range []bool{false, true} {
		l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{AnyUser: anyUser})
		var s *control.Socket
		asUser(t, 65534, func() { s = silentDialer(t, l.LocalAddr()) })
		if anyUser {
			waitStats(t, l, func(st driver.CMListenStats) bool { return st.HalfOpen == 1 })
			continue
		}
		buf := make([]byte, control.MaxMessage)
		n, _, err := s.Recv(buf)
		require.NoError(t, err)
		err = (&dial{sock: s}).rejected(buf[:n]).Err
		require.ErrorIs(t, err, unix.EACCES)
		require.ErrorContains(t, err, "the listener belongs to another user (its ListenConfig.AnyUser permits that)")
		waitStats(t, l, func(st driver.CMListenStats) bool { return st.Denied == 1 && st.HalfOpen == 0 })
	}
}

func TestListenerOfAnotherUser(t *testing.T) {
	noLeaks(t)
	for _, anyUser := range []bool{false, true} {
		id := newTestID(t, driver.CMOptions{})
		require.NoError(t, id.BindAddr(localhost0))
		asUser(t, 65534, func() { require.NoError(t, id.Listen(1)) })
		d := resolved(t, id.LocalAddr(), driver.CMOptions{AnyUser: anyUser})
		require.NoError(t, d.Connect(nil, patience))
		if anyUser {
			id.next(driver.CMConnectRequest).ID.Close()
			d.next(driver.CMRejected)
			continue
		}
		err := d.next(driver.CMConnectError).Err
		require.ErrorIs(t, err, unix.EACCES)
		require.ErrorContains(t, err, "the listener belongs to user 65534 (Dialer.AnyUser permits that)")
		waitStats(t, id, func(st driver.CMListenStats) bool { return st.Hangup == 1 })
	}
}
