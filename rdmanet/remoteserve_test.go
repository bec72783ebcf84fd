//go:build linux

package rdmanet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"os"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/storm"
)

// Remote is what the process does. Its methods are called by net/rpc, each on a
// goroutine of its own.
type Remote struct {
	mu      sync.Mutex
	l       *Listener
	conns   []*Conn
	unlimit func() // ends what Limit did, if it is not nil
	storm   *storm.Server
}

func serveRemote() int {
	openDevices()
	before := leaktest.Take()
	r := new(Remote)
	s := rpc.NewServer()
	if err := s.Register(r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.ServeConn(pipes{os.Stdin, os.Stdout})
	if r.l != nil {
		_ = r.l.Close()
	}
	for _, c := range r.conns {
		_ = c.Close()
	}
	return checkLeaks(before, nil)
}

// flavourNamed finds the flavour that another process means.
func flavourNamed(name string) flavour {
	for _, fl := range flavours() {
		if fl.name == name {
			return fl
		}
	}
	return flavour{}
}

func (r *Remote) add(c *Conn) RemoteEnd {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c)
	return RemoteEnd{ID: len(r.conns) - 1, Local: c.LocalAddr().String(), Remote: c.RemoteAddr().String()}
}

func (r *Remote) conn(id int) *Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns[id]
}

// Listen begins to listen, in place of the listener before, and returns the address.
func (r *Remote) Listen(a RemoteListen, at *string) error {
	lc := flavourNamed(a.Flavour).listen
	lc.Backlog, lc.HandshakeTimeout = a.Backlog, a.HandshakeTimeout
	l, err := lc.listen(context.Background(), "rdma", testAddr())
	if err != nil {
		return err
	}
	r.mu.Lock()
	old := r.l
	r.l = l
	r.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	*at = l.Addr().String()
	return nil
}

func (r *Remote) Accept(_ int, end *RemoteEnd) error {
	r.mu.Lock()
	l := r.l
	r.mu.Unlock()
	c, err := l.AcceptConn()
	if err == nil {
		*end = r.add(c)
	}
	return err
}

func (r *Remote) Dial(a RemoteDial, end *RemoteEnd) error {
	d := flavourNamed(a.Flavour).dialer
	c, err := d.dial(context.Background(), "rdma", a.Addr)
	if err == nil {
		*end = r.add(c)
	}
	return err
}

// DialAgain dials, and dials again, and closes what it gets, until it gets nothing.
func (r *Remote) DialAgain(a RemoteDial, e *RemoteError) error {
	d := flavourNamed(a.Flavour).dialer
	for {
		c, err := d.dial(context.Background(), "rdma", a.Addr)
		if err != nil {
			*e = toWire(err)
			return nil
		}
		_ = c.Close()
	}
}

func (r *Remote) Read(a RemoteIO, rep *RemoteIOReply) error {
	rep.Data = make([]byte, a.N)
	n, err := r.conn(a.ID).Read(rep.Data)
	rep.N, rep.Data, rep.Err = n, rep.Data[:n], toWire(err)
	return nil
}

func (r *Remote) Write(a RemoteIO, rep *RemoteIOReply) error {
	n, err := r.conn(a.ID).Write(a.Data)
	rep.N, rep.Err = n, toWire(err)
	return nil
}

func (r *Remote) Do(a RemoteDo, e *RemoteError) error {
	c := r.conn(a.ID)
	switch a.What {
	case "Close":
		*e = toWire(c.Close())
	case "CloseWrite":
		*e = toWire(c.CloseWrite())
	case "SetDeadline":
		*e = toWire(c.SetDeadline(a.At))
	case "SetReadDeadline":
		*e = toWire(c.SetReadDeadline(a.At))
	case "SetWriteDeadline":
		*e = toWire(c.SetWriteDeadline(a.At))
	default:
		return errors.New("no such thing to do: " + a.What)
	}
	return nil
}

