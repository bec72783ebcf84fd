package bench

import (
	"net"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// Stream writes n messages one after the other, and closes the connection. The clock stops when
// the reader has said that it took the last byte of the last message.
func Stream(m Meter, n int, conn net.Conn, size int) {
	defer conn.Close()
	message := make([]byte, size)
	send := func(n int) {
		for range n {
			if _, err := conn.Write(message); err != nil {
				m.Fatal(err)
			}
		}
		confirm(m, conn)
	}
	// Buffers are touched and grown before the clock runs.
	warm := min(n, 1<<20/size+16)
	startJob(m, conn, jobStream, size, warm)
	send(warm)
	startJob(m, conn, jobStream, size, n)
	before := statsOf(conn)
	m.ResetTimer()
	send(n)
	m.StopTimer()
	reportWork(m, n, before, statsOf(conn))
}

// statsOf is what a connection of ours has counted; nothing for another.
func statsOf(conn net.Conn) (s rdmanet.ConnStats) {
	if c, ok := conn.(*rdmanet.Conn); ok {
		s = c.Stats()
	}
	return s
}

// reportWork reports what a writer of ours did for each of the n messages of a stream,
// and how large a ring its peer came to.
func reportWork(m Meter, n int, before, after rdmanet.ConnStats) {
	if after.MessagesSent == 0 {
		return
	}
	for unit, count := range map[string]uint64{
		"doorbells/op": after.DoorbellsSent - before.DoorbellsSent,
		"credits/op":   after.CreditsReceived - before.CreditsReceived,
		"stalls/op":    after.CreditStalls - before.CreditStalls,
		"parks/op":     after.Parks - before.Parks,
	} {
		m.ReportMetric(float64(count)/float64(n), unit)
	}
	m.ReportMetric(float64(after.WriteBuffer), "ring-B")
}
