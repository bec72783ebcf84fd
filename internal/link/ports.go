package link

import (
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

const (
	firstPort = 32768
	numPorts  = 28232 // up to 60,999, as Linux has them
)

// ports has the ports of the clients of a listener, by their hosts: each place and each live stream has one
// that no other of the same client address has, whichever process of it has dialled. They are
// the listener's to give, as it alone sees all who come from there.
type ports struct {
	mu    sync.Mutex
	hosts map[netip.Addr]*hostPorts
}

type hostPorts struct {
	used  map[uint16]struct{}
	next  uint16 // from firstPort on: one that was used lately is not used soon again
	short bool   // they were used up, and since then hardly any have come back

	givenUp endsGivenUp // which needs no lock itself
}

// fewUsed is with how many in use they are not short any more, so that a host which takes each port
// that comes back has one shortage.
const fewUsed = numPorts - numPorts/8

// of returns those of a host. mu is held.
func (p *ports) of(host netip.Addr) *hostPorts {
	h := p.hosts[host]
	if h == nil {
		if p.hosts == nil {
			p.hosts = map[netip.Addr]*hostPorts{}
		}
		h = &hostPorts{used: map[uint16]struct{}{}, next: uint16(rand.IntN(numPorts))}
		p.hosts[host] = h
	}
	return h
}

// alloc takes at most n ports that follow one another, none if all are in use, and not the
// one that is the listener's.
func (p *ports) alloc(host netip.Addr, listener uint16, n int) (first uint16, count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(host)
	free := func() bool {
		port := firstPort + h.next
		_, used := h.used[port]
		return !used && port != listener
	}
	for range numPorts {
		if free() {
			break
		}
		h.next = (h.next + 1) % numPorts
	}
	first = firstPort + h.next
	for count < n && h.next < numPorts && free() {
		h.used[firstPort+h.next] = struct{}{}
		h.next++
		count++
	}
	h.next %= numPorts
	return first, count
}

// take takes a port, and reports whether it was free.
func (p *ports) take(host netip.Addr, port uint16) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(host)
	if _, used := h.used[port]; used {
		return false
	}
	h.used[port] = struct{}{}
	return true
}

// uses reports whether a port is taken.
func (p *ports) uses(host netip.Addr, port uint16) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[host]
	if h == nil {
		return false
	}
	_, used := h.used[port]
	return used
}

// free gives n ports back.
func (p *ports) free(host netip.Addr, first uint16, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(host)
	for i := range n {
		delete(h.used, first+uint16(i))
	}
	if len(h.used) <= fewUsed {
		h.short = false
	}
	if len(h.used) == 0 {
		delete(p.hosts, host)
	}
}

// endsGivenUp returns what a stream has that uses a port of the host.
func (p *ports) endsGivenUp(host netip.Addr) *endsGivenUp {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.hosts[host]; h != nil {
		return &h.givenUp
	}
	return new(endsGivenUp) // the stream has ended
}

// usedUp is told that alloc found none for a dial that waits, and reports whether that is news.
func (p *ports) usedUp(host netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[host]
	if h == nil || h.short { // nil: all have come back since
		return false
	}
	h.short = true
	return true
}

// lanePorts are those of a listener's lane. The lane's lock guards them.
type lanePorts struct {
	all   *ports
	host  netip.Addr
	own   uint16             // the listener's, if it has the same address: both ends look the same there
	place lane.Table[uint16] // of places that were not taken, by id
	bound uint16             // of the lane itself, which one stream may have; 0: another had it
	busy  bool               // one has
}

// alloc takes ports for places.
func (l *lanePorts) alloc(n int) (first uint16, count int) { return l.all.alloc(l.host, l.own, n) }

func (l *lanePorts) free(first uint16, n int) {
	if n > 0 {
		l.all.free(l.host, first, n)
	}
}

// back gives the port of a place back, if it has one still.
func (l *lanePorts) back(id lane.ID) {
	if port := l.place.At(id); port != 0 {
		l.place.Set(id, 0)
		l.free(port, 1)
	}
}

// opened returns whether a stream may have a port: that of its place or of the lane, or one that
// it had at another listener, which is one that listeners give. It gives that of the place back
// if it is another. mu is held.
func (l *lanePorts) opened(id lane.ID, port uint16) bool {
	own := l.place.At(id)
	l.place.Set(id, 0)
	if port == own {
		return true
	}
	l.all.free(l.host, own, 1)
	if port == l.bound && !l.busy {
		l.busy = true
		return true
	}
	return port >= firstPort && port-firstPort < numPorts && l.all.take(l.host, port)
}

// ended gives back the port of a stream.
func (l *lanePorts) ended(port uint16) {
	if port == l.bound {
		l.busy = false
		return
	}
	l.all.free(l.host, port, 1)
}

// end gives back what no stream has, and the port of the lane: with the lane its stream has failed.
func (l *lanePorts) end() {
	for id := range l.place {
		l.back(lane.ID(id))
	}
	if l.bound != 0 {
		l.all.free(l.host, l.bound, 1)
		l.bound, l.busy = 0, false
	}
}
