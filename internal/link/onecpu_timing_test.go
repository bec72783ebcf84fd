//go:build timing

package link

import (
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pipeBeside is the median of round trips over two pipes of the process, with one processor,
// beside a conversation between a and b that never pauses.
func pipeBeside(t *testing.T, a, b net.Conn) time.Duration {
	var ends [4]*os.File
	for i := 0; i < len(ends); i += 2 {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		ends[i], ends[i+1] = r, w
	}
	go func() { _, _ = io.Copy(b, readerOnly{b}) }()
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		buf := make([]byte, 64)
		for {
			if _, err := a.Write(buf); err != nil {
				return
			}
			if _, err := io.ReadFull(a, buf); err != nil {
				return
			}
		}
	}()
	go func() { _, _ = io.Copy(ends[3], readerOnly{ends[0]}) }()
	var took []time.Duration
	one := make([]byte, 1)
	for range 50 {
		began := time.Now()
		_, err := ends[1].Write(one)
		require.NoError(t, err)
		_, err = ends[2].Read(one)
		require.NoError(t, err)
		took = append(took, time.Since(began))
	}
	_, _ = a.Close(), b.Close()
	<-busy
	for _, f := range ends {
		f.Close()
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// TestTimingOneProcessor: with one processor, whoever waits for the network poller gets on
// beside a busy stream about as beside a busy connection of TCP.
func TestTimingOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	bed := newBed(t, Config{})
	var link, tcp []time.Duration
	for range 5 {
		client, server := bed.pair()
		link = append(link, pipeBeside(t, client, server))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		s, err := l.Accept()
		require.NoError(t, err)
		tcp = append(tcp, pipeBeside(t, c, s))
		l.Close()
	}
	slices.Sort(link)
	slices.Sort(tcp)
	t.Logf("beside a stream %v, beside TCP %v", link, tcp)
	require.Less(t, link[2], max(4*tcp[2], 5*time.Millisecond))
}
