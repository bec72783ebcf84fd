package main

import (
	"context"
	"log"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
	"github.com/rdmanet/go-rdmanet/internal/syncbuffer"
)

// patience bounds what a test waits for; nothing takes that long.
const patience = 30 * time.Second

// ways are the networks of clients and servers between which pairs of proxies stand.
var ways = []struct{ client, server string }{
	{"tcp", "tcp"}, {"unix", "unix"}, {"rdma", "tcp"}, {"tcp", "rdma"},
}

// onEveryWay runs a test on a pair of proxies for each of ways.
func onEveryWay(t *testing.T, test func(t *testing.T, r *route)) {
	for _, w := range ways {
		t.Run(w.client+" to "+w.server, func(t *testing.T) { test(t, newRoute(t, w.client, w.server)) })
	}
}

// A route is a listener for servers and two proxies on the way to it, connected by
// RDMA, in this process.
type route struct {
	entry       place
	l           net.Listener
	front, back *background
}

func newRoute(t *testing.T, client, server string) *route {
	t.Helper()
	r := new(route)
	at := local(t, server)
	l, err := at.Listen(t.Context(), at.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	r.l, at.address = l, l.Addr().String()
	r.back = start(t, local(t, "rdma"), at)
	r.front = start(t, local(t, client), r.back.at)
	r.entry = r.front.at
	return r
}

// local is a place of this host where nothing listens yet.
func local(t *testing.T, scheme string) place {
	t.Helper()
	c := endpoint.Config{Network: ofSchemes[scheme], Timeout: patience}
	address, remove, err := c.Local()
	require.NoError(t, err)
	t.Cleanup(remove)
	return place{c, address}
}

// background is a proxy that runs beside the test. A test that ends with
// connections still open fails.
type background struct {
	*proxy
	at   place
	log  syncbuffer.Buffer
	stop func() error
}

func start(t *testing.T, from, to place) *background {
	t.Helper()
	l, err := from.Listen(t.Context(), from.address)
	require.NoError(t, err)
	from.address = l.Addr().String()
	b := &background{at: from}
	b.proxy = &proxy{options: options{from: from, to: to, drain: patience}, log: log.New(&b.log, "", 0)}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- b.serve(ctx, context.Background(), l) }()
	b.stop = sync.OnceValue(func() error {
		cancel()
		return <-served
	})
	t.Cleanup(func() { assert.NoError(t, b.stop(), "proxy from %s to %s", from, to) })
	return b
}

// connect returns both ends of a connection through the proxies.
func (r *route) connect(t *testing.T) (client, server net.Conn) {
	t.Helper()
	client = dial(t, r.entry)
	return client, accept(t, r.l)
}

// dial connects to a place, with a deadline that only a test that hangs meets.
func dial(t *testing.T, at place) net.Conn {
	t.Helper()
	conn, err := at.Dial(t.Context(), at.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// accept is the same for the other end.
func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}
