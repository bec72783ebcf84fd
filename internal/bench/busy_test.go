package bench

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/latency"
)

// BenchmarkBusy has more connections busy at once than there are processors, twice
// and four times as many, so that whoever polls takes the time from those who work.
// each is their number for each processor. ns/op is the time for a message of any
// connection: they add up.
func BenchmarkBusy(b *testing.B) { Run(b, busyCases()) }

// busyWork is what all connections do at once.
var busyWork = []struct {
	name string
	size int
	kind jobKind
	run  func(conn net.Conn, n, size int, trips *latency.Histogram) error
}{
	{"echo", 64, jobEcho, echoBusily},
	{"stream", 64, jobStream, streamBusily},
	{"stream", 64 << 10, jobStream, streamBusily},
}

func busyCases() (cases []Case) {
	for _, work := range busyWork {
		for _, each := range []int{2, 4} {
			conns := each * runtime.GOMAXPROCS(0)
			prefix := fmt.Sprintf("work=%s/size=%s/each=%d/", work.name, SizeName(work.size), each)
			cases = append(cases, Everywhere(prefix, work.size, func(m Meter, n int, at Site, transport string) {
				all := make([]net.Conn, conns)
				trips := make([]latency.Histogram, conns)
				share := (n + conns - 1) / conns
				warm := min(share, 1<<20/work.size+16)
				for i := range all {
					all[i] = at.Dial(m, transport)
					defer all[i].Close()
				}
				together := func(n int) {
					for _, conn := range all {
						startJob(m, conn, work.kind, work.size, n)
					}
					m.ResetTimer()
					if err := sharing(conns, func(i int) error { return work.run(all[i], n, work.size, &trips[i]) }); err != nil {
						m.Fatal(err)
					}
				}
				together(warm)
				clear(trips)
				together(share)
				m.StopTimer()
				roundTrips.Reset()
				for i := range trips {
					roundTrips.Merge(&trips[i])
				}
				if work.kind == jobEcho {
					reportRoundTrips(m)
				}
			})...)
		}
	}
	return cases
}

func echoBusily(conn net.Conn, n, size int, trips *latency.Histogram) error {
	message, back := make([]byte, size), make([]byte, size)
	for range n {
		start := time.Now()
		if _, err := conn.Write(message); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, back); err != nil {
			return err
		}
		trips.Record(time.Since(start))
	}
	return nil
}

func streamBusily(conn net.Conn, n, size int, _ *latency.Histogram) error {
	message := make([]byte, size)
	for range n {
		if _, err := conn.Write(message); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(conn, message[:1]) // it has taken the last
	return err
}
