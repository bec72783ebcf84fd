//go:build linux

package rdmanet

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// twoProcessFlavours take different paths between processes; the others are told
// apart in one process.
func twoProcessFlavours(t *testing.T, f func(t *testing.T, fl flavour)) {
	for _, fl := range flavours()[:ofTwoProcesses()] {
		t.Run(fl.name, func(t *testing.T) { f(t, fl) })
	}
}

// ofTwoProcesses is how many flavours that are: with -short the first.
func ofTwoProcesses() int {
	if testing.Short() {
		return 1
	}
	return len(flavours())
}

// bothWays runs f on connections that the other process accepted, and on those it dialled.
func bothWays(t *testing.T, fl flavour, f func(t *testing.T, r *remote, c *Conn, end *remoteConn)) {
	t.Run("accepted there", func(t *testing.T) {
		r := startRemote(t)
		c, end := r.dial(fl)
		f(t, r, c, end)
	})
	t.Run("dialled there", func(t *testing.T) {
		r := startRemote(t)
		c, end := r.dialled(fl)
		f(t, r, c, end)
	})
}

// TestTwoProcessNetConn is nettest's suite with the two ends in two processes.
func TestTwoProcessNetConn(t *testing.T) {
	mostlyWaits(t)
	atOnce(t, flavours()[:ofTwoProcesses()], flavourName, func(t *testing.T, fl flavour) {
		for _, way := range []struct {
			name string
			pipe func(r *remote, fl flavour) (*Conn, *remoteConn)
		}{
			{"accepted there", (*remote).dial},
			{"dialled there", (*remote).dialled},
		} {
			t.Run(way.name, func(t *testing.T) {
				r := startRemote(t)
				nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
					here, there := way.pipe(r, fl)
					return here, there, func() { here.Close(); there.Close() }, nil
				})
			})
		}
	})
}

// TestTwoProcessBulk moves bytes both ways at once and compares their hashes.
func TestTwoProcessBulk(t *testing.T) {
	mostlyWaits(t)
	const size = 8 << 20
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		bothWays(t, fl, func(t *testing.T, r *remote, c *Conn, end *remoteConn) {
			theirs := begin[RemoteSum](r, "Send", RemoteSend{ID: end.ID, Seed: 1, N: size})
			theirSum := begin[RemoteSum](r, "Sum", end.ID)
			ours := make(chan RemoteSum, 1)
			go func() { ours <- send(c, 2, size) }()
			ourSum := sum(c)

			sent, arrived := <-theirs, ourSum
			require.Equal(t, RemoteError{}, sent.Err)
			require.Equal(t, RemoteError{}, arrived.Err)
			require.Equal(t, int64(size), sent.N)
			require.Equal(t, sent, arrived)
			sent, arrived = <-ours, <-theirSum
			require.Equal(t, RemoteError{}, sent.Err)
			require.Equal(t, RemoteError{}, arrived.Err)
			require.Equal(t, int64(size), sent.N)
			require.Equal(t, sent, arrived)

			s := c.Stats()
			require.Equal(t, uint64(size), s.BytesRead)
			require.Equal(t, uint64(size), s.BytesWritten)
		})
	})
}

// TestTwoProcessEcho has the other process return what it gets, small and large.
func TestTwoProcessEcho(t *testing.T) {
	mostlyWaits(t)
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		r := startRemote(t)
		c, end := r.dial(fl)
		echoed := begin[RemoteSum](r, "Echo", end.ID)
		total := 0
		for n := 1; n <= 300_000; n = n*3 + 1 {
			msg := []byte(strings.Repeat("echo", n/4+1)[:n])
			go func() {
				_, err := c.Write(msg)
				assert.NoError(t, err)
			}()
			require.Equal(t, msg, readFull(t, c, n))
			total += n
		}
		require.NoError(t, c.CloseWrite())
		_, err := c.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.Equal(t, int64(total), (<-echoed).N)
	})
}

// TestTwoProcessLostWakeup is TestLostWakeupPingPong and TestLostWakeupFull between
// two processes, where the two ends really run at the same time.
func TestTwoProcessLostWakeup(t *testing.T) {
	rounds, size := slice(20_000), slice(4<<20)
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		r := startRemote(t)
		c, end := r.dial(fl)
		within(t, lasting, "both games", func() {
			for balls := range 3 {
				theirs := begin[RemoteError](r, "Play", RemotePlay{end.ID, balls, rounds})
				assert.NoError(t, play(sleeper{c}, 1, rounds, uint64(balls)))
				assert.Equal(t, RemoteError{}, <-theirs)
			}
			poured := begin[RemoteError](r, "Pour", RemoteSend{end.ID, 3, int64(size)})
			sipped := begin[RemoteError](r, "Sip", RemoteSend{end.ID, 4, int64(size)})
			ours := make(chan error, 1)
			go func() { ours <- pour(sleeper{c}, size, 5) }()
			assert.NoError(t, sip(sleeper{c}, size, 6))
			assert.NoError(t, <-ours)
			assert.Equal(t, RemoteError{}, <-poured)
			assert.Equal(t, RemoteError{}, <-sipped)
		})
		requireParked(t, rounds/100, c)
		there := call[ConnStats](r, "Stats", end.ID)
		require.Positive(t, there.Parks)
	})
}
