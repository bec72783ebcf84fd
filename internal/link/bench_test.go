package link_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A way is something that carries a connection.
type way struct {
	name string
	dial func() (net.Conn, error)
}

// acceptor is what all listeners here have.
type acceptor interface{ accept() (net.Conn, error) }

type linkListener struct{ l *link.Listener }

func (l linkListener) accept() (net.Conn, error) { return l.l.Accept(context.Background()) }

type netListener struct{ net.Listener }

func (l netListener) accept() (net.Conn, error) { return l.Accept() }

func init() { link.Roles["serve"] = serveBench }

// serveBench is the other process: it serves all ways until its standard input ends.
func serveBench() int {
	dir := os.Getenv("RDMANET_LINK_DIR")
	l, err := link.Listen(link.Config{}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	addrs := []string{l.Addr().String()}
	go serveAll(linkListener{l})
	for _, f := range []func() (net.Listener, error){
		func() (net.Listener, error) { return rdmanet.Listen("rdma", "127.0.0.1:0") },
		func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		func() (net.Listener, error) { return net.Listen("unix", filepath.Join(dir, "socket")) },
	} {
		l, err := f()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		addrs = append(addrs, l.Addr().String())
		go serveAll(netListener{l})
	}
	fmt.Println(strings.Join(addrs, " "))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func serveAll(l acceptor) {
	for {
		c, err := l.accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serveOne(c)
		}()
	}
}

// serveOne takes jobs: 8 bytes of a count, and that many bytes. If the highest bit is set they
// are echoed, else answered by one byte.
func serveOne(c net.Conn) {
	buf := make([]byte, 64<<10)
	var head [8]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		n := binary.LittleEndian.Uint64(head[:])
		echo := n>>63 != 0
		for n &= 1<<63 - 1; n > 0; {
			k, err := c.Read(buf[:min(n, uint64(len(buf)))])
			if err != nil {
				return
			}
			n -= uint64(k)
			if echo {
				if _, err := c.Write(buf[:k]); err != nil {
					return
				}
			}
		}
		if !echo {
			if _, err := c.Write(head[:1]); err != nil {
				return
			}
		}
	}
}

// ways starts the other process.
func ways(b *testing.B) []way {
	dir := b.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), link.RoleVar+"=serve", "RDMANET_LINK_DIR="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	addrs := strings.Fields(line)
	require.Len(b, addrs, 4, "%s", line)
	links, err := link.NewLinks(link.Config{})
	require.NoError(b, err)
	b.Cleanup(func() { links.Close() })
	to := link.Target{Dst: netip.MustParseAddrPort(addrs[0])}
	return []way{
		{"link", func() (net.Conn, error) { return links.Dial(context.Background(), to) }},
		{"rdma", func() (net.Conn, error) { return rdmanet.Dial("rdma", addrs[1]) }},
		{"tcp", func() (net.Conn, error) { return net.Dial("tcp", addrs[2]) }},
		{"unix", func() (net.Conn, error) { return net.Dial("unix", addrs[3]) }},
	}
}

// roundTrips echoes size bytes n times.
func roundTrips(c net.Conn, size, n int) error {
	buf := make([]byte, 8+size)
	for range n {
		binary.LittleEndian.PutUint64(buf, uint64(size)|1<<63)
		if _, err := c.Write(buf); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, buf[8:]); err != nil {
			return err
		}
	}
	return nil
}

// pour sends total bytes in pieces.
func pour(c net.Conn, piece, total int) error {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], uint64(total))
	if _, err := c.Write(head[:]); err != nil {
		return err
	}
	buf := make([]byte, piece)
	for ; total > 0; total -= piece {
		if _, err := c.Write(buf[:min(piece, total)]); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(c, head[:1])
	return err
}

// dials opens, echoes 64 bytes and closes, n times by each of so many goroutines.
func dials(w way, goroutines, n int) error {
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for range n {
				c, err := w.dial()
				if err == nil {
					err = roundTrips(c, 64, 1)
					c.Close()
				}
				if err != nil {
					errs[g] = err
					return
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// onConn does something on a connection that stays, until b ends.
func onConn(b *testing.B, f func(c net.Conn) error) func(w way) error {
	conns := map[string]net.Conn{}
	b.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	return func(w way) (err error) {
		c := conns[w.name]
		if c == nil {
			if c, err = w.dial(); err != nil {
				return err
			}
			conns[w.name] = c
		}
		return f(c)
	}
}

// BenchmarkLinks compares streams of a link with what connections are today, TCP and Unix
// sockets, between two processes. An iteration is a round of all of them, in turns. What it
// reports are the medians of how many times as fast a link is in the same round:
//
//	go test -run '^$' -bench Links -benchtime 7x ./internal/link
func BenchmarkLinks(b *testing.B) {
	for _, bench := range []struct {
		name string
		do   func(b *testing.B) func(w way) error
	}{
		{"dial/1", func(*testing.B) func(way) error { return func(w way) error { return dials(w, 1, 200) } }},
		{"dial/50", func(*testing.B) func(way) error { return func(w way) error { return dials(w, 50, 20) } }},
		{"echo/64", func(b *testing.B) func(way) error {
			return onConn(b, func(c net.Conn) error { return roundTrips(c, 64, 3000) })
		}},
		{"echo/4096", func(b *testing.B) func(way) error {
			return onConn(b, func(c net.Conn) error { return roundTrips(c, 4096, 2000) })
		}},
		{"echo/65536", func(b *testing.B) func(way) error {
			return onConn(b, func(c net.Conn) error { return roundTrips(c, 65536, 300) })
		}},
		{"stream/4096", func(b *testing.B) func(way) error {
			return onConn(b, func(c net.Conn) error { return pour(c, 4096, 32<<20) })
		}},
		{"stream/65536", func(b *testing.B) func(way) error {
			return onConn(b, func(c net.Conn) error { return pour(c, 65536, 128<<20) })
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			ways := ways(b)
			do := bench.do(b)
			ratios := map[string][]float64{}
			for round := range b.N {
				took := map[string]time.Duration{}
				for i := range ways {
					w := ways[(i+round)%len(ways)]
					began := time.Now()
					require.NoError(b, do(w), w.name)
					took[w.name] = time.Since(began)
				}
				for _, w := range ways[1:] {
					ratios[w.name] = append(ratios[w.name], float64(took[w.name])/float64(took["link"]))
				}
			}
			for name, r := range ratios {
				slices.Sort(r)
				b.ReportMetric(r[len(r)/2], "x-"+name)
			}
		})
	}
}
