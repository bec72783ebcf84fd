package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"log"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/selfsigned"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

var transports = []string{"rdma", "tcp", "unix"}

// haveRDMA says whether the software device runs here.
const haveRDMA = runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64")

// Settings that put the ends on the two ends of a link: the address on which the
// other end listens instead of 127.0.0.1, and the RDMA device of the other process
// where that is not the one of this process.
const (
	hostSetting   = "RDMANET_BENCH_HOST"
	deviceSetting = "RDMANET_BENCH_PEER_DEVICE"
)

// readSize is how much the other end takes at a time from a stream.
const readSize = 64 << 10

// A Site is the other end: where it does jobs and where it serves pages, without TLS
// and with it, by transport. Certificate is what vouches for it there, in DER.
type Site struct {
	Jobs, TLSJobs, Pages, TLSPages map[string]string
	Certificate                    []byte
}

// Dial connects to where jobs are done.
func (s Site) Dial(m Meter, transport string) net.Conn {
	conn, err := s.dial(context.Background(), transport)
	if err != nil {
		m.Fatal(err)
	}
	return conn
}

func (s Site) dial(ctx context.Context, transport string) (net.Conn, error) {
	if transport == "checked" {
		return (&rdmanet.Dialer{Checksum: true}).DialContext(ctx, "rdma", s.Jobs["rdma"])
	}
	return dial(ctx, transport, s.Jobs[transport])
}

func dial(ctx context.Context, transport, address string) (net.Conn, error) {
	switch transport {
	case "rdma":
		return new(rdmanet.Dialer).DialContext(ctx, transport, address)
	case "smc":
		return dialSMC(ctx, address)
	}
	return new(net.Dialer).DialContext(ctx, transport, address)
}

func listen(transport, dir, name string) (net.Listener, error) {
	address := net.JoinHostPort(cmp.Or(os.Getenv(hostSetting), "127.0.0.1"), "0")
	switch transport {
	case "rdma":
		return rdmanet.Listen(transport, address)
	case "smc":
		return listenSMC(address)
	case "unix":
		return net.Listen(transport, filepath.Join(dir, name))
	}
	return net.Listen(transport, address)
}

// openSite starts to serve in this process, for as long as the process lives.
// Unix sockets lie in dir.
func openSite(dir string) (Site, error) {
	s := Site{Jobs: map[string]string{}, TLSJobs: map[string]string{}, Pages: map[string]string{}, TLSPages: map[string]string{}}
	config, _, err := selfsigned.Configs(httpHost)
	if err != nil {
		return s, err
	}
	s.Certificate = config.Certificates[0].Certificate[0]
	for _, transport := range transports {
		if transport == "rdma" && !haveRDMA {
			continue
		}
		for _, service := range []struct {
			name      string
			addresses map[string]string
			serve     func(net.Listener)
		}{
			{"jobs", s.Jobs, serveJobs},
			{"tlsjobs", s.TLSJobs, func(l net.Listener) {
				serveJobs(tls.NewListener(l, config))
			}},
			{"pages", s.Pages, func(l net.Listener) { log.Fatal(pageServer(config).Serve(l)) }},
			{"tlspages", s.TLSPages, func(l net.Listener) { log.Fatal(pageServer(config).ServeTLS(l, "", "")) }},
		} {
			l, err := listen(transport, dir, service.name)
			if err != nil {
				return s, err
			}
			service.addresses[transport] = l.Addr().String()
			go service.serve(l)
		}
	}
	return s, nil
}

var (
	// here is the other end in this process.
	here = sync.OnceValues(func() (Site, error) {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return Site{}, err
		}
		removeHere = func() { _ = os.RemoveAll(dir) }
		return openSite(dir)
	})
	removeHere = func() {}

	// there is the other end in a process of its own.
	there = sync.OnceValues(startPeer)
)

func siteFor(m testing.TB, procs string) Site {
	open := here
	if procs == "two" {
		open = there
	}
	s, err := open()
	if err != nil {
		m.Fatal(err)
	}
	return s
}
