//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// fakeChannels is a library of which the test says what events there are. Each completion channel it
// makes is a pipe with a byte for each event, the number of a CQ.
type fakeChannels struct {
	t       *testing.T
	ctx     *devContext
	made    int // completion channels
	there   atomic.Int32
	writers map[uintptr]int // by the completion channel
	vectors []uintptr       // the completion channel of each CQ
	handles []cCQ           // of the CQs, in C memory
	acks    []atomic.Int32  // of the CQs
}

func newFakeChannels(t *testing.T, vectors int) *fakeChannels {
	const most = 64
	lib := fakeVerbs(t)
	f := &fakeChannels{
		t: t, ctx: fakeContext(t, lib, verbs.TransportRoCE), writers: map[uintptr]int{},
		handles: cMemory[cCQ](t, most), acks: make([]atomic.Int32, most),
	}
	at[cContext](f.ctx.handle).numCompVectors = int32(vectors)
	f.ctx.ownChannels.Store(leastOwn) // there are as many as may be
	channels := cMemory[cCompChannel](t, most)
	location := libc(t, "__errno_location")
	lib.createCompChannel = purego.NewCallback(func() uintptr {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return 0
		}
		channels[f.made].fd = int32(fds[0])
		handle := addressOf(&channels[f.made])
		f.writers[handle] = fds[1]
		f.made++
		f.there.Add(1)
		return handle
	})
	lib.destroyCompChannel = purego.NewCallback(func(handle uintptr) uintptr {
		f.there.Add(-1)
		unix.Close(f.writers[handle])
		unix.Close(int(at[cCompChannel](handle).fd))
		return 0
	})
	lib.createCQ = purego.NewCallback(func(_, _, _, channel uintptr) uintptr {
		f.vectors = append(f.vectors, channel)
		return addressOf(&f.handles[len(f.vectors)-1])
	})
	lib.destroyCQ = purego.NewCallback(func(uintptr) uintptr { return 0 })
	lib.getCQEvent = purego.NewCallback(func(channel uintptr, q, _ *uintptr) uintptr {
		var event [1]byte
		n, err := unix.Read(int(at[cCompChannel](channel).fd), event[:])
		if n == 1 {
			*q = addressOf(&f.handles[event[0]])
			return 0
		}
		errno := syscall.EIO // of a device that is gone
		if err != nil {
			errors.As(err, &errno)
		}
		*at[int32](call(location)) = int32(errno)
		return ^uintptr(0)
	})
	lib.ackCQEvents = purego.NewCallback(func(q uintptr, n uint32) uintptr {
		for i := range f.handles {
			if addressOf(&f.handles[i]) == q {
				f.acks[i].Add(int32(n))
			}
		}
		return 0
	})
	return f
}

// channel makes a channel and the CQ of the number that it returns.
func (f *fakeChannels) channel() (*compChannel, verbs.CQ, int) {
	ch, err := f.ctx.CreateCompChannel()
	require.NoError(f.t, err)
	q, err := f.ctx.CreateCQ(1, ch)
	require.NoError(f.t, err)
	return ch.(*compChannel), q, len(f.vectors) - 1
}

// event is one of the CQ of a number.
func (f *fakeChannels) event(n int) {
	_, err := unix.Write(f.writers[f.vectors[n]], []byte{byte(n)})
	require.NoError(f.t, err)
}

