package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/latency"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A worker is a process that holds one end of many connections: it takes orders, answers each, and
// ends when there are no more.
type worker struct{ *process }

const roleWorker = "worker"

// startWorker starts a worker, which ends when this process ends.
func startWorker() (worker, error) {
	p, err := startAgain(roleWorker)
	return worker{p}, err
}

type order struct {
	Op string

	Transport, Address string // listen and open
	Count              int    // open: connections; echo: round trips
	Active             int    // open and echo: how many goroutines do that
	InTurn             bool   // echo: each goroutine goes from connection to connection
}

const (
	opListen  = "listen"  // echo all that comes on connections to a new listener
	opOpen    = "open"    // make more connections and echo once over each
	opEcho    = "echo"    // make round trips over connections that are open
	opMeasure = "measure" // tell what the process uses, its garbage collected
	opCPU     = "cpu"     // tell what it used of the processors
)

type answer struct {
	Error    string
	Address  string
	P50, P99 time.Duration
	CPU      time.Duration
	Usage    usage
}

// usage is what a process uses.
type usage struct {
	Resident, Proportional int64 // bytes; the second counts a page that several have once
	Heap                   int64 // of it Go's, with stacks
	Registered             int64
	Descriptors, Mappings  int64
}

func measure() (u usage, err error) {
	runtime.GC() // what pools had goes with the second one
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Heap = int64(m.HeapInuse + m.StackInuse)
	u.Registered = rdmanet.MemoryInUse()
	return u, u.measureProcess()
}

func (u usage) plus(o usage) usage {
	return usage{u.Resident + o.Resident, u.Proportional + o.Proportional, u.Heap + o.Heap, u.Registered + o.Registered, u.Descriptors + o.Descriptors, u.Mappings + o.Mappings}
}

func (u usage) minus(o usage) usage {
	return u.plus(usage{-o.Resident, -o.Proportional, -o.Heap, -o.Registered, -o.Descriptors, -o.Mappings})
}

// do has the worker carry out an order.
func (w worker) do(o order) (a answer, err error) {
	if err = w.send.Encode(o); err == nil {
		err = w.take.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		err = fmt.Errorf("worker process: %s: %w", o.Op, err)
	}
	return a, err
}

// A holder is what a worker has.
type holder struct {
	conns []net.Conn
	dir   string
}

// serveOrders is a worker's process.
func serveOrders() (status int) {
	h := new(holder)
	defer func() {
		if h.dir != "" {
			_ = os.RemoveAll(h.dir)
		}
	}()
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			if err == io.EOF {
				return 0
			}
			fmt.Fprintln(os.Stderr, "worker process:", err)
			return 1
		}
		var a answer
		if err := h.obey(o, &a); err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return 1
		}
	}
}

func (h *holder) obey(o order, a *answer) (err error) {
	switch o.Op {
	case opListen:
		a.Address, err = h.listen(o.Transport)
	case opOpen:
		err = h.open(o)
	case opEcho:
		err = h.echo(o, a)
	case opMeasure:
		a.Usage, err = measure()
	case opCPU:
		a.CPU, err = cpuTime()
	default:
		err = errors.New("unknown order")
	}
	return err
}

func (h *holder) listen(transport string) (address string, err error) {
	if h.dir == "" {
		if h.dir, err = os.MkdirTemp("", "bench"); err != nil {
			return "", err
		}
	}
	l, err := listen(transport, h.dir, "crowd")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				fmt.Fprintln(os.Stderr, "worker process:", err)
				os.Exit(1)
			}
			go func() {
				defer conn.Close()
				_ = echoAll(conn)
			}()
		}
	}()
	return l.Addr().String(), nil
}

// crowdMessage is the length of the messages that workers echo.
const crowdMessage = 64

func echoAll(conn net.Conn) error {
	var buf [crowdMessage]byte
	for {
		if _, err := io.ReadFull(conn, buf[:]); err != nil {
			return err
		}
		if _, err := conn.Write(buf[:]); err != nil {
			return err
		}
	}
}

func roundTrip(conn net.Conn, buf *[crowdMessage]byte) error {
	if _, err := conn.Write(buf[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, buf[:])
	return err
}

func (h *holder) open(o order) error {
	made := make([]net.Conn, o.Count)
	h.conns = append(h.conns, made...)
	made = h.conns[len(h.conns)-o.Count:]
	var next atomic.Int64
	return sharing(o.Active, func(int) error {
		var buf [crowdMessage]byte
		for {
			i := int(next.Add(1)) - 1
			if i >= o.Count {
				return nil
			}
			conn, err := dial(context.Background(), o.Transport, o.Address)
			if err == nil {
				made[i] = conn
				err = roundTrip(conn, &buf)
			}
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
		}
	})
}

// echo makes round trips over one connection for each goroutine, or over all of them.
func (h *holder) echo(o order, a *answer) error {
	if len(h.conns) == 0 {
		return errors.New("no connections")
	}
	active := min(o.Active, len(h.conns), o.Count)
	trips := make([]latency.Histogram, active)
	err := sharing(active, func(g int) error {
		var buf [crowdMessage]byte
		at := g
		for range o.Count/active + min(max(o.Count%active-g, 0), 1) {
			start := time.Now()
			if err := roundTrip(h.conns[at], &buf); err != nil {
				return fmt.Errorf("connection %d: %w", at, err)
			}
			trips[g].Record(time.Since(start))
			if o.InTurn {
				if at += active; at >= len(h.conns) {
					at = g
				}
			}
		}
		return nil
	})
	for i := range trips[1:] {
		trips[0].Merge(&trips[i+1])
	}
	a.P50, a.P99 = trips[0].Quantile(0.5), trips[0].Quantile(0.99)
	return err
}
