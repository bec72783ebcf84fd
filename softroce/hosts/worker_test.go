//go:build linux

package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/storm"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// What an agent tells a worker: its addresses on the two networks.
const (
	workerVar     = "RDMANET_TEST_WORKER"
	workerAddrVar = "RDMANET_TEST_WORKER_ADDR"
)

// A Worker is a process that holds one end of connections. Its methods are called
// by net/rpc, each on a goroutine of its own.
type Worker struct {
	addr   string // of the RDMA device
	before footprint

	mu    sync.Mutex
	l     *rdmanet.Listener
	conns []*rdmanet.Conn
	flows []*flow
	storm *storm.Server
}

// work is the main function of a worker. It ends when the agent closes its standard
// input, whatever it is doing then.
func work() error {
	control, err := net.Listen("tcp", net.JoinHostPort(os.Getenv(workerVar), "0"))
	if err != nil {
		return err
	}
	w := &Worker{addr: net.JoinHostPort(os.Getenv(workerAddrVar), "0")}
	if err := openDevice(w.addr); err != nil {
		return err
	}
	go func() {
		if conn, err := control.Accept(); err == nil {
			_ = control.Close()
			w.before = takeFootprint()
			_ = serve(conn, w)
		}
	}()
	fmt.Println(control.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// openDevice has the process open what it opens once for each device: that is no leak.
func openDevice(addr string) error {
	l, err := rdmanet.Listen("rdma", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := rdmanet.DialTimeout("rdma", l.Addr().String(), prompt)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		return err
	}
	return s.Close()
}

// Settings are those of a Dialer or ListenConfig.
type Settings struct {
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig
	ReadBuffer      int
	Backlog         int
	TOS             uint8
	Wildcard        bool // listen on all addresses
}

// Listen begins to listen and returns the address to dial.
func (w *Worker) Listen(s Settings, dial *string) error {
	lc := rdmanet.ListenConfig{KeepAlive: s.KeepAlive, KeepAliveConfig: s.KeepAliveConfig, ReadBuffer: s.ReadBuffer, Backlog: s.Backlog, TOS: s.TOS}
	at, err := netip.ParseAddrPort(w.addr)
	if err != nil {
		return err
	}
	where := at
	if s.Wildcard {
		where = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	}
	l, err := lc.Listen(context.Background(), "rdma", where.String())
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.l != nil {
		_ = w.l.Close()
	}
	w.l = l.(*rdmanet.Listener)
	*dial = netip.AddrPortFrom(at.Addr(), uint16(l.Addr().(*net.TCPAddr).Port)).String()
	return nil
}

// A Made is a connection, or why there is none.
type Made struct {
	Conn          int // its number
	Local, Remote string
	Failure       Failure
	Took          time.Duration
}

// A Dial is where to connect to.
type Dial struct {
	Addr     string
	Timeout  time.Duration
	Settings Settings
}

// Dial connects.
func (w *Worker) Dial(a Dial, made *Made) error {
	d := rdmanet.Dialer{
		Timeout: a.Timeout, ReadBuffer: a.Settings.ReadBuffer, TOS: a.Settings.TOS,
		KeepAlive: a.Settings.KeepAlive, KeepAliveConfig: a.Settings.KeepAliveConfig,
	}
	began := time.Now()
	c, err := d.Dial("rdma", a.Addr)
	w.add(c, err, began, made)
	return nil
}

// Accept takes the next connection of the listener.
func (w *Worker) Accept(limit time.Duration, made *Made) error {
	w.mu.Lock()
	l := w.l
	w.mu.Unlock()
	began := time.Now()
	_ = l.SetDeadline(began.Add(limit)) // Accept says why there cannot be one
	c, err := l.Accept()
	w.add(c, err, began, made)
	return nil
}

func (w *Worker) add(c net.Conn, err error, began time.Time, made *Made) {
	made.Took = time.Since(began)
	if err != nil {
		made.Failure = failureOf(err)
		return
	}
	made.Local, made.Remote = c.LocalAddr().String(), c.RemoteAddr().String()
	w.mu.Lock()
	defer w.mu.Unlock()
	made.Conn = len(w.conns)
	w.conns = append(w.conns, c.(*rdmanet.Conn))
}

func (w *Worker) conn(id int) *rdmanet.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conns[id]
}

// A KeepAlive is a new configuration for a connection.
type KeepAlive struct {
	Conn   int
	Config net.KeepAliveConfig
}

// SetKeepAlive configures the keepalive of a connection.
func (w *Worker) SetKeepAlive(k KeepAlive, _ *int) error {
	return w.conn(k.Conn).SetKeepAliveConfig(k.Config)
}

// Info describes a connection.
func (w *Worker) Info(id int, info *rdmanet.ConnInfo) error {
	c := w.conn(id)
	for _, i := range rdmanet.Conns() {
		if i.Local.String() == c.LocalAddr().String() && i.Remote.String() == c.RemoteAddr().String() {
			*info = i
			return nil
		}
	}
	return net.ErrClosed
}

// Waiting is how many dials of the process wait for a place.
func (w *Worker) Waiting(_ int, n *int) error {
	for _, l := range rdmanet.Lanes() {
		*n += l.Waiting
	}
	return nil
}

// Lanes is how many lanes of the process are up.
func (w *Worker) Lanes(_ int, n *int) error {
	for _, l := range rdmanet.Lanes() {
		if l.State == rdmanet.LaneUp {
			*n++
		}
	}
	return nil
}

// Close closes a connection.
func (w *Worker) Close(id int, made *Made) error {
	began := time.Now()
	made.Failure = failureOf(w.conn(id).Close())
	made.Took = time.Since(began)
	return nil
}

// Begin sets bytes of a connection in motion and returns the number of the flow.
func (w *Worker) Begin(a Flow, id *int) error {
	f := newFlow(w.conn(a.Conn), a)
	w.mu.Lock()
	defer w.mu.Unlock()
	*id = len(w.flows)
	w.flows = append(w.flows, f)
	return nil
}

func (w *Worker) flow(id int) *flow {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flows[id]
}

// Moved is how many bytes a flow has moved so far.
func (w *Worker) Moved(id int, n *int64) error {
	*n = w.flow(id).moved.Load()
	return nil
}

// Enough ends the stream of a flow that sends without end.
func (w *Worker) Enough(id int, _ *int) error {
	w.flow(id).enough.Store(true)
	return nil
}

// Await waits for the end of a flow.
func (w *Worker) Await(id int, end *FlowEnd) error {
	f := w.flow(id)
	<-f.done
	*end = f.end
	end.Ago = time.Since(f.at)
	return nil
}

// Finish closes everything and waits for what is torn down in the background. The
// reply lists what stays behind.
func (w *Worker) Finish(limit time.Duration, leaked *string) error {
	w.mu.Lock()
	l, conns, before := w.l, w.conns, w.before
	w.mu.Unlock() // a call that nobody waits for any more may just have come to it
	if l != nil {
		_ = l.Close()
	}
	for _, c := range conns {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	for end := time.Now().Add(limit); ; {
		*leaked = before.leaked()
		if *leaked == "" || time.Now().After(end) {
			return nil
		}
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
}

// NewDevice says that the process has come to use one more device.
func (w *Worker) NewDevice(_ int, _ *int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before.devices++
	return nil
}

// A footprint is what a process has of the system.
type footprint struct {
	files, goroutines map[string]string
	devices           int // that it has opened since, each once for good
}

func takeFootprint() footprint {
	f := footprint{files: map[string]string{}, goroutines: map[string]string{}}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			f.files[e.Name()] = target
		}
	}
	buf := make([]byte, 4<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "go-rdmanet/") && !strings.Contains(g, "hosts.takeFootprint") && !strings.Contains(g, "hosts.work") {
			number, _, _ := strings.Cut(g, " [")
			f.goroutines[number] = g
		}
	}
	return f
}

