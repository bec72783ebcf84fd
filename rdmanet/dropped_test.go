package rdmanet

import (
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

// collects runs the collector until done, and fails the test if that never comes.
func collects(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.True(t, leaktest.Collected(done), "%s, whatever the collector did", what)
}

// TestDropped: the program loses a Conn without closing it. The collector closes it: the peer
// reads what was written and then the end of file, or has a reset if there was something that
// nobody will read, and nothing is left. Until then Conns tells of it.
func TestDropped(t *testing.T) {
	for _, tt := range []struct {
		name string
		use  func(t *testing.T, client, server net.Conn)
		want error
	}{
		{"written", func(*testing.T, net.Conn, net.Conn) {}, nil},
		{"unread", func(t *testing.T, client, server net.Conn) {
			write(t, server, 10)
			require.Eventually(t, func() bool { return client.(*Conn).info().Unread == 10 }, patience, time.Millisecond)
		}, syscall.ECONNRESET},
		{"peeked", func(t *testing.T, client, server net.Conn) {
			write(t, server, 10)
			_, err := client.(*Conn).Peek(1)
			require.NoError(t, err)
		}, syscall.ECONNRESET},
		{"reserved", func(t *testing.T, client, _ net.Conn) {
			_, err := client.(*Conn).Reserve(100)
			require.NoError(t, err)
		}, nil},
		{"looked at by its descriptor", func(t *testing.T, client, _ net.Conn) {
			raw, err := client.(*Conn).SyscallConn()
			require.NoError(t, err)
			require.NoError(t, raw.Control(func(uintptr) {}))
		}, nil},
		{"shut", func(t *testing.T, client, _ net.Conn) {
			require.NoError(t, client.(*Conn).CloseWrite())
		}, nil},
		{"after the collector has run", func(t *testing.T, client, _ net.Conn) {
			collects(t, "its guard has no finalizer", func() bool { return client.(*Conn).young.Load() == nil })
		}, nil},
		{"with a finalizer of the program", func(_ *testing.T, client, _ net.Conn) {
			runtime.SetFinalizer(client.(*Conn), func(*Conn) {})
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, fl flavour) {
				before := settled(t)
				counts := ReadStats()
				server := dropOne(t, &fl, tt.use)
				ended := begun(func() error {
					got, err := io.ReadAll(server)
					if err == nil && string(got) != "last words" {
						err = io.ErrUnexpectedEOF
					}
					return err
				})
				var err error
				collects(t, "a Conn stayed open that the program has dropped", func() bool {
					select {
					case err = <-ended:
						return true
					default:
						return false
					}
				})
				if tt.want != nil {
					require.ErrorIs(t, err, tt.want)
				} else {
					require.NoError(t, err)
				}
				require.NoError(t, server.Close())
				collects(t, "something was left of them", func() bool { return len(Conns()) == 0 && MemoryInUse() <= before })
				d := counted(t, server.Device(), counts)
				require.Equal(t, ConnCount{Total: 1}, d.Dialled)
				require.GreaterOrEqual(t, d.BytesWritten, uint64(len("last words")), "what it counted is kept")
			})
		})
	}
}

// dropOne makes a connection and loses the dialer's end, in a frame of its own so that no
// variable of the test keeps it.
func dropOne(t *testing.T, fl *flavour, use func(t *testing.T, client, server net.Conn)) *Conn {
	client, server, err := dialPair(&fl.dialer, &fl.listen)
	require.NoError(t, err)
	_, err = client.Write([]byte("last words"))
	require.NoError(t, err)
	use(t, client, server)
	require.Len(t, Conns(), 2, "they are open")
	runtime.KeepAlive(client)
	return server
}

// TestDroppedInACall: a Conn that only its waiting call knows of stays open.
func TestDroppedInACall(t *testing.T) {
	server, got := readAndDrop(t)
	for range 20 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	_, err := server.Write([]byte("hello"))
	require.NoError(t, err)
	within(t, patience, "a Read of a Conn that nobody else knows of", func() { require.NoError(t, <-got) })
	collects(t, "the Conn stayed open behind its last call", func() bool { return len(Conns()) == 1 })
	require.NoError(t, server.Close())
}