// TestSharedChannel has many channels of a device with few vectors: there are no more completion
// channels, and their descriptors, than vectors, and whoever waits is woken by what is its own.
func TestSharedChannel(t *testing.T) {
	const vectors, n = 3, 24
	f := newFakeChannels(t, vectors)
	before := descriptors(t)
	channels, queues := make([]*compChannel, n), make([]verbs.CQ, n)
	for i := range channels {
		channels[i], queues[i], _ = f.channel()
	}
	require.Equal(t, vectors, f.made)
	require.LessOrEqual(t, descriptors(t), before+3*vectors, "a pipe, and the poller's end of it")

	looks := make([]atomic.Int32, 2*n)
	looked, over := make(chan int, 4*n), make(chan error, 2*n)
	for i, ch := range channels {
		for j, wait := range []func(func() bool) error{ch.WaitRead, ch.WaitWrite} {
			go func() {
				over <- wait(func() bool {
					n := looks[2*i+j].Add(1)
					looked <- i
					return n > 1
				})
			}()
		}
	}
	for range 2 * n {
		<-looked
	}
	for i := n - 1; i >= 0; i-- {
		f.event(i)
		for range 2 {
			require.Equal(t, i, <-looked, "an event wakes both directions of one channel")
			require.NoError(t, <-over)
		}
	}
	for i, ch := range channels {
		// The event was for GetEvent as well, and another is.
		for range 2 {
			q, err := ch.GetEvent()
			require.NoError(t, err)
			require.Equal(t, queues[i], q)
			f.event(i)
		}
		require.ErrorIs(t, ch.Close(), verbs.ErrBusy)
		require.NoError(t, queues[i].Close())
		require.NoError(t, ch.Close())
		require.ErrorIs(t, ch.Close(), verbs.ErrClosed)
		require.ErrorIs(t, ch.WaitRead(func() bool { return true }), os.ErrClosed)
	}
	require.Zero(t, f.there.Load())
	require.Equal(t, before, descriptors(t))

	// Once there is a user again it is made again.
	ch, q, i := f.channel()
	f.event(i)
	got, err := ch.GetEvent()
	require.NoError(t, err)
	require.Equal(t, q, got)
	require.NoError(t, q.Close())
	require.NoError(t, ch.Close())
}

// descriptors is how many this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// TestSharedChannelAcknowledges: all events of a CQ are acknowledged when it is destroyed, which waits
// for that, and those that are read behind it at once.
func TestSharedChannelAcknowledges(t *testing.T) {
	f := newFakeChannels(t, 1)
	ch, q, i := f.channel()
	other, otherQ, o := f.channel()
	const events = ackBatch + 5
	for range events {
		f.event(i)
		_, err := ch.GetEvent()
		require.NoError(t, err)
	}
	require.EqualValues(t, ackBatch, f.acks[i].Load())
	require.NoError(t, q.Close())
	require.EqualValues(t, events, f.acks[i].Load())
	f.event(i)
	f.event(o) // the next, so the one before it was read
	_, err := other.GetEvent()
	require.NoError(t, err)
	require.EqualValues(t, events+1, f.acks[i].Load())
	require.NoError(t, otherQ.Close())
	require.NoError(t, other.Close())
	require.NoError(t, ch.Close())
}

// TestSharedChannelOfARemovedDevice: who waits hears of it, and who waits later.
func TestSharedChannelOfARemovedDevice(t *testing.T) {
	f := newFakeChannels(t, 1)
	ch, q, i := f.channel()
	bare, err := f.ctx.CreateCompChannel() // without a CQ
	require.NoError(t, err)
	over := make(chan error, 3)
	started := make(chan struct{}, 2)
	nothing := func() bool {
		started <- struct{}{}
		return false
	}
	go func() { over <- ch.WaitRead(nothing) }()
	go func() { over <- ch.WaitWrite(nothing) }()
	<-started
	<-started
	go func() {
		_, err := bare.GetEvent()
		over <- err
	}()
	w := f.writers[f.vectors[i]]
	f.writers[f.vectors[i]] = -1
	require.NoError(t, unix.Close(w))
	for range 3 {
		require.ErrorIs(t, <-over, verbs.ErrNoDevice)
	}
	require.ErrorIs(t, ch.WaitRead(func() bool { return true }), verbs.ErrNoDevice)
	require.NoError(t, q.Close())
	require.NoError(t, ch.Close())
	require.ErrorIs(t, ch.WaitRead(func() bool { return true }), os.ErrClosed)
	require.ErrorIs(t, ch.SetReadDeadline(time.Time{}), os.ErrClosed)
	require.NoError(t, bare.Close())
	require.Zero(t, f.there.Load())
}

