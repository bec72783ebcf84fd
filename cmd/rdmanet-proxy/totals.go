package main

import (
	"fmt"
	"net"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

// totals counts what went through a proxy.
type totals struct {
	open        atomic.Int64 // now
	connections atomic.Int64
	unreached   atomic.Int64 // their server could not be reached
	broken      atomic.Int64 // one of the ends, or the network, broke them
	cut         atomic.Int64 // they were open when the proxy ended

	there, back    atomic.Int64  // bytes
	placed, copied atomic.Uint64 // bytes on the RDMA side
}

// add counts a relay that has ended.
func (t *totals) add(r *relay) {
	t.there.Add(r.there)
	t.back.Add(r.back)
	for _, conn := range []net.Conn{r.client, r.server} {
		if s, ok := endpoint.Stats(conn); ok {
			t.placed.Add(s.BytesPlaced)
			t.copied.Add(s.BytesCopied)
		}
	}
	switch r.cause {
	case nil:
	case errCut:
		t.cut.Add(1)
	default:
		t.broken.Add(1)
	}
}

// total is the line of statistics.
func (t *totals) total() string {
	return fmt.Sprintf("connections: %d, could not reach the server: %d, broken: %d, cut off: %d; there: %s, back: %s; RDMA copied: %s, placed without a copy: %s",
		t.connections.Load(), t.unreached.Load(), t.broken.Load(), t.cut.Load(),
		console.Size(t.there.Load()), console.Size(t.back.Load()),
		console.Size(int64(t.copied.Load())), console.Size(int64(t.placed.Load())))
}
