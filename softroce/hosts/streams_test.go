//go:build linux

package hosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// maxQPs is how many QPs an end may have for all connections between two processes.
const maxQPs = 8

// HoldListen takes all connections that come, and answers on them until they end. It returns the
// address to dial.
func (w *Worker) HoldListen(_ int, at *string) error {
	l, err := rdmanet.Listen("rdma", w.addr)
	if err != nil {
		return err
	}
	*at = l.Addr().String()
	w.mu.Lock()
	w.l = l.(*rdmanet.Listener) // which Finish closes
	w.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return nil
}

// A Hold is connections that are to be dialled at once and kept.
type Hold struct {
	Addr  string
	Dials int
}

// HoldDial dials, and has each connection say something that is answered. It returns how long
// that took.
func (w *Worker) HoldDial(h Hold, took *time.Duration) error {
	var all sync.WaitGroup
	errs := make([]error, h.Dials)
	began := time.Now()
	for i := range h.Dials {
		all.Go(func() {
			c, err := rdmanet.Dial("rdma", h.Addr)
			if err == nil {
				w.mu.Lock()
				w.conns = append(w.conns, c.(*rdmanet.Conn))
				w.mu.Unlock()
				err = echoes(c, i)
			}
			errs[i] = err
		})
	}
	all.Wait()
	*took = time.Since(began)
	return errors.Join(errs...)
}

func echoes(c net.Conn, i int) error {
	said := fmt.Sprintf("%08d", i)
	if _, err := io.WriteString(c, said); err != nil {
		return err
	}
	b := make([]byte, len(said))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != said {
		return fmt.Errorf("%q came back for %q", b, said)
	}
	return nil
}

// HoldSay has each connection say something once more, all at once.
func (w *Worker) HoldSay(_ int, _ *int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := make([]error, len(w.conns))
	var all sync.WaitGroup
	for i, c := range w.conns {
		all.Go(func() { errs[i] = echoes(c, i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// A Cost is what a process has for its connections.
type Cost struct{ QPs, Threads int }

// Cost counts it. No other process of the host has QPs; the kernel names the thread that has made
// one, and not the process.
func (w *Worker) Cost(_ int, c *Cost) error {
	out, err := exec.Command("rdma", "-j", "resource", "show", "qp").Output()
	if err != nil {
		return fmt.Errorf("rdma resource show qp: %w", err)
	}
	var qps []struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(out, &qps); err != nil {
		return fmt.Errorf("rdma resource show qp: %w: %q", err, out)
	}
	for _, qp := range qps {
		if qp.PID != 0 {
			c.QPs++
		}
	}
	threads, err := os.ReadDir("/proc/self/task")
	c.Threads = len(threads)
	return err
}

// TestStreams has many connections between two processes on two hosts: they take few
// QPs at each end, and sleep without threads.
func TestStreams(t *testing.T) {
	needHosts(t, "softroce/test hoststorms")
	w := newWorld(t)
	w.begin(t)
	_, dials := stormScale(t)
	server, client := w[1].start(t), w[0].start(t)
	at := call[string](t, server.client, "Worker.HoldListen", 0, prompt)
	cost := func() (c [2]Cost) {
		for i, p := range []*process{client, server} {
			c[i] = call[Cost](t, p.client, "Worker.Cost", 0, stormLimit)
		}
		return c
	}
	call[time.Duration](t, client.client, "Worker.HoldDial", Hold{at, 1}, stormLimit)
	one := cost()
	took := call[time.Duration](t, client.client, "Worker.HoldDial", Hold{at, dials}, stormLimit)
	many := cost()
	call[int](t, client.client, "Worker.HoldSay", 0, stormLimit)
	t.Logf("%d dials and echoes in %.1f s; dialer and listener have %+v with one connection, %+v with all", dials, took.Seconds(), one, many)
	for i := range many {
		require.Positive(t, many[i].QPs, "the connections are on no QP")
		require.LessOrEqual(t, many[i].QPs, maxQPs)
		require.LessOrEqual(t, many[i].Threads, one[i].Threads+maxQPs, "connections that wait hold threads")
	}
}
