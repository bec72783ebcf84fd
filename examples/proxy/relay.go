package main

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/examples/internal/endpoint"
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

// run returns when both directions have ended, or with what broke the connections.
func (r *relay) run() error {
	var ways sync.WaitGroup
	ways.Go(func() { r.there = r.carry(r.server, r.client) })
	r.back = r.carry(r.client, r.server)
	ways.Wait()
	r.ending.Do(func() {}) // from here on nobody aborts it
	if r.cause == nil {
		release(r.client)
		release(r.server)
	}
	return r.cause
}

// carry copies one direction to its end and passes the end on. The copy holds no
// bytes of its own: io.Copy finds the WriteTo and ReadFrom of an RDMA connection, so
// that the kernel reads from and writes to registered memory, and it takes no more from
// one side than the other side takes.
func (r *relay) carry(to, from net.Conn) int64 {
	n, err := io.Copy(to, from)
	if err == nil {
		err = endpoint.CloseWrite(to)
	}
	if err != nil {
		r.abort(err)
	}
	return n
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
	if _, ok := endpoint.Stats(conn); ok { // RDMA's
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
