package rdmanet

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// live knows the connections and listeners of the process.
var live = registry{devices: map[string]*deviceCounters{}, listeners: map[*Listener]struct{}{}}

// A registry has what exists now in a list, and of what is gone the sums. Its lock is
// held for a few pointers only; no lock of a Conn is taken under it, so that whoever
// asks for statistics of ten thousand connections does not hold up a dial.
type registry struct {
	mu        sync.Mutex
	newest    *Conn // linked by Conn.entry
	devices   map[string]*deviceCounters
	listeners map[*Listener]struct{}
	closed    ListenerStats // of the listeners that are gone
	dials     dialFailures
}

// An entry is a Conn's place in the registry.
type entry struct {
	older, newer *Conn
	device       atomic.Pointer[deviceCounters] // nil outside the registry
	accepted     bool
	since        time.Duration // on the scale of epoch
}

// deviceCounters are those of all connections that a device carried.
type deviceCounters struct {
	name   string
	opened [2]uint64 // dialled, accepted
	open   [2]int
	closed ConnStats // of the connections that are gone
	failures
}

// add takes in a connection that stands. It is called before anything can happen to c.
func (r *registry) add(c *Conn, accepted bool) {
	since, device := time.Since(epoch), c.Device()
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.devices[device]
	if d == nil {
		d = &deviceCounters{name: device}
		r.devices[d.name] = d
	}
	d.opened[side(accepted)]++
	d.open[side(accepted)]++
	e := &c.entry
	e.accepted, e.since, e.older = accepted, since, r.newest
	e.device.Store(d)
	if r.newest != nil {
		r.newest.entry.newer = c
	}
	r.newest = c
}

// remove takes out a connection that is torn down, and keeps what it counted.
func (r *registry) remove(c *Conn) {
	e := &c.entry
	d := e.device.Load()
	if d == nil {
		return
	}
	last := c.Stats()
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.newer != nil {
		e.newer.entry.older = e.older
	} else {
		r.newest = e.older
	}
	if e.older != nil {
		e.older.entry.newer = e.newer
	}
	e.older, e.newer = nil, nil
	d.open[side(e.accepted)]--
	d.closed.add(&last)
}

func side(accepted bool) int {
	if accepted {
		return 1
	}
	return 0
}

// conns returns the connections of now, the oldest first.
func (r *registry) conns() []*Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connsLocked()
}

func (r *registry) connsLocked() []*Conn {
	n := 0
	for _, d := range r.devices {
		n += d.open[0] + d.open[1]
	}
	all := make([]*Conn, 0, n)
	for c := r.newest; c != nil; c = c.entry.older {
		all = append(all, c)
	}
	slices.Reverse(all)
	return all
}

// stats sums what is gone and what is there. Each connection counts once: what is in
// the list when the sums are copied is not in them.
func (r *registry) stats() (devices []DeviceStats, listening ListenerStats, listeners int) {
	r.mu.Lock()
	conns := r.connsLocked()
	rows := make(map[*deviceCounters]*DeviceStats, len(r.devices))
	for _, d := range r.devices {
		rows[d] = &DeviceStats{
			Device:    d.name,
			Dialled:   ConnCount{Open: d.open[0], Total: d.opened[0]},
			Accepted:  ConnCount{Open: d.open[1], Total: d.opened[1]},
			ConnStats: d.closed,
		}
	}
	listening = r.closed
	open := r.listenersLocked()
	r.mu.Unlock()
	for _, c := range conns {
		s := c.Stats()
		row := rows[c.entry.device.Load()]
		row.ConnStats.add(&s)
		row.ReadBuffer += s.ReadBuffer
		row.WriteBuffer += s.WriteBuffer
	}
	for d, row := range rows {
		row.Errors, row.FailedWRs = d.failures.read()
		devices = append(devices, *row)
	}
	slices.SortFunc(devices, func(a, b DeviceStats) int { return cmp.Compare(a.Device, b.Device) })
	for _, l := range open {
		s := l.Stats()
		listening.add(&s)
		listening.Pending += s.Pending
		listening.HalfOpen += s.HalfOpen
	}
	return devices, listening, len(open)
}

func (r *registry) addListener(l *Listener) {
	r.mu.Lock()
	r.listeners[l] = struct{}{}
	r.mu.Unlock()
}

// removeListener takes out a listener that is closed, and keeps what it counted.
func (r *registry) removeListener(l *Listener, last ListenerStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.listeners[l]; ok {
		delete(r.listeners, l)
		r.closed.add(&last)
	}
}

func (r *registry) listenersLocked() []*Listener {
	all := make([]*Listener, 0, len(r.listeners))
	for l := range r.listeners {
		all = append(all, l)
	}
	return all
}

// add adds the counts of o, but not what is only of now.
func (s *ConnStats) add(o *ConnStats) {
	s.BytesRead += o.BytesRead
	s.BytesWritten += o.BytesWritten
	s.MessagesSent += o.MessagesSent
	s.MessagesReceived += o.MessagesReceived
	s.DoorbellsSent += o.DoorbellsSent
	s.DoorbellsReceived += o.DoorbellsReceived
	s.CreditsSent += o.CreditsSent
	s.CreditsReceived += o.CreditsReceived
	s.KeepAlivesSent += o.KeepAlivesSent
	s.WakeupsSent += o.WakeupsSent
	s.WakeupsSuppressed += o.WakeupsSuppressed
	s.CreditStalls += o.CreditStalls
	s.CreditStallTime += o.CreditStallTime
	s.Spins += o.Spins
	s.Parks += o.Parks
	s.BytesCopied += o.BytesCopied
	s.BytesPlaced += o.BytesPlaced
	s.RescuedWakeups += o.RescuedWakeups
	s.RingsGrown += o.RingsGrown
	s.ChecksumErrors += o.ChecksumErrors
}

// add adds the counts of o, but not what is only of now.
func (s *ListenerStats) add(o *ListenerStats) {
	s.Accepted += o.Accepted
	s.AcceptedTCP += o.AcceptedTCP
	s.Established += o.Established
	s.Refused += o.Refused
	s.Failed += o.Failed
	s.Requests += o.Requests
	s.Shortages += o.Shortages
	s.Evicted += o.Evicted
	s.TimedOut += o.TimedOut
	s.Malformed += o.Malformed
	s.Denied += o.Denied
}
