package bench

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
)

// BenchmarkTLS is BenchmarkStream and BenchmarkEcho through crypto/tls, which encrypts
// on either side of whatever transport is below.
func BenchmarkTLS(b *testing.B) { runAll(b, tlsCases()) }

func tlsCases() (cases []benchCase) {
	for _, w := range []struct {
		name string
		size int
		run  func(m meter, n int, conn net.Conn, size int)
	}{
		{"stream", 64, stream}, {"stream", 4 << 10, stream}, {"stream", 64 << 10, stream},
		{"echo", 64, echo}, {"echo", 4 << 10, echo},
	} {
		prefix := "work=" + w.name + "/size=" + sizeName(w.size) + "/"
		cases = append(cases, everywhere(prefix, w.size, func(m meter, n int, at site, transport string) {
			w.run(m, n, at.dialTLS(m, transport), w.size)
		})...)
	}
	return cases
}

// dialTLS is dial to the jobs that are done over TLS.
func (s site) dialTLS(m meter, transport string) net.Conn {
	roots, err := s.roots()
	if err != nil {
		m.Fatal(err)
	}
	conn, err := dial(m.Context(), transport, s.TLSJobs[transport])
	if err != nil {
		m.Fatal(err)
	}
	return tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: httpHost})
}

// roots are what vouches for the site.
func (s site) roots() (*x509.CertPool, error) {
	cert, err := x509.ParseCertificate(s.Certificate)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return roots, nil
}