// Echo returns all that arrives, and the end.
func (r *Remote) Echo(id int, rep *RemoteSum) error {
	c := r.conn(id)
	n, err := io.Copy(c, c)
	if err == nil {
		err = c.CloseWrite()
	}
	rep.N, rep.Err = n, toWire(err)
	return nil
}

// Sum reads to the end.
func (r *Remote) Sum(id int, rep *RemoteSum) error {
	*rep = sum(r.conn(id))
	return nil
}

// Send writes N bytes and ends the stream.
func (r *Remote) Send(a RemoteSend, rep *RemoteSum) error {
	*rep = send(r.conn(a.ID), a.Seed, a.N)
	return nil
}

// Play plays ping-pong without polling.
func (r *Remote) Play(a RemotePlay, e *RemoteError) error {
	*e = toWire(play(sleeper{r.conn(a.ID)}, a.Serves, a.Rounds, uint64(a.ID)))
	return nil
}

// Pour and Sip move N bytes without polling.
func (r *Remote) Pour(a RemoteSend, e *RemoteError) error {
	*e = toWire(pour(sleeper{r.conn(a.ID)}, int(a.N), a.Seed))
	return nil
}

func (r *Remote) Sip(a RemoteSend, e *RemoteError) error {
	*e = toWire(sip(sleeper{r.conn(a.ID)}, int(a.N), a.Seed))
	return nil
}

// Converse has conversations on connections that it accepts and dials, until the
// process is killed. As the other process does nothing wrong, nothing may fail.
func (r *Remote) Converse(a RemoteConverse, _ *int) error {
	must := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s of a process that is to be killed: %v\n", what, err)
			os.Exit(1)
		}
	}
	go func() {
		for {
			c, err := r.l.AcceptConn()
			must("Accept", err)
			go converse(c, a.Seed, false, must)
		}
	}()
	d := flavourNamed(a.Flavour).dialer
	for range a.Dialers {
		go func() {
			for {
				c, err := d.dial(context.Background(), "rdma", a.Dial)
				must("Dial", err)
				converse(c, a.Seed, true, must)
			}
		}()
	}
	return r.Live(0, nil)
}

// Start starts a process in a role, which nobody waits for.
func (r *Remote) Start(role string, pid *int) error {
	cmd := roleCommand(role)
	err := cmd.Start()
	if err == nil {
		*pid = cmd.Process.Pid
	}
	return err
}

// Live is a call that ends when the process does.
func (r *Remote) Live(int, *int) error { select {} }

// Listening is what the listener has counted.
func (r *Remote) Listening(_ int, s *ListenerStats) error {
	*s = r.l.Stats()
	return nil
}

// Stats are those of a connection.
func (r *Remote) Stats(id int, s *ConnStats) error {
	*s = r.conn(id).Stats()
	return nil
}

// sum reads c to its end.
func sum(c io.Reader) (rep RemoteSum) {
	h := sha256.New()
	n, err := io.Copy(h, c)
	rep.N, rep.Err = n, toWire(err)
	h.Sum(rep.Sum[:0])
	return rep
}

// send writes n bytes, in pieces of many sizes, and ends the stream.
func send(c *Conn, seed uint64, n int64) (rep RemoteSum) {
	h := sha256.New()
	src := rand.NewChaCha8([sha256.Size]byte{byte(seed)})
	rng := rand.New(rand.NewPCG(seed, 1))
	buf := make([]byte, 100_000)
	for rep.N < n {
		p := buf[:min(int64(1+rng.IntN(1<<rng.IntN(17))), n-rep.N)]
		_, _ = src.Read(p)
		h.Write(p)
		m, err := c.Write(p)
		rep.N += int64(m)
		if err != nil {
			rep.Err = toWire(err)
			return rep
		}
	}
	h.Sum(rep.Sum[:0])
	rep.Err = toWire(c.CloseWrite())
	return rep
}
