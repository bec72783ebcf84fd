package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/latency"

	"github.com/rdmanet/go-rdmanet/internal/selfsigned"
)

// BenchmarkHTTP fetches pages from an http.Server. Each client has one kept-alive
// connection and one request on its way at a time. proto=http1 is HTTP/1.1, https1 the
// same over TLS, http2 is HTTP/2 over TLS, h2c without it.
func BenchmarkHTTP(b *testing.B) { Run(b, httpCases()) }

// protocol is a way to speak HTTP.
type protocol struct {
	name        string
	two, secure bool
}

var protocols = []protocol{
	{"http1", false, false},
	{"https1", false, true},
	{"http2", true, true},
	{"h2c", true, false},
}

func (p protocol) scheme() string {
	if p.secure {
		return "https"
	}
	return "http"
}

func httpCases() (cases []Case) {
	for _, size := range []int{1 << 10, 1 << 20} {
		for _, clients := range []int{1, 8, 64} {
			for _, p := range protocols {
				prefix := fmt.Sprintf("size=%s/clients=%d/proto=%s/", SizeName(size), clients, p.name)
				cases = append(cases, Everywhere(prefix, size, func(m Meter, n int, at Site, transport string) {
					fetch(m, n, at, transport, p, clients, size)
				})...)
			}
		}
	}
	return cases
}

// visitors are the clients of the case that runs, which is run with more and more
// repetitions: their connections stay.
var visitors struct {
	of  string
	all []*http.Client
}

// visit returns n clients of the case that runs.
func visit(m Meter, n int, at Site, transport string, p protocol) ([]*http.Client, error) {
	if visitors.of != m.Name() {
		for _, c := range visitors.all {
			c.CloseIdleConnections()
		}
		visitors.of, visitors.all = m.Name(), nil
	}
	for len(visitors.all) < n {
		t, err := at.roundTripper(transport, p)
		if err != nil {
			return nil, err
		}
		visitors.all = append(visitors.all, &http.Client{Transport: t})
	}
	return visitors.all[:n], nil
}

// fetch has clients fetch n pages together.
func fetch(m Meter, n int, at Site, transport string, p protocol, clients, size int) {
	url := fmt.Sprintf("%s://%s/%d", p.scheme(), httpHost, size)
	all, err := visit(m, min(clients, n), at, transport, p)
	if err != nil {
		m.Fatal(err)
	}
	trips := make([]latency.Histogram, len(all))
	err = sharing(len(all), func(i int) error { // connections are made before the clock runs
		for range min(n, 4) {
			if err := get(all[i], url, p, size); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		m.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(n))
	m.ResetTimer()
	err = sharing(len(all), func(i int) error {
		for left.Add(-1) >= 0 {
			start := time.Now()
			if err := get(all[i], url, p, size); err != nil {
				return err
			}
			trips[i].Record(time.Since(start))
		}
		return nil
	})
	m.StopTimer()
	if err != nil {
		m.Fatal(err)
	}
	roundTrips.Reset()
	for i := range trips {
		roundTrips.Merge(&trips[i])
	}
	reportRoundTrips(m)
}

func get(client *http.Client, url string, p protocol, size int) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	got, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	switch {
	case err != nil || got != int64(size):
		return fmt.Errorf("%d of %d bytes: %v", got, size, err)
	case (resp.ProtoMajor == 2) != p.two || (resp.TLS != nil) != p.secure:
		return fmt.Errorf("%s was asked for and %s came, TLS %t", p.name, resp.Proto, resp.TLS != nil)
	}
	return nil
}

func (s Site) roundTripper(transport string, p protocol) (*http.Transport, error) {
	config, err := selfsigned.Client(httpHost, s.Certificate)
	if err != nil {
		return nil, err
	}
	address := s.Pages[transport]
	if p.secure {
		address = s.TLSPages[transport]
	}
	t := &http.Transport{
		DisableCompression: true,
		TLSClientConfig:    config,
		Protocols:          new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, transport, address)
		},
	}
	switch {
	case !p.two:
		t.Protocols.SetHTTP1(true)
	case p.secure:
		t.ForceAttemptHTTP2 = true
		t.Protocols.SetHTTP2(true)
	default:
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	return t, nil
}
