package rdmanet

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/racedetector"
)

// fullSink fails when it has taken as much as there is room for, which ends a WriteTo.
type fullSink struct{ room int }

func (s *fullSink) Write(b []byte) (int, error) {
	if s.room -= len(b); s.room <= 0 {
		return len(b), io.EOF
	}
	return len(b), nil
}

// TestExpiredReadAllocation: a Read that ends by its deadline makes the *net.OpError and nothing else.
// http.Server ends one so with each request.
func TestExpiredReadAllocation(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("the race detector allocates; run without -race")
	}
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, _ := fl.pair(t)
		require.NoError(t, client.SetReadDeadline(time.Unix(1, 0)))
		buf := make([]byte, 1)
		least := math.Inf(1)
		for range 5 { // what else the process does is not in every round
			least = min(least, testing.AllocsPerRun(100, func() {
				if _, err := client.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
			}))
		}
		require.LessOrEqual(t, least, 1.0)
	})
}

// TestEndMakesNoAddress: neither the end of file nor Close makes the addresses of a connection, which
// an error would name.
func TestEndMakesNoAddress(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		client.laddr.Store(nil) // pair has asked
		client.raddr.Store(nil)
		require.NoError(t, server.CloseWrite())
		n, err := client.Read(make([]byte, 1))
		require.Zero(t, n)
		require.Equal(t, io.EOF, err)
		require.NoError(t, client.Close())
		require.Nil(t, client.laddr.Load())
		require.Nil(t, client.raddr.Load())
	})
}

// TestNoAllocation has every call of the steady state allocate nothing. The two
// ends are used in turn by one goroutine, and by two so that calls wait.
func TestNoAllocation(t *testing.T) { noAllocation(t, eachFlavour) }

func noAllocation(t *testing.T, each func(*testing.T, func(*testing.T, flavour))) {
	if racedetector.Enabled {
		t.Skip("the race detector allocates; run without -race")
	}
	// A lane keeps no memory in reserve while that is short, as it is for a while after a test of that.
	require.Eventually(t, func() bool { return !budget.Short() }, patience, time.Millisecond)
	each(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		runs := 2000
		if fl.faulty() {
			runs = 400 // each takes its time
		}
		// What one goroutine writes before it reads must fit into the ring.
		ring := client.Stats().WriteBuffer
		small, large := make([]byte, min(64, ring/16)), make([]byte, ring/4)
		buf := make([]byte, 64<<10)
		echo := func(b []byte) func() {
			return func() {
				if _, err := client.Write(b); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(client, buf[:len(b)]); err != nil {
					t.Fatal(err)
				}
			}
		}
		source, sink := bytes.NewReader(nil), new(fullSink)
		steps := []struct {
			name string
			call func()
		}{
			{"Write and Read", func() {
				client.Write(small)
				server.Read(buf)
			}},
			{"SetDeadline", func() {
				client.SetDeadline(time.Now().Add(time.Minute))
				client.SetReadDeadline(time.Time{})
				client.SetWriteDeadline(time.Time{})
			}},
			{"Peek and Discard", func() {
				client.Write(small)
				server.Peek(0)
				server.Discard(len(small))
			}},
			{"Reserve and Commit", func() {
				client.Reserve(len(small))
				client.Commit(len(small))
				server.Read(buf)
			}},
			{"ReadFrom and WriteTo", func() {
				source.Reset(large)
				client.ReadFrom(source)
				sink.room = len(large)
				server.WriteTo(sink)
			}},
			{"SetDeadline in the past", func() {
				client.SetDeadline(time.Unix(1, 0))
				client.SetDeadline(time.Time{})
			}},
		}
		for _, s := range steps {
			s.call() // what is made once
			most := 0.
			if s.name == "ReadFrom and WriteTo" {
				most = 1 // the error that ends WriteTo
			}
			require.LessOrEqual(t, testing.AllocsPerRun(runs, s.call), most, s.name)
		}
		go func() { // not io.Copy, which is WriteTo
			b := make([]byte, 64<<10)
			for {
				n, err := server.Read(b)
				if err != nil {
					return
				}
				if _, err := server.Write(b[:n]); err != nil {
					return
				}
			}
		}()
		for _, b := range [][]byte{small, large} {
			for range 100 {
				echo(b)()
			}
			require.Zero(t, testing.AllocsPerRun(500, echo(b)), "echo of %d bytes", len(b))
		}
	})
}
