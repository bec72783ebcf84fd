package rdmanet

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// evictPause is how far apart the lines are that tell of clients that gave way.
const evictPause = time.Second

// An evictLog writes a line when clients of a listener have given way to others: for the
// first at once, and for those of the next second together.
type evictLog struct {
	logger *slog.Logger

	mu    sync.Mutex
	addr  net.Addr
	quiet bool // a line was written just now
	count int  // clients that no line has told of yet
}

// note counts a client. It may be called with locks of the driver held.
func (e *evictLog) note(addr net.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addr = addr
	if e.count++; !e.quiet {
		e.quiet = true
		go e.write()
	}
}

func (e *evictLog) write() {
	e.mu.Lock()
	n, addr := e.count, e.addr
	if e.count = 0; n == 0 {
		e.quiet = false
	}
	e.mu.Unlock()
	if n > 0 {
		e.logger.Warn("rdmanet: clients that were silent gave way to others", "listener", addr, "clients", n)
		time.AfterFunc(evictPause, e.write)
	}
}
