package rdmanet

import (
	"context"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoLink: a connection dialled with NoLink has a lane for itself, which is gone when it has
// ended, while others share theirs.
func TestNoLink(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that others have one lane
	eachFlavour(t, func(t *testing.T, fl flavour) {
		l, err := fl.listen.listen(context.Background(), "rdma", testAddr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		dial := func(noLink bool) (client, server *Conn) {
			d := fl.dialer
			d.NoLink = noLink
			client, err := d.dial(context.Background(), "rdma", l.Addr().String())
			require.NoError(t, err)
			t.Cleanup(func() { _ = client.Close() })
			server, err = l.AcceptConn()
			require.NoError(t, err)
			t.Cleanup(func() { _ = server.Close() })
			return client, server
		}
		talk := func(client, server *Conn) {
			t.Helper()
			write(t, client, 100)
			readFull(t, server, 100)
			write(t, server, 100)
			readFull(t, client, 100)
		}
		listed := func(id uint64) bool {
			return slices.ContainsFunc(Lanes(), func(l LaneInfo) bool { return l.ID == id })
		}
		first, firstServer := dial(false)
		alone, aloneServer := dial(true)
		second, secondServer := dial(false)
		other, otherServer := dial(true)
		shared, near, far, others := first.info().Lane, alone.info().Lane, aloneServer.info().Lane, other.info().Lane
		require.Equal(t, shared, second.info().Lane)
		require.Equal(t, firstServer.info().Lane, secondServer.info().Lane)
		require.NotEqual(t, shared, near)
		require.NotEqual(t, shared, others)
		require.NotEqual(t, near, others)
		require.NotEqual(t, firstServer.info().Lane, far)
		require.Equal(t, first.info().Link, alone.info().Link, "all are of one dialer and one listener")
		talk(alone, aloneServer)
		talk(other, otherServer)

		require.NoError(t, alone.Close())
		readEOF(t, aloneServer)
		require.NoError(t, aloneServer.Close())
		require.Eventually(t, func() bool { return !listed(near) && !listed(far) }, patience, time.Millisecond, "the lane is left")
		for _, id := range []uint64{shared, firstServer.info().Lane, others, otherServer.info().Lane} {
			require.True(t, listed(id))
		}
		talk(first, firstServer)
		talk(second, secondServer)
		talk(other, otherServer)
	})
}

// TestManyLanes: on a device that has more lanes than it has completion vectors each lane has its wake-ups and
// its deadlines.
func TestManyLanes(t *testing.T) {
	l, err := (&ListenConfig{}).listen(context.Background(), "rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	const lanes, rounds = 20, 10
	var clients []*Conn
	for range lanes {
		client, err := (&Dialer{NoLink: true}).dial(context.Background(), "rdma", l.Addr().String())
		require.NoError(t, err)
		defer client.Close()
		server, err := l.AcceptConn()
		require.NoError(t, err)
		defer server.Close()
		go func() { _, _ = io.Copy(server, server) }()
		clients = append(clients, client)
	}
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			message, back := []byte("as often as the others"), make([]byte, 22)
			for range rounds {
				_, err := c.Write(message)
				if !assert.NoError(t, err) {
					return
				}
				if _, err = io.ReadFull(c, back); !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, message, back)
				time.Sleep(time.Millisecond) // so that the ends sleep
			}
			assert.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			_, err := c.Read(back)
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		})
	}
	all.Wait()
}
