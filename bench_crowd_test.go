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
)

// BenchmarkDialCrowd has 200 clients connect at once, echo 64 bytes and close, or as many as
// RDMANET_BENCH_CROWD says. What fails is counted, and is no failure of the benchmark.
func BenchmarkDialCrowd(b *testing.B) { runAll(b, crowdCases()) }

var dialCrowd = crowdSize(os.Getenv("RDMANET_BENCH_CROWD"))

func crowdSize(given string) int {
	if n, err := strconv.Atoi(given); err == nil && n > 0 {
		return n
	}
	return 200
}

// crowdLimit is when a client of the crowd is taken to have failed.
const crowdLimit = 20 * time.Second

func crowdCases() []benchCase {
	return everywhere("", 0, func(m meter, n int, at site, transport string) {
		var failed atomic.Int64
		m.ResetTimer()
		for range n {
			var clients sync.WaitGroup
			for range dialCrowd {
				clients.Go(func() {
					if err := oneClient(at, transport); err != nil && failed.Add(1) == 1 {
						m.Log("the first failure:", err)
					}
				})
			}
			clients.Wait()
		}
		m.StopTimer()
		m.ReportMetric(float64(failed.Load())/float64(n), "failed/op")
	})
}

func oneClient(at site, transport string) error {
	const size = 64
	ctx, cancel := context.WithTimeout(context.Background(), crowdLimit)
	defer cancel()
	conn, err := dial(ctx, transport, at.Jobs[transport])
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(crowdLimit)); err != nil {
		return err
	}
	message := append(job{kind: jobEchoAtOnce, size: size, count: 1}.bytes(), make([]byte, size)...)
	if _, err := conn.Write(message); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, size))
	return err
}
