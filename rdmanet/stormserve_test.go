//go:build linux

package rdmanet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// RemoteStorm is what a process of a storm does: many dials at once, or the listener that
// they go to.
type RemoteStorm struct {
	Network string // "rdma", or "tcp" for package net's
	Addr    string // where to dial
	Echo    bool   // the server answers, and the client waits for that

	First, Dials int // the numbers of the clients

	Backlog          int
	HandshakeTimeout time.Duration
	Pause            time.Duration // before each Accept
}

// RemoteTally is what came of it.
type RemoteTally struct {
	Done   []uint64 // the numbers of clients whose calls all returned nil, or whose message arrived
	Failed []string
}

// stormMessage is what a client says: 24 bytes that only it says.
func stormMessage(n uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, n)
	b = binary.LittleEndian.AppendUint64(b, ^n)
	return binary.LittleEndian.AppendUint64(b, n*0x9e3779b97f4a7c15)
}

const stormSize = 24

// A stormServer takes a message from every client.
type stormServer struct {
	l       net.Listener
	serving sync.WaitGroup

	mu    sync.Mutex
	tally RemoteTally
	news  chan struct{} // holds a token when the tally has grown
}

func (s *stormServer) note(n uint64, err error) {
	s.mu.Lock()
	if err != nil {
		s.tally.Failed = append(s.tally.Failed, err.Error())
	} else {
		s.tally.Done = append(s.tally.Done, n)
	}
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *stormServer) run(a RemoteStorm) {
	defer s.serving.Done()
	for {
		time.Sleep(a.Pause)
		c, err := s.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.note(0, err)
			continue
		}
		s.serving.Go(func() {
			defer c.Close()
			n, err := serveStorm(c, a.Echo)
			s.note(n, err)
		})
	}
}

func serveStorm(c net.Conn, echo bool) (uint64, error) {
	b := make([]byte, stormSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return 0, fmt.Errorf("from %v: %w", c.RemoteAddr(), err)
	}
	n := binary.LittleEndian.Uint64(b)
	if string(b) != string(stormMessage(n)) {
		return n, fmt.Errorf("%v said %x", c.RemoteAddr(), b)
	}
	if echo {
		if _, err := c.Write(b); err != nil {
			return n, err
		}
	}
	if m, err := c.Read(b); err != io.EOF {
		return n, fmt.Errorf("%v after the message: %d, %w", c.RemoteAddr(), m, err)
	}
	return n, nil
}

// StormListen begins to serve, and returns the address.
func (r *Remote) StormListen(a RemoteStorm, at *string) error {
	var l net.Listener
	var err error
	if a.Network == "rdma" {
		l, err = (&ListenConfig{Backlog: a.Backlog, HandshakeTimeout: a.HandshakeTimeout, Logger: quiet}).Listen(context.Background(), "rdma", testAddr())
	} else {
		l, err = net.Listen(a.Network, testAddr())
	}
	if err != nil {
		return err
	}
	s := &stormServer{l: l, news: make(chan struct{}, 1)}
	s.serving.Add(1)
	go s.run(a)
	r.mu.Lock()
	r.storm = s
	r.mu.Unlock()
	*at = l.Addr().String()
	return nil
}

// StormTally waits until so many clients were served, for as long as they still come, and
// ends the listener.
func (r *Remote) StormTally(want int, t *RemoteTally) error {
	r.mu.Lock()
	s := r.storm
	r.mu.Unlock()
	for s.count() < want {
		select {
		case <-s.news:
		case <-time.After(lasting / 2):
			want = 0 // they do not come any more
		}
	}
	err := s.l.Close()
	s.serving.Wait()
	*t = s.tally
	return err
}

func (s *stormServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tally.Done) + len(s.tally.Failed)
}

// StormDial has all clients dial at once.
func (r *Remote) StormDial(a RemoteStorm, t *RemoteTally) error {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range a.Dials {
		all.Go(func() {
			n := uint64(a.First + i)
			err := stormClient(a, n)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Failed = append(t.Failed, fmt.Sprintf("client %d: %v", n, err))
			} else {
				t.Done = append(t.Done, n)
			}
		})
	}
	all.Wait()
	return nil
}

func stormClient(a RemoteStorm, n uint64) (err error) {
	var c net.Conn
	if a.Network == "rdma" {
		c, err = (&Dialer{Logger: quiet}).Dial("rdma", a.Addr)
	} else {
		c, err = net.Dial(a.Network, a.Addr)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	msg := stormMessage(n)
	if _, err := c.Write(msg); err != nil || !a.Echo {
		return err
	}
	answer := make([]byte, stormSize)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if string(answer) != string(msg) {
		return fmt.Errorf("answered %x for %x", answer, msg)
	}
	return nil
}

// Spin keeps one processor busy until the process ends.
func (r *Remote) Spin(_ int, _ *int) error {
	for n := 0; ; n++ {
		if n == -1 {
			return nil
		}
	}
}
