package rdmanet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHandshakesKeepOrder has connections stand in another order than they were
// answered in.
func TestHandshakesKeepOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hs handshakes
		var out []*Conn
		deliver := func(c *Conn) { out = append(out, c) }
		var h [4]handshake
		var c [4]Conn
		want := func(conns ...*Conn) {
			t.Helper()
			synctest.Wait()
			hs.mu.Lock() // deliver is called with it held
			defer hs.mu.Unlock()
			require.Len(t, out, len(conns))
			for i := range conns {
				require.Same(t, conns[i], out[i])
			}
			out = nil
		}
		for i := range h[:3] {
			hs.begin(&h[i], func(error) {})
		}
		hs.succeed(&h[2], &c[2], deliver)
		hs.succeed(&h[1], &c[1], deliver)
		want()
		hs.succeed(&h[0], &c[0], deliver)
		want(&c[0], &c[1], &c[2])
		require.Zero(t, hs.pending.Len())

		// Whoever fails is not waited for.
		var f [4]handshake
		for i := range f[:3] {
			hs.begin(&f[i], func(error) {})
		}
		hs.succeed(&f[2], &c[2], deliver)
		hs.fail(&f[1], deliver)
		want()
		hs.fail(&f[0], deliver)
		want(&c[2])
		hs.fail(&f[3], deliver) // it never began
		time.Sleep(orderGrace)  // and the timer finds nothing
		want()

		// Nor is whoever takes too long, and then nobody is for a while.
		var s [4]handshake
		hs.begin(&s[0], func(error) {})
		time.Sleep(orderGrace / 2)
		hs.begin(&s[1], func(error) {})
		hs.succeed(&s[1], &c[1], deliver)
		time.Sleep(orderGrace/2 - 1)
		want()
		time.Sleep(time.Nanosecond)
		want(&c[1])
		hs.begin(&s[2], func(error) {})
		hs.begin(&s[3], func(error) {})
		hs.succeed(&s[3], &c[3], deliver)
		want(&c[3])
		hs.succeed(&s[0], &c[0], deliver)
		hs.succeed(&s[2], &c[2], deliver)
		want(&c[0], &c[2])
		time.Sleep(orderPause)
		var u [2]handshake
		hs.begin(&u[0], func(error) {})
		hs.begin(&u[1], func(error) {})
		hs.succeed(&u[1], &c[1], deliver)
		want()
		hs.succeed(&u[0], &c[0], deliver)
		want(&c[0], &c[1])
		time.Sleep(time.Second)
	})
}

// TestHandshakesEvict has those that take too long give way, the oldest first.
func TestHandshakesEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hs handshakes
		var h [3]handshake
		var evicted []int
		require.Equal(t, halfOpenGrace, hs.evictOldest())
		for i := range h {
			hs.begin(&h[i], func(cause error) {
				require.Equal(t, errEvicted, cause)
				evicted = append(evicted, i)
			})
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, halfOpenGrace-30*time.Millisecond, hs.evictOldest())
		require.Empty(t, evicted)
		hs.succeed(&h[1], new(Conn), func(*Conn) {}) // what stands stays
		time.Sleep(halfOpenGrace - 30*time.Millisecond)
		require.Equal(t, lastLook, hs.evictOldest())
		require.Empty(t, evicted)
		time.Sleep(lastLook)
		require.Equal(t, halfOpenGrace, hs.evictOldest())
		require.Equal(t, []int{0}, evicted)
		require.Equal(t, 20*time.Millisecond-lastLook, hs.evictOldest(), "it gives way once")
		time.Sleep(20*time.Millisecond - lastLook)
		require.Equal(t, lastLook, hs.evictOldest())
		time.Sleep(lastLook)
		require.Equal(t, halfOpenGrace, hs.evictOldest())
		require.Equal(t, []int{0, 2}, evicted)
		require.Equal(t, halfOpenGrace, hs.evictOldest())
		require.Equal(t, []int{0, 2}, evicted)
	})
}

// TestHandshakesStoodStill has a process that was stopped meanwhile: it reads what is
// there before anybody gives way, and those who do so give way together.
func TestHandshakesStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hs handshakes
		var h [4]handshake
		evicted := 0
		for i := range h {
			hs.begin(&h[i], func(error) { evicted++ })
		}
		time.Sleep(time.Hour)
		require.Equal(t, lastLook, hs.evictOldest())
		require.Equal(t, lastLook, hs.evictOldest(), "whoever else wants a place")
		hs.succeed(&h[0], new(Conn), func(*Conn) {})
		time.Sleep(lastLook)
		for range 3 {
			require.Equal(t, halfOpenGrace, hs.evictOldest())
		}
		require.Equal(t, 3, evicted)
	})
}

// TestAcceptInOrder has clients that dial one after the other come to Accept so.
func TestAcceptInOrder(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		for range 20 {
			var clients []*Conn
			for range 8 {
				c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
				require.NoError(t, err)
				defer c.Close()
				clients = append(clients, c)
			}
			for _, c := range clients {
				s, err := l.AcceptConn()
				require.NoError(t, err)
				defer s.Close()
				require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
			}
		}
	})
}
