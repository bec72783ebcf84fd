package rdmanet

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// The software device as one that looks at the source after the post, as hardware does.
var (
	asynchronous      = faulty.RegisterOverSoft("asynchronous0", "soft0", faulty.Plan{Asynchronous: true})
	asynchronousIWARP = faulty.RegisterOverSoft("asynchronous0-iwarp", "soft0-iwarp", faulty.Plan{Asynchronous: true})
)

// asynchronous0 names a device that is asynchronous: the real one where one is tested.
func asynchronous0() string {
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		return ""
	}
	return asynchronous.Name()
}

// TestAsynchronousStream writes more than all send blocks hold, over rings in which
// they take up few of the send queue's slots.
func TestAsynchronousStream(t *testing.T) {
	for _, size := range []int{MinReadBuffer, 64 << 10, 1 << 20} {
		fl := flavour{
			dialer: Dialer{Device: asynchronous0(), ReadBuffer: size},
			listen: ListenConfig{Device: asynchronous0(), ReadBuffer: size},
		}
		client, server := fl.pair(t)
		data := bytes.Repeat([]byte("0123456789abcdef"), 3*mostBuffers*MaxReserve/16+1)
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(server)
			got <- b
		}()
		within(t, patience, "Write", func() {
			_, err := client.Write(data)
			require.NoError(t, err)
		})
		require.NoError(t, client.CloseWrite())
		require.True(t, bytes.Equal(data, <-got), "ring of %d", size)
	}
}

// TestReadFromGivesUp has calls that end at their deadline half-way through a block:
// the block is free again when its bytes have gone.
func TestReadFromGivesUp(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		data := make([]byte, MaxReserve)
		for range 2 * mostBuffers {
			var n int64
			var err error
			again(t, "ReadFrom", func() bool { return n != 0 }, func() {
				require.NoError(t, client.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
				if n, err = client.ReadFrom(bytes.NewReader(data)); err != nil {
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				}
			})
			readFull(t, server, int(n))
		}
	})
}
