package bench

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkBeside sends a message and waits until all of it came back, while another
// connection of the same two ends is busy with a stream: what bulk costs those who wait.
func BenchmarkBeside(b *testing.B) { Run(b, besideCases()) }

// besideBulk is the size of the other connection's Writes.
const besideBulk = 64 << 10

func besideCases() []Case {
	const size = 64
	return Everywhere("size="+SizeName(size)+"/", size, func(m Meter, n int, at Site, transport string) {
		bulk := at.Dial(m, transport)
		var over atomic.Bool
		poured := make(chan error, 1)
		go func() { poured <- pour(bulk, &over) }()
		Echo(m, n, at.Dial(m, transport), size)
		over.Store(true)
		if err := <-poured; err != nil {
			m.Fatal(err)
		}
		if err := bulk.Close(); err != nil {
			m.Fatal(err)
		}
	})
}

// pour has conn carry jobs of bulk until over.
func pour(conn net.Conn, over *atomic.Bool) error {
	const count = 16
	message := make([]byte, besideBulk)
	for !over.Load() {
		if _, err := conn.Write(job{jobStream, besideBulk, count}.bytes()); err != nil {
			return err
		}
		for range count {
			if _, err := conn.Write(message); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(conn, message[:2]); err != nil { // that it has begun, and that it is done
			return err
		}
	}
	return nil
}

// BenchmarkUnread counts the Writes that a peer takes which reads nothing, before one waits.
// Its ns/op is of no interest.
func BenchmarkUnread(b *testing.B) { Run(b, unreadCases()) }

const (
	// unreadPause is for how long nothing moves when a Write is taken to wait for the reader.
	unreadPause = 200 * time.Millisecond
	// mostUnread bounds the count, and so the memory that a measurement takes.
	mostUnread = 1 << 20
)

func unreadCases() (cases []Case) {
	for _, size := range []int{1, 4 << 10} {
		cases = append(cases, Everywhere("size="+SizeName(size)+"/", 0, func(m Meter, n int, at Site, transport string) {
			taken := 0
			for range n {
				conn := at.Dial(m, transport)
				startJob(m, conn, jobHold, 0, 1)
				taken += fillUnread(m, conn, size)
				_ = conn.Close()
			}
			m.ReportMetric(float64(taken)/float64(n), "writes")
		})...)
	}
	return cases
}

// fillUnread writes until a Write waits, and returns how many did not.
func fillUnread(m Meter, conn net.Conn, size int) (n int) {
	message, most := make([]byte, size), mostUnread
	if _, measured := m.(*testing.B); !measured {
		most = 1000
	}
	for ; n < most; n++ {
		if n%64 == 0 {
			if err := conn.SetWriteDeadline(time.Now().Add(unreadPause)); err != nil {
				m.Fatal(err)
			}
		}
		if _, err := conn.Write(message); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return n
			}
			m.Fatal(err)
		}
	}
	return n
}
