//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// asIfApart has a wake b as if that were in another process.
func asIfApart(a *side) *doorbell {
	a.qp.mu.Lock()
	defer a.qp.mu.Unlock()
	a.qp.peer.door.local.Store(nil)
	return a.qp.peer.door
}

// TestBlockingEventfd: a peer whose eventfd is full and blocks loses its connection, and a post that wakes it
// returns, though the peer fills it again and again.
func TestBlockingEventfd(t *testing.T) {
	a, b := newConnected(t, defaults())
	door := asIfApart(a)
	b.postRecv(1, 0)
	fill(t, b.ch.fd)
	require.NoError(t, unix.SetNonblock(b.ch.fd, false))
	filling := make(chan struct{})
	go func() { // what the peer can do from outside; the last one is let go below
		defer close(filling)
		var most [8]byte
		shm.HostOrder.PutUint64(most[:], 1<<64-2)
		for door.users.Load() > 0 {
			_, _ = unix.Write(b.ch.fd, most[:])
		}
	}()
	require.NoError(t, b.cq.ReqNotify(false))
	posted := make(chan struct{})
	go func() {
		defer close(posted)
		a.post(writeImm(b, 0, nil, 3))
	}()
	select {
	case <-posted:
	case <-time.After(patience):
		t.Fatal("the post waits")
	}
	h := <-a.gone
	require.False(t, h.orderly)
	require.ErrorIs(t, h.err, verbs.ErrProtocol)
	eventually(t, func() bool { return a.qp.State() == verbs.QPErr })
	eventually(t, func() bool { return door.users.Load() == 0 })
	eventually(t, func() bool {
		emptyEvent(b.ch.fd)
		select {
		case <-filling:
			return true
		default:
			return false
		}
	})
	require.NoError(t, unix.SetNonblock(b.ch.fd, true))
}

// TestSlowDoorbell: a write that takes long for another reason costs no wake-up, and no connection.
func TestSlowDoorbell(t *testing.T) {
	a, b := newConnected(t, defaults())
	door := asIfApart(a)
	b.postRecv(2, 0)
	require.NoError(t, b.cq.ReqNotify(false))
	a.qp.mu.Lock()
	a.qp.peer.out.Publish(shm.EntryWriteImm, 7, 0)
	require.True(t, a.qp.peer.out.TakeWake(false))
	a.qp.mu.Unlock()
	door.begun.Add(1) // and then the thread does not run
	door.watched.Store(true)
	door.look()
	b.waitEvent()
	require.EqualValues(t, 7, b.next().ImmData)

	door.ended.Add(1)
	eventually(t, func() bool { return !door.watched.Load() })
	require.NoError(t, b.cq.ReqNotify(false))
	a.post(writeImm(b, 0, nil, 8)) // it is rung as ever
	b.waitEvent()
	require.EqualValues(t, 8, b.next().ImmData)
	eventually(t, func() bool { return !door.watched.Load() })
}

// TestDoorWatchEnds: what is not rung any more is not looked at, and what is closed is not held open.
func TestDoorWatchEnds(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	require.NoError(t, err)
	door, err := newDoorbell(fd)
	require.NoError(t, err)
	require.True(t, door.ring())
	eventually(t, func() bool { return !door.watched.Load() })
	require.EqualValues(t, 1, door.users.Load())
	require.True(t, door.ring())
	door.release()
	require.False(t, door.holdOpen())
	door.look()
	require.EqualValues(t, 0, door.users.Load())
}

// TestBlockingSemaphore: nor does it help the peer to make its eventfd a semaphore, of which a read takes one.
func TestBlockingSemaphore(t *testing.T) {
	fd := eventfd(t, unix.EFD_NONBLOCK|unix.EFD_SEMAPHORE)
	door, err := newDoorbell(fd)
	require.NoError(t, err)
	stuck := make(chan bool, 1)
	door.stuck = func(filled bool) {
		select {
		case stuck <- filled:
		default:
		}
	}
	fill(t, fd)
	require.NoError(t, unix.SetNonblock(fd, false))
	door.ring()
	require.True(t, <-stuck, "it is taken for a thread that waits for a processor")
	door.release()
	eventually(t, func() bool { return door.users.Load() == 0 })
}

// TestNoProc: without /proc the error says what to mount.
func TestNoProc(t *testing.T) {
	_, err := os.Readlink("/nosuchproc/self/fd/14")
	require.EqualError(t, noProc(err), "readlink /nosuchproc/self/fd/14: no such file or directory (mount -t proc proc /proc)")
	require.ErrorIs(t, noProc(err), unix.ENOENT)
	require.NoError(t, noProc(nil))
	require.Equal(t, unix.EACCES, noProc(unix.EACCES))
}
