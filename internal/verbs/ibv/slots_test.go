//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(3)
		var in atOnce
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				s.take()
				defer s.give()
				in.enter()
				time.Sleep(time.Millisecond)
				in.leave()
			})
		}
		all.Wait()
		assert.EqualValues(t, 3, in.most.Load())

		for range 3 {
			s.take()
		}
		done := make(chan struct{})
		got := make(chan bool)
		go func() { got <- s.takeUnless(done) }()
		synctest.Wait()
		close(done)
		assert.False(t, <-got)
		s.give()
		assert.False(t, s.takeUnless(done), "although there is one")
		s.give()
		s.give()
	})
}

// threads is how many OS threads the process has.
func threads(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(status), "\nThreads:")
	require.True(t, ok)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return n
}

// libc is functions of the C library, which wait as a device may.
func libc(t *testing.T, name string) uintptr {
	t.Helper()
	needVerbs(t) // the dynamic loader is used as by the driver
	fn, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
	require.NoError(t, err)
	return fn
}

// blockedRoute is an id whose rdma_resolve_route waits for a semaphore until answer is
// called, as librdmacm waits for a daemon that does not answer.
func blockedRoute(t *testing.T) (id *cmID, told chan driver.CMEvent, answer func()) {
	t.Helper()
	wait, post, nothing := libc(t, "sem_wait"), libc(t, "sem_post"), libc(t, "isatty")
	lib := needVerbs(t)
	semaphore, err := newArena(lib, 64) // zeros are a semaphore of 0
	require.NoError(t, err)
	told = make(chan driver.CMEvent, 4)
	id = &cmID{ch: newCMChannel(lib, &librdmacm{destroyID: nothing, resolveRoute: wait}), handle: semaphore.base, state: cmAddrResolved}
	id.events.Init(func(ev driver.CMEvent) { told <- ev })
	id.ch.register(id)
	answer = func() { call(post, semaphore.base) }
	t.Cleanup(func() {
		for range 2 * routeSlots {
			answer()
		}
		for range routeSlots { // nobody waits any more
			id.ch.routes.take()
		}
		semaphore.free()
	})
	return id, told, answer
}

// A route that is not resolved in time is given up, however long the library takes, and
// the id can be closed; what it used is destroyed when the library returns.
func TestResolveRouteTimeout(t *testing.T) {
	id, told, answer := blockedRoute(t)
	require.NoError(t, id.ResolveRoute(20*time.Millisecond))
	ev := <-told
	require.Equal(t, driver.CMRouteError, ev.Type)
	require.ErrorContains(t, ev.Err, "not resolved within 20ms")
	require.NotErrorIs(t, ev.Err, verbs.ErrTryAgain)
	require.NoError(t, id.Close())
	id.mu.Lock()
	assert.NotZero(t, id.toDestroy, "the library still uses it")
	id.mu.Unlock()
	answer()
	require.Eventually(t, func() bool {
		id.mu.Lock()
		defer id.mu.Unlock()
		return id.toDestroy == 0 && id.users == 0
	}, 30*time.Second, time.Millisecond)
	require.Empty(t, told)
}

// Who has had no turn by then, as others took all the time, may try again.
func TestResolveRouteWithoutATurn(t *testing.T) {
	id, told, _ := blockedRoute(t)
	for range routeSlots {
		id.ch.routes.take()
	}
	require.NoError(t, id.ResolveRoute(20*time.Millisecond))
	ev := <-told
	require.Equal(t, driver.CMRouteError, ev.Type)
	require.ErrorIs(t, ev.Err, verbs.ErrTryAgain)
	require.ErrorIs(t, ev.Err, syscall.ETIMEDOUT)
	require.NoError(t, id.Close())
	for range routeSlots {
		id.ch.routes.give()
	}
}

// A kernel that finds the route by itself, and has no time for that, may be asked again. One
// that asks the subnet's manager has no answer.
func TestResolveRouteInABusyKernel(t *testing.T) {
	for transport, again := range map[verbs.Transport]bool{
		verbs.TransportRoCE: true, verbs.TransportIWARP: true, verbs.TransportIB: false,
	} {
		got := false
		for timeout := 100 * time.Millisecond; !got && timeout < time.Minute; timeout *= 10 { // the library may be slow as well
			id, told, answer := blockedRoute(t)
			id.ctx = &devContext{dev: &device{transport: transport}}
			answer()
			require.NoError(t, id.ResolveRoute(timeout))
			ev := <-told
			require.Equal(t, driver.CMRouteError, ev.Type)
			require.ErrorIs(t, ev.Err, syscall.ETIMEDOUT)
			require.NoError(t, id.Close())
			got = errors.Is(ev.Err, verbs.ErrTryAgain)
			if !again {
				break
			}
		}
		require.Equal(t, again, got, "%v", transport)
	}
}

// Close does not wait for the library, and neither does anybody else whose turn has not
// come: those who wait behind calls that hang take no threads.
func TestCloseWhileRouteIsResolved(t *testing.T) {
	id, told, _ := blockedRoute(t)
	before := threads(t)
	ids := []*cmID{id}
	for range 1000 {
		other := &cmID{ch: id.ch, handle: id.handle, state: cmAddrResolved}
		other.events.Init(func(ev driver.CMEvent) { told <- ev })
		id.ch.register(other)
		ids = append(ids, other)
	}
	for _, x := range ids {
		require.NoError(t, x.ResolveRoute(time.Hour))
	}
	require.Eventually(t, func() bool { return len(id.ch.routes) == cap(id.ch.routes) }, 30*time.Second, time.Millisecond)
	assert.Less(t, threads(t)-before, 50)
	for _, x := range ids {
		require.NoError(t, x.Close())
	}
	require.Empty(t, told)
}

// All slots that there are count among the threads that a process may need.
func TestThreadsAreThoseOfSlots(t *testing.T) {
	kind := reflect.TypeFor[slots]()
	sum, fields := 0, 0
	ch := reflect.ValueOf(newCMChannel(nil, nil)).Elem()
	for i := range ch.NumField() {
		if f := ch.Field(i); f.Type() == kind {
			sum += f.Cap()
		}
	}
	assert.Equal(t, ThreadsOfCM, sum)
	assert.Equal(t, ThreadsOfIWARP, ch.FieldByName("connects").FieldByName("all").Cap())
	device := reflect.TypeFor[devContext]()
	for i := range device.NumField() {
		if device.Field(i).Type == kind {
			fields++
		}
	}
	assert.Equal(t, 3, fields, "ThreadsOfDevice has three kinds")
}
