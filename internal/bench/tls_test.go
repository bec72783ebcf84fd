package bench

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/selfsigned"
)

// BenchmarkTLS is the stream and the echo of the root through crypto/tls, which encrypts
// on either side of whatever transport is below.
func BenchmarkTLS(b *testing.B) { Run(b, tlsCases()) }

func tlsCases() (cases []Case) {
	for _, w := range []struct {
		name string
		size int
		run  func(m Meter, n int, conn net.Conn, size int)
	}{
		{"stream", 64, Stream}, {"stream", 4 << 10, Stream}, {"stream", 64 << 10, Stream},
		{"echo", 64, Echo}, {"echo", 4 << 10, Echo},
	} {
		prefix := "work=" + w.name + "/size=" + SizeName(w.size) + "/"
		cases = append(cases, Everywhere(prefix, w.size, func(m Meter, n int, at Site, transport string) {
			w.run(m, n, at.dialTLS(m, transport), w.size)
		})...)
	}
	return cases
}

// dialTLS is dial to the jobs that are done over TLS.
func (s Site) dialTLS(m Meter, transport string) net.Conn {
	config, err := selfsigned.Client(httpHost, s.Certificate)
	if err != nil {
		m.Fatal(err)
	}
	conn, err := dial(m.Context(), transport, s.TLSJobs[transport])
	if err != nil {
		m.Fatal(err)
	}
	return tls.Client(conn, config)
}
