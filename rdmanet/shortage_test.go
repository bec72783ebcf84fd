package rdmanet

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// TestShortageTurns has three clients wait: the first tries again after pauses that grow;
// for want of descriptors the last is sent away, so that who holds what the first one lacks
// gives it back; who is served lets the next one try at once.
func TestShortageTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := false
		s := newShortages(func(hold bool) { held = hold })
		began := time.Now()
		a, b, c := s.join(true), s.join(true), s.join(true)
		require.True(t, held)
		<-a.turn
		require.Equal(t, firstShortagePause, time.Since(began))
		s.failed(a, false) // of memory, which nobody who waits has
		<-a.turn
		require.Equal(t, 3*firstShortagePause, time.Since(began))
		require.Empty(t, b.turn)
		s.failed(a, true)
		_, mine := <-c.turn
		require.False(t, mine, "the last one is to give back what it holds")
		s.leave(c, false)
		<-a.turn
		require.Equal(t, 5*firstShortagePause, time.Since(began), "the pause does not grow where somebody gave way")
		s.failed(a, true)
		_, mine = <-b.turn
		require.False(t, mine)
		for range 12 {
			<-a.turn
			s.failed(a, true)
		}
		began = time.Now()
		<-a.turn
		require.Equal(t, lastShortagePause, time.Since(began))
		d := s.join(true)
		s.failed(a, false)
		began = time.Now()
		resourcesFreed()
		<-a.turn
		resourcesFreed() // while it tries
		s.failed(a, false)
		<-a.turn
		require.Zero(t, time.Since(began), "it tried too early")
		s.leave(a, true)
		<-d.turn
		require.Zero(t, time.Since(began), "they do not wait for the pause")
		require.True(t, held)
		s.leave(d, true)
		require.False(t, held)
		require.False(t, s.some())
	})
}

// TestShortageOfOthers has clients wait of whom not all hold descriptors: only those that do
// are sent away.
func TestShortageOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShortages(func(bool) {})
		a, b, c, d := s.join(false), s.join(true), s.join(true), s.join(false)
		for _, next := range []*shortClient{c, b} {
			<-a.turn
			s.failed(a, true)
			_, mine := <-next.turn
			require.False(t, mine)
		}
		for pause := firstShortagePause; pause < lastShortagePause; pause *= 2 {
			began := time.Now()
			<-a.turn
			s.failed(a, true) // nobody is left who could give something back
			require.Equal(t, pause, time.Since(began))
		}
		require.Empty(t, d.turn)
		<-a.turn
		s.leave(a, true)
		_, mine := <-d.turn
		require.True(t, mine)
		s.leave(d, true)
		require.False(t, s.some())
	})
}

// TestShortageTell has who waits at that moment hear of a shortage, and nobody later, and
// warns once in a while.
func TestShortageTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShortages(func(bool) {})
		first, second := errors.New("first"), errors.New("second")
		require.True(t, s.tell(first))
		heard := make(chan error, 1)
		go func() { heard <- <-s.errors }()
		synctest.Wait()
		require.False(t, s.tell(second))
		require.Equal(t, second, <-heard)
		time.Sleep(shortageLogged)
		require.True(t, s.tell(first))
		require.EqualValues(t, 3, s.count.Load())
		select {
		case err := <-s.errors:
			t.Fatalf("kept for later: %v", err)
		default:
		}
	})
}

// TestShortageIsNotStale has a shortage begin and end while nobody is in Accept, whether
// anybody waits for its end or not: the Accept that follows knows nothing of it.
func TestShortageIsNotStale(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		l.event(&cm.Event{Type: cm.ConnectError, ID: l.id, Err: os.NewSyscallError("accept4", syscall.EMFILE)})
		require.EqualValues(t, 1, l.Stats().Shortages)
		require.NoError(t, l.SetDeadline(time.Now().Add(time.Millisecond)))
		_, err := l.Accept()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody is there")
		require.NoError(t, l.SetDeadline(time.Time{}))
		client := begun(func() error {
			c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
			if err == nil {
				err = c.Close()
			}
			return err
		})
		c, err := l.AcceptConn()
		require.NoError(t, err, "all is well")
		requireClosed(t, c)
		require.NoError(t, <-client)
	})
}
