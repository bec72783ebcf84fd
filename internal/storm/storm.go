// Package storm has many clients dial one listener at once, each with a message that only it
// says, and counts on both ends whose calls all succeeded and whose messages arrived: what a
// client was told must be true.
package storm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// size is how long a message is.
const size = 24

// Message is what client n says.
func Message(n uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, n)
	b = binary.LittleEndian.AppendUint64(b, ^n)
	return binary.LittleEndian.AppendUint64(b, n*0x9e3779b97f4a7c15)
}

// A Tally is what came of a storm, at one end.
type Tally struct {
	Done   []uint64 // the numbers of clients whose calls all returned nil, or whose message arrived
	Failed []string
}

// A Server takes one message from every client.
type Server struct {
	l       net.Listener
	echo    bool
	pause   time.Duration
	serving sync.WaitGroup

	mu    sync.Mutex
	tally Tally
	news  chan struct{} // holds a token when the tally has grown
}

// Serve accepts from l, after a pause each time, and answers if echo is set.
func Serve(l net.Listener, echo bool, pause time.Duration) *Server {
	s := &Server{l: l, echo: echo, pause: pause, news: make(chan struct{}, 1)}
	s.serving.Go(s.run)
	return s
}

// Finish waits until so many clients were served, for as long as the next one comes within
// patience, and closes the listener.
func (s *Server) Finish(want int, patience time.Duration) (Tally, error) {
	for s.count() < want {
		select {
		case <-s.news:
		case <-time.After(patience):
			want = 0 // they do not come any more
		}
	}
	err := s.l.Close()
	s.serving.Wait()
	return s.tally, err
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tally.Done) + len(s.tally.Failed)
}

func (s *Server) note(n uint64, err error) {
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

func (s *Server) run() {
	for {
		time.Sleep(s.pause)
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
			n, err := serve(c, s.echo)
			s.note(n, err)
		})
	}
}

func serve(c net.Conn, echo bool) (uint64, error) {
	b := make([]byte, size)
	if _, err := io.ReadFull(c, b); err != nil {
		return 0, fmt.Errorf("from %v: %w", c.RemoteAddr(), err)
	}
	n := binary.LittleEndian.Uint64(b)
	if string(b) != string(Message(n)) {
		return n, fmt.Errorf("%v said %x", c.RemoteAddr(), b)
	}
	if echo {
		if _, err := c.Write(b); err != nil {
			return n, err
		}
	}
	if m, err := c.Read(b); err != io.EOF {
		return n, fmt.Errorf("%v after message %d: %d, %w", c.RemoteAddr(), n, m, err)
	}
	return n, nil
}

// Dial has n clients dial at once, of which the first has the number first. Each says its
// message, waits for the answer if echo is set, and closes. dial is told the client's number.
func Dial(first, n int, echo bool, dial func(client uint64) (net.Conn, error)) Tally {
	var t Tally
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			n := uint64(first + i)
			err := client(n, echo, dial)
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
	return t
}

func client(n uint64, echo bool, dial func(client uint64) (net.Conn, error)) (err error) {
	c, err := dial(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	msg := Message(n)
	if _, err := c.Write(msg); err != nil || !echo {
		return err
	}
	answer := make([]byte, size)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if string(answer) != string(msg) {
		return fmt.Errorf("answered %x for %x", answer, msg)
	}
	return nil
}

// Spin keeps one processor busy and does not return.
func Spin() {
	for n := 0; ; n++ {
		if n == -1 {
			return
		}
	}
}
