package bench

import (
	"context"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// BenchmarkDialCrowd has 200 clients connect at once, echo 64 bytes and close, or as many as
// RDMANET_BENCH_CROWD says. What fails is counted, and is no failure of the benchmark. dialed-ns
// is when the last dial had returned. The libraries of RDMA are loaded before, as in a process that
// runs for long; the link comes up within the time.
func BenchmarkDialCrowd(b *testing.B) { Run(b, crowdCases()) }

var dialCrowd = crowdSize(os.Getenv("RDMANET_BENCH_CROWD"))

func crowdSize(given string) int {
	if n, err := strconv.Atoi(given); err == nil && n > 0 {
		return n
	}
	return 200
}

// crowdLimit is when a client of the crowd is taken to have failed.
const crowdLimit = 20 * time.Second

func crowdCases() []Case {
	return Everywhere("", 0, func(m Meter, n int, at Site, transport string) {
		var failed atomic.Int64
		var dialing time.Duration
		if transport == "rdma" {
			if _, err := rdmanet.Devices(); err != nil {
				m.Fatal(err)
			}
		}
		m.ResetTimer()
		for range n {
			var clients, dials sync.WaitGroup
			dials.Add(dialCrowd)
			began := time.Now()
			for range dialCrowd {
				clients.Go(func() {
					if err := oneClient(at, transport, dials.Done); err != nil && failed.Add(1) == 1 {
						m.Log("the first failure:", err)
					}
				})
			}
			dials.Wait()
			dialing += time.Since(began)
			clients.Wait()
		}
		m.StopTimer()
		m.ReportMetric(float64(dialing.Nanoseconds())/float64(n), "dialed-ns")
		m.ReportMetric(float64(failed.Load())/float64(n), "failed/op")
	})
}

// oneClient calls dialed when its dial has returned.
func oneClient(at Site, transport string, dialed func()) error {
	const size = 64
	ctx, cancel := context.WithTimeout(context.Background(), crowdLimit)
	defer cancel()
	conn, err := at.dial(ctx, transport)
	dialed()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(crowdLimit)); err != nil {
		return err
	}
	message := echoOrder(size)
	if _, err := conn.Write(message); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, size))
	return err
}
