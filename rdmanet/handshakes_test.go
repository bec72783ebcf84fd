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
			hs.begin(&h[i], silentTicks, func(error) {})
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
			hs.begin(&f[i], silentTicks, func(error) {})
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
		hs.begin(&s[0], silentTicks, func(error) {})
		time.Sleep(orderGrace / 2)
		hs.begin(&s[1], silentTicks, func(error) {})
		hs.succeed(&s[1], &c[1], deliver)
		time.Sleep(orderGrace/2 - 1)
		want()
		time.Sleep(time.Nanosecond)
		want(&c[1])
		hs.begin(&s[2], silentTicks, func(error) {})
		hs.begin(&s[3], silentTicks, func(error) {})
		hs.succeed(&s[3], &c[3], deliver)
		want(&c[3])
		hs.succeed(&s[0], &c[0], deliver)
		hs.succeed(&s[2], &c[2], deliver)
		want(&c[0], &c[2])
		time.Sleep(orderPause)
		var u [2]handshake
		hs.begin(&u[0], silentTicks, func(error) {})
		hs.begin(&u[1], silentTicks, func(error) {})
		hs.succeed(&u[1], &c[1], deliver)
		want()
		hs.succeed(&u[0], &c[0], deliver)
		want(&c[0], &c[1])
		time.Sleep(time.Second)
	})
}

// TestHandshakesConfirmed has a device that tells who has confirmed: connections wait for
// those, who are told to hurry, however long it takes, and for nobody else.
func TestHandshakesConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hs handshakes
		var out []*Conn
		deliver := func(c *Conn) { out = append(out, c) }
		var h [4]handshake
		var c [4]Conn
		var said, hurried [4]bool
		for i := range h {
			h[i].confirmed = func() (bool, bool) { return said[i], true }
			hs.begin(&h[i], silentTicks, func(cause error) {
				require.Equal(t, errHurry, cause)
				hurried[i] = true
			})
		}
		said = [4]bool{0: true, 2: true, 3: true}
		hs.succeed(&h[3], &c[3], deliver)
		time.Sleep(time.Hour)
		require.Empty(t, out)
		require.Equal(t, [4]bool{0: true}, hurried, "the first is next")
		hs.succeed(&h[0], &c[0], deliver)
		require.Equal(t, []*Conn{&c[0]}, out)
		require.Equal(t, [4]bool{0: true, 2: true}, hurried, "who is in its dial is not waited for")
		hs.fail(&h[2], deliver)
		require.Equal(t, []*Conn{&c[0], &c[3]}, out)
		said[1] = true
		hs.succeed(&h[1], &c[1], deliver)
		require.Equal(t, []*Conn{&c[0], &c[3], &c[1]}, out)
		require.Zero(t, hs.standing)
		require.Nil(t, hs.timer, "no clock")
	})
}

// silent begins n handshakes that do nothing, and returns which gave way.
func silent(t *testing.T, hs *handshakes, h []handshake) *[]int {
	t.Helper()
	evicted := new([]int)
	for i := range h {
		require.True(t, hs.take())
		hs.begin(&h[i], silentTicks, func(cause error) {
			require.Equal(t, errEvicted, cause)
			*evicted = append(*evicted, i)
		})
	}
	require.False(t, hs.take())
	return evicted
}

// leave has a handshake that gave way end.
func leave(hs *handshakes, h *handshake) { hs.fail(h, func(*Conn) {}) }

// patienceOf is how long a client may be silent.
const patienceOf = (silentTicks + 1) * silentTick

// TestHandshakesEvict has those that are silent give way, the oldest first, one for each
// place that is needed.
func TestHandshakesEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := handshakes{free: 4}
		var h [4]handshake
		evicted := silent(t, &hs, h[:])
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, *evicted, "nobody waits")

		hs.succeed(&h[1], new(Conn), func(*Conn) {}) // what stands stays
		a, b := hs.wait(), hs.wait()
		time.Sleep(patienceOf - 1)
		synctest.Wait()
		require.Empty(t, *evicted)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, []int{0, 2}, *evicted, "as many as wait")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []int{0, 2}, *evicted, "and not one more for each tick")
		leave(&hs, &h[2])
		<-a.got
		select {
		case <-b.got:
			t.Fatal("one place for two")
		default:
		}

		// One that had confirmed after all stays, and the next gives way in its place.
		hs.succeed(&h[0], new(Conn), func(*Conn) {})
		time.Sleep(silentTick)
		synctest.Wait()
		require.Equal(t, []int{0, 2, 3}, *evicted)
		leave(&hs, &h[3])
		<-b.got
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []int{0, 2, 3}, *evicted)
		require.Zero(t, hs.leaving)
		require.False(t, hs.ticking)
		require.Zero(t, hs.free)
	})
}

// TestHandshakesStoodStill has a process that was stopped: that is one tick.
func TestHandshakesStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := handshakes{free: 2}
		var h [2]handshake
		evicted := silent(t, &hs, h[:])
		hs.ticking = true // the ticks are this test's
		tick := func() {
			hs.mu.Lock()
			defer hs.mu.Unlock()
			hs.evictSilent()
		}
		w := hs.wait()
		for range silentTicks {
			time.Sleep(time.Hour)
			tick()
		}
		require.Empty(t, *evicted, "however long they were")
		hs.succeed(&h[0], new(Conn), func(*Conn) {}) // which had yet to be read
		tick()
		require.Equal(t, []int{1}, *evicted)
		hs.stopWaiting(w)
		time.Sleep(time.Hour)
	})
}

// TestHandshakesWait has clients that wait for places get them in order, or leave.
func TestHandshakesWait(t *testing.T) {
	var hs handshakes
	hs.free = 1
	require.True(t, hs.take())
	a, b, c := hs.wait(), hs.wait(), hs.wait()
	hs.stopWaiting(b)
	hs.release()
	<-a.got
	hs.release()
	<-c.got
	hs.stopWaiting(c) // who leaves when it has got it gives it back
	d := hs.wait()
	<-d.got
	require.False(t, hs.take())
	hs.release()
	require.Equal(t, 1, hs.free)
	require.Zero(t, hs.waiting.Len())
}

// TestHandshakesUnconfirmed has more places than clients may be without a connection.
func TestHandshakesUnconfirmed(t *testing.T) {
	hs := handshakes{free: maxUnconfirmed + 2}
	h := make([]handshake, maxUnconfirmed)
	for i := range h {
		require.True(t, hs.take())
		hs.begin(&h[i], silentTicks, func(error) {})
	}
	require.False(t, hs.take())
	a, b, c := hs.wait(), hs.wait(), hs.wait()
	hs.succeed(&h[0], new(Conn), func(*Conn) {})
	<-a.got
	hs.fail(&h[1], func(*Conn) {})
	<-b.got
	hs.succeed(&h[2], new(Conn), func(*Conn) {})
	<-c.got // the last place that nobody had
	hs.fail(new(handshake), func(*Conn) {})
	require.True(t, hs.take())
	require.Equal(t, maxUnconfirmed, hs.asking)
	d := hs.wait()
	hs.release()
	hs.stopWaiting(d)
	require.Equal(t, 1, hs.free)
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
