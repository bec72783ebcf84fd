//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// minIdlePorts is how many ports of an address have to be idle before one is used
	// again: servers tell connections apart by them, also those that follow each other.
	minIdlePorts = 16
	maxIdlePorts = 64
)

// idlePorts are those of connections on lines that have ended.
var idlePorts = portPool{late: timeoutList{after: lineIdle}}

// A portPool holds ephemeral ports for the next dials, so that a process that dials all
// the time claims none. Each is held as a dialer holds it, and for a bounded time.
type portPool struct {
	mu    sync.Mutex
	ports []*idlePort // the oldest first
	late  timeoutList
}

type idlePort struct {
	dev  *device
	addr netip.AddrPort
	fd   int // has its name
	late *timeout
}

// put takes in the port that fd has.
func (p *portPool) put(dev *device, addr netip.AddrPort, fd int) {
	e := &idlePort{dev: dev, addr: addr, fd: fd}
	p.mu.Lock()
	full := len(p.ports) >= maxIdlePorts
	if !full {
		p.ports = append(p.ports, e)
		e.late = p.late.add(func() { p.tooLate(e) })
	}
	p.mu.Unlock()
	if full {
		unix.Close(fd)
	}
}

// tooLate gives back a port that nobody wanted.
func (p *portPool) tooLate(e *idlePort) {
	p.mu.Lock()
	i := slices.Index(p.ports, e)
	if i >= 0 {
		p.ports = slices.Delete(p.ports, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		unix.Close(e.fd)
	}
}

// take returns the port of ip that has been idle for longest and is not that of dst, or nil
// if they are few.
func (p *portPool) take(dev *device, ip netip.Addr, dst netip.AddrPort) *idlePort {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, n := -1, 0
	for i, e := range p.ports {
		if e.dev == dev && e.addr.Addr() == ip && e.addr != dst {
			if n++; first < 0 {
				first = i
			}
		}
	}
	if n < minIdlePorts {
		return nil
	}
	e := p.ports[first]
	p.ports = slices.Delete(p.ports, first, first+1)
	p.late.remove(e.late)
	return e
}
