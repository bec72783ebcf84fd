//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/wakeup"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestWakeKeepsDeadline has a waiter woken for nothing again and again: its deadline
// comes all the same, and no sooner. TestTimingDeadlines measures how much later.
func TestWakeKeepsDeadline(t *testing.T) {
	ctx, ch := newChannelOf(t)
	tries := 0
	for limit := 100 * time.Millisecond; tries < 2; limit *= 2 { // a busy machine may wake it once in that time
		tries = 0
		end := time.Now().Add(limit)
		require.NoError(t, ch.SetReadDeadline(end))
		require.ErrorIs(t, ch.WaitRead(func() bool { tries++; ch.signal(); return false }), os.ErrDeadlineExceeded)
		require.False(t, time.Now().Before(end), "too early")
	}

	// What has ended no wait does not end the next.
	ch.signal()
	require.NoError(t, ch.SetReadDeadline(time.Time{}))
	require.NoError(t, ch.WaitRead(func() bool { return true }))
	require.NoError(t, ch.Close())
	require.NoError(t, ctx.Close())
}

// TestDeadlineWhileWoken sets deadlines when the waiter has been woken and has not
// noticed yet.
func TestDeadlineWhileWoken(t *testing.T) {
	for name, at := range map[string]func() time.Time{
		"to come": func() time.Time { return time.Now().Add(time.Millisecond) },
		"past":    func() time.Time { return wakeup.Past },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, ch := newChannelOf(t)
			require.NoError(t, ch.SetReadDeadline(time.Now().Add(time.Hour)))
			tries := 0
			require.ErrorIs(t, ch.WaitRead(func() bool {
				if tries++; tries == 1 {
					ch.signal()
					require.NoError(t, ch.SetReadDeadline(at()))
				}
				return false
			}), os.ErrDeadlineExceeded)

			// And takes one away.
			tries = 0
			require.NoError(t, ch.SetReadDeadline(time.Now().Add(time.Hour)))
			require.NoError(t, ch.WaitRead(func() bool {
				if tries++; tries == 1 {
					ch.signal()
					require.NoError(t, ch.SetReadDeadline(time.Time{}))
				}
				return tries == 2
			}))
			require.NoError(t, ch.Close())
			require.NoError(t, ctx.Close())
		})
	}
}

// TestCloseWhileWoken: a channel that is closed says so, however often it is woken.
func TestCloseWhileWoken(t *testing.T) {
	ctx, ch := newChannelOf(t)
	closed := make(chan error, 1)
	tries := 0
	require.ErrorIs(t, ch.WaitRead(func() bool {
		if tries++; tries == 1 {
			go func() { closed <- ch.Close() }()
		}
		ch.signal()
		return false
	}), os.ErrClosed)
	require.NoError(t, <-closed)
	ch.signal()
	require.ErrorIs(t, ch.WaitRead(func() bool { return false }), os.ErrClosed)
	require.NoError(t, ctx.Close())
}

// events reads how often an eventfd was written to since it was read last.
func events(t *testing.T, ch *compChannel) uint64 {
	t.Helper()
	var buf [8]byte
	if _, err := unix.Read(ch.fd, buf[:]); err != nil {
		require.Equal(t, unix.EAGAIN, err)
	}
	return shm.HostOrder.Uint64(buf[:])
}

// TestLocalDoorbell: a peer in the same process is woken without a system call.
func TestLocalDoorbell(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	a := dialData(t, unbuilt(t, l.LocalAddr()))
	b := acceptData(t, l)
	a.takeHello(a.next(driver.CMEstablished).Param.PrivateData)
	b.next(driver.CMEstablished)
	require.Same(t, b.qp.(*qp).recvCQ.channel, a.qp.(*qp).peer.door.local.Load())
	require.Same(t, a.qp.(*qp).recvCQ.channel, b.qp.(*qp).peer.door.local.Load())
	ch := b.ch.(*compChannel)
	require.Zero(t, events(t, ch))
	got := make(chan error)
	armed := make(chan struct{}, 1)
	for i := range dataWindow {
		go func() {
			got <- ch.WaitRead(func() bool {
				var wc [1]verbs.WC
				for range 2 {
					if n, err := b.cq.Poll(wc[:]); n == 1 || err != nil {
						return true
					}
					_ = b.cq.ReqNotify(false)
				}
				armed <- struct{}{}
				return false
			})
		}()
		<-armed
		_, err := a.qp.PostSend([]verbs.SendWR{{
			Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline, Inline: []byte{1}, ImmData: uint32(i),
			RemoteAddr: a.peer.addr, RKey: a.peer.rkey,
		}})
		require.NoError(t, err)
		require.NoError(t, <-got)
		select {
		case <-armed: // it was woken before it slept
		default:
		}
	}
	require.Zero(t, events(t, ch), "system calls")
	require.Positive(t, a.qp.(*qp).QPStats().WakeupsSent)
}
