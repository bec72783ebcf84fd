package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

var transports = []string{"rdma", "tcp", "unix"}

// haveRDMA says whether the software device runs here.
const haveRDMA = runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64")

// roleVar in the environment makes the test binary another process.
const (
	roleVar    = "RDMANET_BENCH_ROLE"
	rolePeer   = "peer"
	roleWorker = "worker"
)

// Settings that put the ends on the two ends of a link: the address on which the
// other end listens instead of 127.0.0.1, and the RDMA device of the other process
// where that is not the one of this process.
const (
	hostSetting   = "RDMANET_BENCH_HOST"
	deviceSetting = "RDMANET_BENCH_PEER_DEVICE"
)

// readSize is how much the other end takes at a time from a stream.
const readSize = 64 << 10

// site is the other end: where it does jobs and where it serves pages, without TLS
// and with it, by transport. Certificate is what vouches for it there, in DER.
type site struct {
	Jobs, TLSJobs, Pages, TLSPages map[string]string
	Certificate                    []byte
}

func (s site) dial(m meter, transport string) net.Conn {
	if transport == "checked" {
		conn, err := (&rdmanet.Dialer{Checksum: true}).Dial("rdma", s.Jobs["rdma"])
		if err != nil {
			m.Fatal(err)
		}
		return conn
	}
	conn, err := dial(context.Background(), transport, s.Jobs[transport])
	if err != nil {
		m.Fatal(err)
	}
	return conn
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
func openSite(dir string) (site, error) {
	s := site{Jobs: map[string]string{}, TLSJobs: map[string]string{}, Pages: map[string]string{}, TLSPages: map[string]string{}}
	cert, err := newCertificate()
	if err != nil {
		return s, err
	}
	s.Certificate = cert.Certificate[0]
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
				serveJobs(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}}))
			}},
			{"pages", s.Pages, func(l net.Listener) { log.Fatal(pageServer(cert).Serve(l)) }},
			{"tlspages", s.TLSPages, func(l net.Listener) { log.Fatal(pageServer(cert).ServeTLS(l, "", "")) }},
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

func serveJobs(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer conn.Close()
			// A client that stops in the middle has failed and says so itself.
			for err := error(nil); err == nil; {
				err = serveJob(conn)
			}
		}()
	}
}

func serveJob(conn net.Conn) error {
	var head [jobLen]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	j := parseJob(head[:])
	if j.kind != jobEchoAtOnce && j.kind != jobPoll {
		if _, err := conn.Write([]byte{'r'}); err != nil {
			return err
		}
	}
	switch j.kind {
	case jobPoll:
		return poll(conn)
	case jobHold:
		time.Sleep(holdTime)
		return io.EOF
	case jobStream:
		buf := make([]byte, readSize)
		for left := j.size * j.count; left > 0; {
			n, err := conn.Read(buf[:min(left, len(buf))])
			if err != nil {
				return err
			}
			left -= n
		}
		_, err := conn.Write([]byte{'d'})
		return err
	case jobEcho, jobEchoAtOnce:
		buf := make([]byte, j.size)
		for range j.count {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return err
			}
			if _, err := conn.Write(buf); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("unknown job %d", j.kind)
}

// holdTime is how long a peer reads nothing: longer than it takes to find that a Write waits, also
// on a busy machine.
const holdTime = time.Minute

// poll has a connection of ours poll for longer than any answer takes.
func poll(conn net.Conn) error {
	if c, ok := conn.(*rdmanet.Conn); ok {
		return c.SetBusyPoll(20 * time.Millisecond)
	}
	return fmt.Errorf("a %T cannot poll", conn)
}

var (
	// here is the other end in this process.
	here = sync.OnceValues(func() (site, error) {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return site{}, err
		}
		removeHere = func() { _ = os.RemoveAll(dir) }
		return openSite(dir)
	})
	removeHere = func() {}

	// there is the other end in a process of its own.
	there = sync.OnceValues(startPeer)
	peer  *worker
)

func siteFor(m testing.TB, procs string) site {
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

func startPeer() (s site, err error) {
	var env []string
	if device := os.Getenv(deviceSetting); device != "" {
		env = append(env, "RDMANET_DEVICE="+device)
	}
	if peer, err = startAgain(rolePeer, env...); err != nil {
		return s, err
	}
	if err := peer.take.Decode(&s); err != nil {
		return s, fmt.Errorf("the peer process did not start: %w", err)
	}
	return s, nil
}

func stopPeer() {
	if peer != nil {
		if err := peer.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "peer process:", err)
		}
	}
	removeHere()
}

// servePeer is the other process.
func servePeer() (status int) {
	err := func() error {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		s, err := openSite(dir)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(s)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, os.Stdin)
		}
		return err
	}()
	if err != nil && !errors.Is(err, os.ErrClosed) {
		fmt.Fprintln(os.Stderr, "peer process:", err)
		return 1
	}
	return 0
}
