//go:build linux

package hosts

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A Flow is one direction of a connection, as one end sees it. The bytes are those
// of a generator, so the receiver knows each of them, also if the stream breaks off.
type Flow struct {
	Conn int
	Send bool
	Seed uint64
	Size int64 // how much to send before the end of the stream; 0 is until Enough
}

// A FlowEnd is how a flow ended. EOF is the end of a stream that was received whole.
type FlowEnd struct {
	N       int64
	Wrong   string // the first byte that is not what was sent
	Failure Failure
	Ago     time.Duration // how long before it was told; the hosts' clocks differ
}

type flow struct {
	moved  atomic.Int64
	enough atomic.Bool
	done   chan struct{}
	end    FlowEnd // once done is closed
	at     time.Time
}

func newFlow(c *rdmanet.Conn, a Flow) *flow {
	f := &flow{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		var err error
		if a.Send {
			err = f.send(c, a)
		} else {
			err = f.receive(c, a)
		}
		f.end.N, f.end.Failure, f.at = f.moved.Load(), failureOf(err), time.Now()
	}()
	return f
}

func generator(seed uint64) *rand.ChaCha8 {
	return rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
}

// send writes in pieces of many sizes.
func (f *flow) send(c *rdmanet.Conn, a Flow) error {
	src, sizes := generator(a.Seed), rand.New(rand.NewPCG(a.Seed, 1))
	buf := make([]byte, 128<<10)
	for a.Size == 0 && !f.enough.Load() || f.moved.Load() < a.Size {
		p := buf[:1+sizes.IntN(len(buf))]
		if a.Size > 0 {
			p = p[:min(int64(len(p)), a.Size-f.moved.Load())]
		}
		_, _ = src.Read(p)
		n, err := c.Write(p)
		f.moved.Add(int64(n))
		if err != nil {
			return err
		}
	}
	return c.CloseWrite()
}

func (f *flow) receive(c *rdmanet.Conn, a Flow) error {
	src := generator(a.Seed)
	got, want := make([]byte, 128<<10), make([]byte, 128<<10)
	for {
		n, err := c.Read(got)
		_, _ = src.Read(want[:n])
		if f.end.Wrong == "" && !bytes.Equal(got[:n], want[:n]) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			f.end.Wrong = fmt.Sprintf("byte %d is %#x and was sent as %#x", f.moved.Load()+int64(i), got[i], want[i])
		}
		f.moved.Add(int64(n))
		if err != nil {
			return err
		}
	}
}