func readAndDrop(t *testing.T) (server *Conn, got <-chan error) {
	client, server, err := dialPair(&Dialer{}, &ListenConfig{})
	require.NoError(t, err)
	got = begun(func() error {
		_, err := client.Read(make([]byte, 5)) // the last that is known of it
		return err
	})
	require.Eventually(t, func() bool { return client.Stats().Parks > 0 }, patience, time.Millisecond)
	return server, got
}

// TestDroppedAfterClose: the collector does nothing to a Conn that was closed.
func TestDroppedAfterClose(t *testing.T) {
	var streams []*stream
	func() {
		client, server, err := dialPair(&Dialer{}, &ListenConfig{})
		require.NoError(t, err)
		for _, c := range []*Conn{client, server} {
			streams = append(streams, c.stream)
			require.NoError(t, c.Close())
		}
	}()
	for _, st := range streams {
		within(t, patience, "the teardown", func() { <-st.done() })
	}
	for range 2 { // the finalizers of one cycle have run when one of the next does
		var ran atomic.Bool
		runtime.SetFinalizer(new([16]byte), func(*[16]byte) { ran.Store(true) })
		collects(t, "no finalizer ran", ran.Load)
	}
	for _, st := range streams {
		require.Zero(t, st.left.Load(), "it has left as often as it is counted")
	}
}

// TestGuards: a connection has a finalizer when the collector has run, and none if it was closed before.
func TestGuards(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	collects(t, "the Conns of other tests have no finalizers", func() bool {
		live.mu.Lock()
		defer live.mu.Unlock()
		return live.young == nil && !live.watching
	})
	var conns []*Conn
	for range 4 {
		client, server := pair(t)
		conns = append(conns, client, server)
	}
	young := func() (n int) {
		for _, c := range conns {
			if c.young.Load() != nil {
				n++
			}
		}
		return n
	}
	require.Equal(t, len(conns), young())
	for _, c := range conns[:3] {
		require.NoError(t, c.Close())
		within(t, patience, "the teardown", func() { <-c.done() })
	}
	require.Equal(t, len(conns)-3, young())
	collects(t, "some have no finalizer", func() bool { return young() == 0 })
	for _, c := range conns { // also those that have one
		if err := c.Close(); err != nil {
			require.ErrorIs(t, err, net.ErrClosed)
		}
	}

	// Close may come between the two steps of guard.
	c := conns[len(conns)-1]
	within(t, patience, "the teardown", func() { <-c.done() })
	c.dropped()
	require.Zero(t, c.left.Load())
}

// TestGuardsOfRegistry: those are guarded that were there at a time, and whoever leaves the registry is
// waited for no more.
func TestGuardsOfRegistry(t *testing.T) {
	r := &registry{devices: map[string]*deviceCounters{}}
	var all []*stream
	for i := range 3 * guardBatch {
		st := &stream{place: place{since: time.Duration(i)}}
		g := &dropGuard{stream: st}
		require.True(t, g.life.close(), "so that its finalizer does nothing")
		st.young.Store(g)
		if i == 0 {
			r.young = st
		} else {
			all[i-1].newer, st.older = st, all[i-1]
		}
		all, r.newest = append(all, st), st
	}
	const last = 2*guardBatch - 1
	r.guard(last)
	for i, st := range all {
		require.Equal(t, i > last, st.young.Load() != nil, i)
	}
	require.Same(t, all[last+1], r.young)
	require.True(t, r.watching, "the next ones wait for the collector")

	r.unlink(all[last+1])
	require.Same(t, all[last+2], r.young)
	r.guard(time.Hour)
	require.Nil(t, r.young)
	require.False(t, r.watching)
	r.unlink(all[0])
	r.unlink(all[len(all)-1])
	require.Same(t, all[len(all)-2], r.newest)
	require.Nil(t, r.young)
}