// leaked lists what the process has now and did not have then.
func (f footprint) leaked() string {
	var list strings.Builder
	now := takeFootprint()
	spare := map[string]int{} // what comes with a device
	for _, kind := range []string{"/dev/infiniband/", "anon_inode:[infinibandevent]", "ibv.startAsync"} {
		spare[kind] = f.devices
	}
	isSpare := func(what string) bool {
		for kind, n := range spare {
			if n > 0 && strings.Contains(what, kind) {
				spare[kind]--
				return true
			}
		}
		return false
	}
	for fd, target := range now.files {
		switch {
		case f.files[fd] == target, strings.HasPrefix(target, "/proc/"):
		case strings.HasPrefix(target, "/dev/infiniband/") && strings.HasSuffix(target, " (deleted)"):
			// Of a device that is gone; librdmacm closes it when the process ends.
		case target == "anon_inode:[eventpoll]":
			// The software device has one for all of a process.
		case target == "anon_inode:[timerfd]":
			// Links have one for all of a process.
		case isSpare(target):
		default:
			fmt.Fprintf(&list, "descriptor %s: %s\n", fd, target)
		}
	}
	for number, stack := range now.goroutines {
		if _, ok := f.goroutines[number]; !ok && !isSpare(stack) {
			list.WriteString(stack + "\n")
		}
	}
	if n := rdmanet.MemoryInUse(); n != 0 {
		fmt.Fprintf(&list, "%d bytes of rings\n", n)
	}
	return list.String()
}