// TestSharedChannelWhosePollerFails: of a device that is removed the poller may hear before the library says
// so, and then waits for the descriptor no more.
func TestSharedChannelWhosePollerFails(t *testing.T) {
	f := newFakeChannels(t, 1)
	var pipe [2]int // of which the descriptor that is waited for is the end to write to: it has EPOLLERR alone
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	defer unix.Close(pipe[1])
	for {
		if _, err := unix.Write(pipe[1], make([]byte, 1<<16)); err != nil {
			break
		}
	}
	channel := &cMemory[cCompChannel](t, 1)[0]
	channel.fd = int32(pipe[1])
	f.ctx.lib.createCompChannel = purego.NewCallback(func() uintptr { return addressOf(channel) })
	f.ctx.lib.destroyCompChannel = purego.NewCallback(func() uintptr { return 0 })
	location := libc(t, "__errno_location")
	f.ctx.lib.getCQEvent = purego.NewCallback(func() uintptr {
		unix.Close(pipe[0])
		time.Sleep(50 * time.Millisecond) // in which the poller sees it
		*at[int32](call(location)) = int32(syscall.EAGAIN)
		return ^uintptr(0)
	})
	ch, err := f.ctx.CreateCompChannel()
	require.NoError(t, err)
	require.ErrorIs(t, ch.WaitRead(func() bool { return false }), verbs.ErrNoDevice)
	require.NoError(t, ch.Close())
}

// TestSharedChannelMadeAtOnce: however many channels are made and closed at once, each vector has one
// completion channel in the end, and none at last.
func TestSharedChannelMadeAtOnce(t *testing.T) {
	f := newFakeChannels(t, 1)
	create, destroy := f.ctx.lib.createCompChannel, f.ctx.lib.destroyCompChannel
	var mu sync.Mutex
	serial := func(fn uintptr) uintptr {
		return purego.NewCallback(func(arg uintptr) uintptr {
			mu.Lock()
			defer mu.Unlock()
			return call(fn, arg)
		})
	}
	f.ctx.lib.createCompChannel, f.ctx.lib.destroyCompChannel = serial(create), serial(destroy)
	const most = 50 // of the completion channels of the fake
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range most / 8 {
				var mine [2]verbs.CompChannel
				for i := range mine {
					var err error
					mine[i], err = f.ctx.CreateCompChannel()
					if !assert.NoError(t, err) {
						return
					}
				}
				assert.Same(t, mine[0].(*compChannel).shared, mine[1].(*compChannel).shared)
				for _, ch := range mine {
					assert.NoError(t, ch.Close())
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, f.there.Load())
	require.Empty(t, f.ctx.channels.byVector)
}

// TestChannelWaitAllocates: a wait does not, with a deadline and without.
func TestChannelWaitAllocates(t *testing.T) {
	ch := &compChannel{shared: new(sharedChannel)}
	rd := newSharedWait(ch)
	ch.rd, ch.wr = rd, newSharedWait(ch)
	again := false
	look := func() bool {
		if again = !again; again {
			ch.wake()
		}
		return !again
	}
	for _, limit := range []time.Time{{}, time.Now().Add(time.Hour)} {
		require.NoError(t, rd.setDeadline(limit))
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = rd.wait(look) }))
	}
}

// TestOverrunWakes: a CQ that has lost completions tells of no others, so whoever sleeps for them has to
// look. He does on a completion channel of his own and on one that many share.
func TestOverrunWakes(t *testing.T) {
	for name, own := range map[string]int32{"own": 0, "shared": leastOwn} {
		t.Run(name, func(t *testing.T) {
			f := newFakeChannels(t, 1)
			f.ctx.ownChannels.Store(own)
			ch, q, _ := f.channel()
			require.Equal(t, own > 0, ch.shared != nil)
			q.(*cq).pollFn = succeedingCall() // it is empty
			looked := make(chan struct{}, 8)
			ended := make(chan error, 1)
			go func() {
				var failed error
				err := ch.WaitRead(func() bool {
					_, failed = q.Poll(make([]verbs.WC, 1))
					looked <- struct{}{}
					return failed != nil
				})
				ended <- errors.Join(err, failed)
			}()
			<-looked
			require.Empty(t, ended)
			q.(*cq).overrun()
			require.ErrorIs(t, <-ended, verbs.ErrCQOverrun)
			require.NoError(t, q.Close())
			require.NoError(t, ch.Close())
		})
	}
}
