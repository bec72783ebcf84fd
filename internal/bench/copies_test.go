package bench

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// BenchmarkCopies streams 64 KiB messages between the two ends of a connection in this
// process, by each of the ways to send and to take what came:
//
//   - Write: Write and Read
//   - ReadFrom: ReadFrom and WriteTo, which io.Copy finds
//   - Reserve: Reserve and Commit, and Peek and Discard
//
// Beside the rate it reports, of both ends together, how many times the library copied
// each byte and how many times it did not have to, and the bytes of rings and send
// buffers that took.
func BenchmarkCopies(b *testing.B) { Run(b, copyCases()) }

// copyWay sends n messages of size bytes over one end and takes them from the other.
type copyWay struct {
	name string
	send func(c *rdmanet.Conn, n, size int) error
	take func(c *rdmanet.Conn, n, size int) error
}

var copyWays = []copyWay{
	{"Write", sendByWrite, takeByRead},
	{"ReadFrom", sendByReadFrom, takeByWriteTo},
	{"Reserve", sendByReserve, takeByPeek},
}

func copyCases() (cases []Case) {
	const size = 64 << 10
	for _, way := range copyWays {
		cases = append(cases, Case{
			Name:  fmt.Sprintf("api=%s/procs=one/transport=rdma", way.name),
			Bytes: size,
			Run: func(m Meter, n int) {
				if !haveRDMA {
					m.Skip("the software device needs Linux on amd64 or arm64")
				}
				copies(m, n, size, way)
			},
		})
	}
	return cases
}

func copies(m Meter, n, size int, way copyWay) {
	before := rdmanet.MemoryInUse()
	from, to := connPair(m)
	run := func(n int) {
		taken := make(chan error, 1)
		go func() { taken <- way.take(to, n, size) }()
		if err := way.send(from, n, size); err != nil {
			m.Fatal(err)
		}
		if err := <-taken; err != nil {
			m.Fatal(err)
		}
	}
	run(16)
	sent, took := from.Stats(), to.Stats()
	m.ResetTimer()
	run(n)
	m.StopTimer()
	bytes := float64(n * size)
	sent, took = since(sent, from.Stats()), since(took, to.Stats())
	m.ReportMetric(float64(sent.BytesCopied+took.BytesCopied)/bytes, "copied/B")
	m.ReportMetric(float64(sent.BytesPlaced+took.BytesPlaced)/bytes, "placed/B")
	m.ReportMetric(float64(rdmanet.MemoryInUse()-before), "registered-B")
}

// connPair makes a connection within this process; it is closed when the test ends.
func connPair(m testing.TB) (client, server *rdmanet.Conn) {
	m.Helper()
	before := rdmanet.MemoryInUse()
	l, err := listen("rdma", "", "")
	if err != nil {
		m.Fatal(err)
	}
	defer l.Close()
	c, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		m.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		_ = c.Close()
		m.Fatal(err)
	}
	m.Cleanup(func() {
		_ = c.Close()
		_ = s.Close()
		// What is torn down later must not be taken for the next one's.
		for began := time.Now(); rdmanet.MemoryInUse() > before && time.Since(began) < 30*time.Second; {
			time.Sleep(time.Millisecond)
		}
	})
	return c.(*rdmanet.Conn), s.(*rdmanet.Conn)
}

// since is what was counted between two looks, of what only grows.
func since(before, after rdmanet.ConnStats) rdmanet.ConnStats {
	after.BytesRead -= before.BytesRead
	after.BytesWritten -= before.BytesWritten
	after.MessagesSent -= before.MessagesSent
	after.MessagesReceived -= before.MessagesReceived
	after.DoorbellsSent -= before.DoorbellsSent
	after.DoorbellsReceived -= before.DoorbellsReceived
	after.CreditsSent -= before.CreditsSent
	after.CreditsReceived -= before.CreditsReceived
	after.WakeupsSent -= before.WakeupsSent
	after.WakeupsSuppressed -= before.WakeupsSuppressed
	after.CreditStalls -= before.CreditStalls
	after.RingsGrown -= before.RingsGrown
	after.Spins -= before.Spins
	after.Parks -= before.Parks
	after.BytesCopied -= before.BytesCopied
	after.BytesPlaced -= before.BytesPlaced
	return after
}

func sendByWrite(c *rdmanet.Conn, n, size int) error {
	message := make([]byte, size)
	for range n {
		if _, err := c.Write(message); err != nil {
			return err
		}
	}
	return nil
}

func takeByRead(c *rdmanet.Conn, n, size int) error {
	buf := make([]byte, readSize)
	for left := n * size; left > 0; {
		got, err := c.Read(buf[:min(left, len(buf))])
		if err != nil {
			return err
		}
		left -= got
	}
	return nil
}

// bulk is a source and a sink of so many bytes, none of which it touches.
type bulk struct{ left int }

func (e *bulk) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), e.left)
	e.left -= n
	return n, nil
}

// errTaken ends a WriteTo that has taken all.
var errTaken = errors.New("all is taken")

func (e *bulk) Write(b []byte) (int, error) {
	if e.left -= len(b); e.left <= 0 {
		return len(b), errTaken
	}
	return len(b), nil
}

func sendByReadFrom(c *rdmanet.Conn, n, size int) error {
	_, err := c.ReadFrom(&bulk{n * size})
	return err
}

func takeByWriteTo(c *rdmanet.Conn, n, size int) error {
	sink := &bulk{n * size}
	if _, err := c.WriteTo(sink); sink.left != 0 {
		return fmt.Errorf("%d bytes are missing: %w", sink.left, err)
	}
	return nil
}

func sendByReserve(c *rdmanet.Conn, n, size int) error {
	for left := n * size; left > 0; {
		piece := min(left, rdmanet.MaxReserve)
		if _, err := c.Reserve(piece); err != nil {
			return err
		}
		if err := c.Commit(piece); err != nil {
			return err
		}
		left -= piece
	}
	return nil
}

func takeByPeek(c *rdmanet.Conn, n, size int) error {
	for left := n * size; left > 0; {
		b, err := c.Peek(0)
		if err == nil {
			_, err = c.Discard(len(b))
		}
		if err != nil {
			return err
		}
		left -= len(b)
	}
	return nil
}
