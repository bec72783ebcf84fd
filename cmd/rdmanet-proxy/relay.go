package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

// A relay carries bytes both ways between two connections, which it owns.
type relay struct {
	client, server net.Conn
	there, back    int64 // bytes, of use when run has returned

	ending sync.Once
	cause  error
}

// lastBytes is how long the end of an RDMA connection waits for its peer to have
// all: unlike TCP's, what has not arrived goes with the process.
const lastBytes = 10 * time.Second

// run returns when both directions have ended and what was sent has arrived, or with what broke the connections.
// When cut is done it does not wait for what has not arrived.
func (r *relay) run(cut context.Context) error {
	var ways sync.WaitGroup
	ways.Go(func() { r.there = r.carry(r.server, r.client) })
	r.back = r.carry(r.client, r.server)
	ways.Wait()
	r.ending.Do(func() {}) // from here on nobody aborts it
	if r.cause == nil && !r.release(cut) {
		r.cause = errCut
	}
	return r.cause
}

// release closes both connections, whose directions have ended, and reports whether that was done before cut was.
func (r *relay) release(cut context.Context) bool {
	var closing sync.WaitGroup
	for _, conn := range []net.Conn{r.client, r.server} {
		closing.Go(func() { release(conn) })
	}
	closed := make(chan struct{})
	go func() {
		closing.Wait()
		close(closed)
	}()
	select {
	case <-closed:
		return true
	case <-cut.Done():
		return false
	}
}

// carry copies one direction to its end and passes the end on.
func (r *relay) carry(to, from net.Conn) int64 {
	n, err := transfer(to, from)
	if err == nil {
		err = endpoint.CloseWrite(to)
	}
	if err != nil {
		r.abort(err)
	}
	return n
}

// transfer copies one direction to its end. It holds no bytes of its own: io.Copy
// finds the WriteTo and ReadFrom of an RDMA connection, so that the kernel reads from and
// writes to registered memory, and it takes no more from one side than the other takes.
func transfer(to, from net.Conn) (int64, error) {
	if rdma(from) || !rdma(to) {
		return io.Copy(to, from)
	}
	source := &counter{Reader: from}
	n, err := io.Copy(to, source)
	if errors.Is(err, syscall.EPIPE) && source.n == n {
		err = atEnd(from, err)
	}
	return n, err
}

// atEnd waits for the end of a direction whose reader has closed. RDMA's ReadFrom
// says EPIPE before there is anything to send, while to TCP that is no harm until
// something comes: and the other direction may have bytes on their way.
func atEnd(from net.Conn, pipe error) error {
	n, err := from.Read(make([]byte, 1))
	switch {
	case n > 0:
		return pipe
	case err == io.EOF:
		return nil
	}
	return err
}

// A counter counts what is read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

func rdma(conn net.Conn) bool {
	_, ok := endpoint.Stats(conn)
	return ok
}

// abort resets both connections: whatever broke one side, the other learns of it as it
// would without a proxy. The first cause counts.
func (r *relay) abort(cause error) {
	r.ending.Do(func() {
		r.cause = cause
		reset(r.client)
		reset(r.server)
	})
}

// reset closes conn so that its peer sees a connection that broke, and not the end
// of a stream.
func reset(conn net.Conn) {
	setLinger(conn, 0)
	_ = conn.Close()
}

// release closes a connection whose both directions have ended.
func release(conn net.Conn) {
	if rdma(conn) {
		setLinger(conn, int(lastBytes.Seconds()))
	}
	_ = conn.Close()
}

// setLinger is SetLinger where there is one: Unix sockets have none.
func setLinger(conn net.Conn, sec int) {
	if c, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(sec)
	}
}
