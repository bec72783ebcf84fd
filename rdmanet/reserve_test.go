package rdmanet

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReserveAndCommit(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		b, err := client.Reserve(100)
		require.NoError(t, err)
		require.Len(t, b, 100)
		require.Equal(t, 100, cap(b), "no more than was asked for can be reached")
		copy(b, "hello")
		require.NoError(t, client.Commit(5))
		require.Equal(t, "hello", string(readFull(t, server, 5)))
		s := client.Stats()
		require.EqualValues(t, 5, s.BytesPlaced)
		require.Zero(t, s.BytesCopied)
	})
}

// TestReserveStream sends a stream of many blocks, with Writes in between.
func TestReserveStream(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		want := noise(2<<20, 3)
		go func() {
			next := splits(5)
			for i, p := 0, want; len(p) > 0; i++ {
				n := min(next(), len(p), MaxReserve)
				if i%3 == 0 {
					if _, err := client.Write(p[:n]); err != nil {
						return
					}
				} else {
					b, err := client.Reserve(n)
					if err != nil {
						return
					}
					copy(b, p)
					if client.Commit(n) != nil {
						return
					}
				}
				p = p[n:]
			}
			_ = client.CloseWrite()
		}()
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	})
}

// TestReserveBesideWriters has others write while a block is filled and sent.
func TestReserveBesideWriters(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		const rounds = 200
		var writers sync.WaitGroup
		writers.Go(func() {
			for range rounds {
				b, err := client.Reserve(3000)
				if err != nil {
					t.Error(err)
					return
				}
				for i := range b {
					b[i] = 'r'
				}
				if err := client.Commit(len(b)); err != nil {
					t.Error(err)
					return
				}
			}
		})
		writers.Go(func() {
			b := bytes.Repeat([]byte{'w'}, 3000)
			for range rounds {
				if _, err := client.Write(b); err != nil {
					t.Error(err)
					return
				}
			}
		})
		got := readFull(t, server, 2*rounds*3000)
		writers.Wait()
		for i := 0; i < len(got); i += 3000 {
			require.Equal(t, bytes.Repeat(got[i:i+1], 3000), got[i:i+3000], "messages are not torn apart")
		}
		require.Equal(t, rounds*3000, bytes.Count(got, []byte{'r'}))
	})
}

func TestReserveMisuse(t *testing.T) {
	client, server := pair(t)
	for _, n := range []int{-1, 0, MaxReserve + 1} {
		_, err := client.Reserve(n)
		requireOpError(t, err, "write", []string{"cannot reserve", "choose 1 to 65536"}, syscall.EINVAL)
	}
	requireOpError(t, client.Commit(1), "write", []string{"nothing is reserved"}, ErrReservation)
	a, err := client.Reserve(10)
	require.NoError(t, err)
	copy(a, "abcdefghij")
	requireOpError(t, client.Commit(11), "write", []string{"11 bytes of 10"}, ErrReservation)
	requireOpError(t, client.Commit(-1), "write", []string{"-1 bytes of 10"}, ErrReservation)
	b, err := client.Reserve(3)
	require.NoError(t, err)
	require.Equal(t, "abc", string(b), "the same memory until the Commit")
	requireOpError(t, client.Commit(4), "write", []string{"4 bytes of 3"}, ErrReservation)
	require.NoError(t, client.Commit(3))
	require.Equal(t, "abc", string(readFull(t, server, 3)))
	requireOpError(t, client.Commit(0), "write", []string{"nothing is reserved"}, ErrReservation)
}

// mostBuffers is more than a lane has buffers for Reserve.
const mostBuffers = 16

func TestReserveGivenUp(t *testing.T) {
	client, server := pair(t)
	for range 10 * mostBuffers {
		_, err := client.Reserve(MaxReserve)
		require.NoError(t, err)
		require.NoError(t, client.Commit(0))
	}
	_, err := client.Write([]byte("x"))
	require.NoError(t, err)
	require.Equal(t, "x", string(readFull(t, server, 1)), "nothing was sent before")
	require.EqualValues(t, 1, client.Stats().MessagesSent)
}

func TestReserveErrorsAreThoseOfWrite(t *testing.T) {
	client, _ := pair(t)
	_, err := client.Reserve(10)
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	requireOpError(t, client.Commit(10), "write", []string{"write: broken pipe"}, syscall.EPIPE)
	_, err = client.Reserve(10)
	requireOpError(t, err, "write", []string{"write: broken pipe"}, syscall.EPIPE)
	require.NoError(t, client.Close())
	_, err = client.Reserve(10)
	requireOpError(t, err, "write", []string{"use of closed network connection"}, net.ErrClosed)
	requireOpError(t, client.Commit(10), "write", []string{"use of closed network connection"}, net.ErrClosed)
}

// TestCommitAfterCloseBesideOne: a Commit that finds the Conn closed does not end what another is sending.
func TestCommitAfterCloseBesideOne(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		b, err := client.Reserve(MaxReserve)
		require.NoError(t, err)
		for i := range b {
			b[i] = 'r'
		}
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		unread, err := client.Write(make([]byte, 64<<20)) // more than the peer has room for
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, client.SetWriteDeadline(time.Time{}))
		sent := make(chan error, 1)
		go func() { sent <- client.Commit(len(b)) }()
		require.Eventually(t, func() bool { return !client.stream.reserved.Load().held.Load() }, patience, time.Millisecond)
		client.stream.releaseReserve() // as the other Commit does
		readFull(t, server, unread)
		require.Equal(t, bytes.Repeat([]byte{'r'}, MaxReserve), readFull(t, server, MaxReserve))
		require.NoError(t, <-sent)
	})
}

// TestCommitAfterCloseBesideReserve: a Commit that finds the Conn closed ends what was reserved before, and not what
// a Reserve that is inside returns meanwhile.
func TestCommitAfterCloseBesideReserve(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		_, err := client.Reserve(10)
		require.NoError(t, err)
		require.True(t, client.life.lock(dirWrite)) // the Reserve
		require.True(t, client.life.close())
		taken := client.stream.takeReserved() // by the Commit
		require.NotNil(t, taken)
		b, err := client.stream.reserve(MaxReserve)
		require.NoError(t, err)
		taken.free()
		for i := range b {
			b[i] = 'r'
		}
		got := make(chan []byte, 1)
		go func() { got <- readFull(t, server, MaxReserve) }()
		require.NoError(t, client.stream.commit(len(b)))
		require.Equal(t, bytes.Repeat([]byte{'r'}, MaxReserve), <-got)
		require.Nil(t, client.stream.takeReserved())
		client.unguard()
		client.stream.shut(false)
		client.exit(client.life.unlock(dirWrite))
		client.exit(client.life.decref())
	})
}
