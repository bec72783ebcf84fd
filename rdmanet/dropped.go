package rdmanet

import (
	"runtime"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
)

// dropGuard is what nothing but a Conn refers to, once the registry has let go of it: its finalizer closes
// a Conn that the program has lost. The Conn itself has none, so that a program may set one, as on a
// *net.TCPConn.
//
// To set a finalizer and to take it away takes up to a twelfth of what a short connection does. So a new
// Conn has none yet: the registry keeps its guard until the collector has run. Most short ones are closed
// by then.
//
// Each call writes to life. So a dropGuard fills a cache line: the next one is of another connection,
// which another processor may use. A small one would not be cheaper: to set a finalizer the runtime goes
// through those of all objects of 8 KiB.
type dropGuard struct {
	*stream
	life lifecycle
	_    [cacheline.Size - unsafe.Sizeof(uintptr(0)) - unsafe.Sizeof(lifecycle{})]byte
}

// dropped closes a connection that nobody can close any more. Calls keep their Conn, so none is
// inside.
func (g *dropGuard) dropped() {
	if !g.life.close() { // it was closed while the finalizer was set
		return
	}
	st := g.stream
	st.shut(st.linger.Load() == 0)
	st.releasePins()
	st.finish(st.drainLimit())
}

// unguard is called by Close.
func (g *dropGuard) unguard() {
	if g.young.Swap(nil) == nil {
		runtime.SetFinalizer(g, nil)
	}
}

// A collection is garbage from the beginning: its finalizer tells a registry that the collector has run.
type collection struct {
	r *registry
}

// watch has the new connections guarded when the collector has run. r.mu is held.
func (r *registry) watch() {
	if !r.watching {
		r.watching = true
		runtime.SetFinalizer(&collection{r: r}, (*collection).done) // a cleanup would cost more
	}
}

func (c *collection) done() { c.r.guard(time.Since(epoch)) }

// guardBatch is how many connections are guarded at a time, so that dials need not wait for more.
const guardBatch = 64

// guard sets the finalizers of the connections that were there at a time.
func (r *registry) guard(until time.Duration) {
	guards := make([]*dropGuard, 0, guardBatch)
	for more := true; more; {
		guards = guards[:0]
		r.mu.Lock()
		for len(guards) < guardBatch && r.young != nil && r.young.since <= until {
			guards = append(guards, r.young.young.Swap(nil))
			r.young = r.young.newer
		}
		if more = len(guards) == guardBatch; !more {
			r.watching = false
			if r.young != nil {
				r.watch()
			}
		}
		r.mu.Unlock()
		for _, g := range guards {
			if g != nil { // else it is closed
				runtime.SetFinalizer(g, (*dropGuard).dropped)
			}
		}
	}
}
