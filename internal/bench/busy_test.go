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

// BenchmarkBusy has more connections busy at once than there are processors, twice and four times as
// many, so that whoever polls takes the time from those who work: each is their number for each
// processor. Or it has conns, which is more than a lane has receives on a network. ns/op is the time for
// a message of any connection: they add up.
func BenchmarkBusy(b *testing.B) { Run(b, busyCases()) }

// busyWork is what all connections do at once.
type busyWork struct {
	name string
	size int
	kind jobKind
	run  func(conn net.Conn, n, size int, trips *latency.Histogram) error
}

// manyBusy are the most connections that are busy at once.
const manyBusy = 1000

func busyCases() (cases []Case) {
	for _, work := range []busyWork{
		{"echo", 64, jobEcho, echoBusily},
		{"stream", 64, jobStream, streamBusily},
		{"stream", 64 << 10, jobStream, streamBusily},
	} {
		for _, each := range []int{2, 4} {
			cases = append(cases, work.cases("each", each, each*runtime.GOMAXPROCS(0))...)
		}
	}
	for _, work := range []busyWork{
		{"echo", 64, jobEcho, echoBusily},
		{"echo", 8 << 10, jobEcho, echoBusily},
		{"stream", 64, jobStream, streamBusily},
	} {
		cases = append(cases, work.cases("conns", manyBusy, manyBusy)...)
	}
	return cases
}

// cases have the work done by conns connections, which the name says by key and number.
func (work busyWork) cases(key string, number, conns int) []Case {
	prefix := fmt.Sprintf("work=%s/size=%s/%s=%d/", work.name, SizeName(work.size), key, number)
	return Everywhere(prefix, work.size, func(m Meter, n int, at Site, transport string) {
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
	})
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
