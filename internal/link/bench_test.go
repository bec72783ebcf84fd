package link_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A way is something that carries a connection.
type way struct {
	name string
	addr string
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
	addrs, _, err := serveWays(os.Getenv("RDMANET_LINK_DIR"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(strings.Join(addrs, " "))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// serveWays listens by all ways and serves them.
func serveWays(dir string) (addrs []string, all []io.Closer, err error) {
	l, err := link.Listen(manyLanes, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		return nil, nil, err
	}
	addrs, all = append(addrs, l.Addr().String()), append(all, l)
	go serveAll(linkListener{l})
	for _, f := range []func() (net.Listener, error){
		func() (net.Listener, error) { return rdmanet.Listen("rdma", "127.0.0.1:0") },
		func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		func() (net.Listener, error) { return net.Listen("unix", filepath.Join(dir, "socket")) },
	} {
		l, err := f()
		if err != nil {
			return nil, all, err
		}
		addrs, all = append(addrs, l.Addr().String()), append(all, l)
		go serveAll(netListener{l})
	}
	return addrs, all, nil
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
// are echoed when all have come, else answered by one byte.
func serveOne(c net.Conn) {
	buf := make([]byte, 64<<10)
	var head [8]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		n := binary.LittleEndian.Uint64(head[:])
		if n>>63 != 0 {
			p := buf[:n&(1<<63-1)]
			if _, err := io.ReadFull(c, p); err != nil {
				return
			}
			if _, err := c.Write(p); err != nil {
				return
			}
			continue
		}
		for n > 0 {
			k, err := c.Read(buf[:min(n, uint64(len(buf)))])
			if err != nil {
				return
			}
			n -= uint64(k)
		}
		if _, err := c.Write(head[:1]); err != nil {
			return
		}
	}
}

// manyLanes has a lane for each processor, if both ends like that.
var manyLanes = link.Config{Lanes: min(runtime.GOMAXPROCS(0), link.MaxLanes)}

// ways starts the listeners, in another process if apart says so.
func ways(b *testing.B, apart bool) []way {
	dir := b.TempDir()
	var addrs []string
	if apart {
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
		addrs = strings.Fields(line)
	} else {
		all, closers, err := serveWays(dir)
		require.NoError(b, err)
		b.Cleanup(func() {
			for _, c := range closers {
				c.Close()
			}
		})
		addrs = all
	}
	require.Len(b, addrs, 4)
	links, err := link.NewLinks(link.Config{})
	require.NoError(b, err)
	b.Cleanup(func() { links.Close() })
	to := link.Target{Dst: netip.MustParseAddrPort(addrs[0])}
	return []way{
		{"link", addrs[0], func() (net.Conn, error) { return links.Dial(context.Background(), to) }},
		{"rdma", addrs[1], func() (net.Conn, error) { return rdmanet.Dial("rdma", addrs[1]) }},
		{"tcp", addrs[2], func() (net.Conn, error) { return net.Dial("tcp", addrs[2]) }},
		{"unix", addrs[3], func() (net.Conn, error) { return net.Dial("unix", addrs[3]) }},
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

// wall measures f by the clock on the wall.
func wall(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// A race is one kind of work. start prepares it for one benchmark, and returns what does a
// slice of it by a way, and says how long that took.
type race struct {
	name  string
	start func(b *testing.B) func(w way) (time.Duration, error)
}

// dialed is a race of dials.
func dialed(name string, goroutines, n int) race {
	return race{name, func(*testing.B) func(way) (time.Duration, error) {
		return func(w way) (time.Duration, error) {
			return wall(func() error { return dials(w, goroutines, n) })
		}
	}}
}

// stayed is a race on a connection that stays.
func stayed(name string, f func(c net.Conn) (time.Duration, error)) race {
	return race{name, func(b *testing.B) func(w way) (time.Duration, error) {
		conns := map[string]net.Conn{}
		return func(w way) (time.Duration, error) {
			c, err := kept(b, conns, w, w.name)
			if err != nil {
				return 0, err
			}
			return f(c)
		}
	}}
}

// kept returns the connection of a name, and dials it if there is none.
func kept(b *testing.B, conns map[string]net.Conn, w way, name string) (net.Conn, error) {
	if c := conns[name]; c != nil {
		return c, nil
	}
	c, err := w.dial()
	if err == nil {
		conns[name] = c
		b.Cleanup(func() { c.Close() })
	}
	return c, err
}

// echoed is a race of round trips, one at once after the other.
func echoed(size, n int) race {
	return stayed(fmt.Sprintf("echo/%d", size), func(c net.Conn) (time.Duration, error) {
		return wall(func() error { return roundTrips(c, size, n) })
	})
}

// asleep is a race of round trips with a pause before each, in which both ends fall asleep. What
// counts is the median.
func asleep(size, n int) race {
	const pause = 2 * time.Millisecond
	return stayed(fmt.Sprintf("asleep/%d", size), func(c net.Conn) (time.Duration, error) {
		took := make([]time.Duration, n)
		for i := range took {
			time.Sleep(pause)
			var err error
			if took[i], err = wall(func() error { return roundTrips(c, size, 1) }); err != nil {
				return 0, err
			}
		}
		slices.Sort(took)
		return took[n/2], nil
	})
}

// streamed is a race of total bytes in Writes of size bytes.
func streamed(size, total int) race {
	return stayed(fmt.Sprintf("stream/%d", size), func(c net.Conn) (time.Duration, error) {
		return wall(func() error { return pour(c, size, total) })
	})
}

// beside is a race of round trips while another connection by the same way, which is on the
// same lane, is busy with a stream. What counts is the round trip that one in a hundred
// exceeds.
func beside(size, n int) race {
	return race{fmt.Sprintf("beside/%d", size), func(b *testing.B) func(w way) (time.Duration, error) {
		conns := map[string]net.Conn{}
		return func(w way) (time.Duration, error) {
			c, err := kept(b, conns, w, w.name)
			if err != nil {
				return 0, err
			}
			busy, err := kept(b, conns, w, w.name+" busy")
			if err != nil {
				return 0, err
			}
			var stop atomic.Bool
			poured := make(chan error)
			go func() {
				var err error
				for err == nil && !stop.Load() {
					err = pour(busy, 64<<10, 1<<20)
				}
				poured <- err
			}()
			took := make([]time.Duration, n)
			for i := range took {
				if took[i], err = wall(func() error { return roundTrips(c, size, 1) }); err != nil {
					break
				}
			}
			stop.Store(true)
			if err := errors.Join(err, <-poured); err != nil {
				return 0, err
			}
			slices.Sort(took)
			return took[n*99/100], nil
		}
	}}
}

// BenchmarkLinks compares streams of a link with what connections are today, TCP and Unix
// sockets, in one process and between two. An iteration is a round of short slices of all of
// them, in turns, since other work on the machine comes and goes. What it reports are the
// medians of how many times as fast a link is in the same round:
//
//	go test -run '^$' -bench Links -benchtime 31x ./internal/link
func BenchmarkLinks(b *testing.B) {
	for _, processes := range []string{"two", "one"} {
		for _, r := range []race{
			dialed("dial/1", 1, 50),
			dialed("dial/50", 50, 4),
			echoed(64, 500),
			asleep(64, 20),
			echoed(4096, 400),
			echoed(60<<10, 50),
			streamed(64, 512<<10),
			streamed(1<<10, 8<<20),
			streamed(64<<10, 32<<20),
			streamed(1<<20, 32<<20),
			beside(64, 200),
		} {
			b.Run(processes+"/"+r.name, func(b *testing.B) {
				compare(b, ways(b, processes == "two"), r.start(b))
			})
		}
	}
}

// compare reports how many times as fast the first way is as each other.
func compare(b *testing.B, ways []way, do func(way) (time.Duration, error)) {
	ratios := map[string][]float64{}
	var alone []time.Duration
	if only := os.Getenv("RDMANET_LINK_ONLY"); only != "" { // some of them, for a profile or closer rounds
		ways = slices.DeleteFunc(ways, func(w way) bool { return !slices.Contains(strings.Split(only, ","), w.name) })
	}
	for round := range b.N {
		took := map[string]time.Duration{}
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			d, err := do(w)
			require.NoError(b, err, w.name)
			took[w.name] = d
		}
		alone = append(alone, took[ways[0].name])
		for _, w := range ways[1:] {
			ratios[w.name] = append(ratios[w.name], float64(took[w.name])/float64(took[ways[0].name]))
		}
	}
	slices.Sort(alone)
	b.ReportMetric(float64(alone[len(alone)/2]), "slice-ns")
	for name, r := range ratios {
		slices.Sort(r)
		b.ReportMetric(r[len(r)/2], "x-"+name)
	}
}

// BenchmarkPath is what Write and Read cost where nobody has to wait: one goroutine writes at
// one end and reads at the other, to and fro. An iteration is a round of slices of all ways,
// as of BenchmarkLinks, each of which begins with as much that does not count.
func BenchmarkPath(b *testing.B) {
	for _, size := range []int{64, 1 << 10, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			dir := b.TempDir()
			l, err := link.Listen(link.Config{}, netip.MustParseAddrPort("127.0.0.1:0"))
			require.NoError(b, err)
			defer l.Close()
			links, err := link.NewLinks(link.Config{})
			require.NoError(b, err)
			defer links.Close()
			ends := map[string][2]net.Conn{}
			ways := []way{{name: "link"}}
			c, err := links.Dial(context.Background(), link.Target{Dst: l.Addr()})
			require.NoError(b, err)
			a, err := l.Accept(context.Background())
			require.NoError(b, err)
			ends["link"] = [2]net.Conn{c, a}
			for _, network := range []string{"rdma", "tcp", "unix"} {
				listen, dial := net.Listen, net.Dial
				addr := "127.0.0.1:0"
				switch network {
				case "rdma":
					listen = rdmanet.Listen
					dial = rdmanet.Dial
				case "unix":
					addr = filepath.Join(dir, "socket")
				}
				l, err := listen(network, addr)
				require.NoError(b, err)
				defer l.Close()
				accepted := make(chan net.Conn, 1)
				go func() {
					c, _ := l.Accept()
					accepted <- c
				}()
				c, err := dial(network, l.Addr().String())
				require.NoError(b, err)
				a := <-accepted
				require.NotNil(b, a)
				ends[network] = [2]net.Conn{c, a}
				ways = append(ways, way{name: network})
			}
			defer func() {
				for _, e := range ends {
					e[0].Close()
					e[1].Close()
				}
			}()
			buf := make([]byte, size)
			compare(b, ways, func(w way) (time.Duration, error) {
				e := ends[w.name]
				slice := func() error {
					for range 500 {
						for i := range e {
							if _, err := e[i].Write(buf); err != nil {
								return err
							}
							if _, err := io.ReadFull(e[1-i], buf); err != nil {
								return err
							}
						}
					}
					return nil
				}
				// While the others had their turns the ends have come to rest. The first messages
				// after that are another matter.
				if err := slice(); err != nil {
					return 0, err
				}
				return wall(slice)
			})
		})
	}
}

// inParallel has each of n connections make round trips at once.
func inParallel(n, size, trips int) race {
	return race{fmt.Sprintf("%d/%d", n, size), func(b *testing.B) func(w way) (time.Duration, error) {
		conns := map[string]net.Conn{}
		return func(w way) (time.Duration, error) {
			all := make([]net.Conn, n)
			for i := range all {
				var err error
				if all[i], err = kept(b, conns, w, fmt.Sprint(w.name, i)); err != nil {
					return 0, err
				}
			}
			return wall(func() error {
				errs := make(chan error, n)
				for _, c := range all {
					go func() { errs <- roundTrips(c, size, trips) }()
				}
				var err error
				for range all {
					err = errors.Join(err, <-errs)
				}
				return err
			})
		}
	}}
}

// BenchmarkLanes compares streams over a lane for each processor with streams over one lane,
// connections as they are by default and TCP, between two processes, as BenchmarkLinks does.
func BenchmarkLanes(b *testing.B) {
	for _, r := range []race{
		inParallel(1, 64, 500), inParallel(2, 64, 250), inParallel(8, 64, 100), inParallel(64, 64, 20),
		inParallel(1, 32<<10, 100), inParallel(2, 32<<10, 50), inParallel(8, 32<<10, 15), inParallel(64, 32<<10, 2),
	} {
		b.Run(r.name, func(b *testing.B) {
			all := ways(b, true)
			to := link.Target{Dst: netip.MustParseAddrPort(all[0].addr)}
			over := func(name string, cfg link.Config) way {
				links, err := link.NewLinks(cfg)
				require.NoError(b, err)
				b.Cleanup(func() { links.Close() })
				return way{name: name, dial: func() (net.Conn, error) { return links.Dial(context.Background(), to) }}
			}
			all = []way{over("lanes", manyLanes), all[1], all[2], over("onelane", link.Config{Lanes: 1})}
			compare(b, all, r.start(b))
		})
	}
}
