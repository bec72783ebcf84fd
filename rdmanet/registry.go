package rdmanet

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// live knows the connections and listeners of the process.
var live = registry{devices: map[string]*deviceCounters{}, listeners: map[*Listener]struct{}{}, leaving: map[*Listener]struct{}{}}

// A registry has what exists now in a list, and of what is gone the sums. Its lock is
// held for a few pointers only; no lock of a Conn is taken under it, so that whoever
// asks for statistics of ten thousand connections does not hold up a dial.
type registry struct {
	mu        sync.Mutex
	newest    *stream
	young     *stream // the oldest one whose guard has no finalizer yet
	watching  bool    // for the collector
	devices   map[string]*deviceCounters
	listeners map[*Listener]struct{}
	leaving   map[*Listener]struct{} // that are closed, and may still count
	closed    ListenerStats          // of the listeners that are gone
	dials     dialFailures
}

// A place is a connection's in the registry, and what is known of it there.
type place struct {
	older, newer *stream
	laddr, raddr atomic.Pointer[net.TCPAddr]    // made when they are first asked for, as torn is
	torn         atomic.Pointer[chan struct{}]  // see done
	device       atomic.Pointer[deviceCounters] // nil outside the registry
	young        atomic.Pointer[dropGuard]      // nil when it has a finalizer, or was closed
	since        time.Duration                  // on the scale of epoch
	linger       atomic.Int32                   // seconds; below 0 is the default
	network      networkID
	accepted     bool
}

// gone records that nothing is left of what carried the connection.
func (st *stream) gone() {
	live.remove(st)
	if torn := st.torn.Swap(&alreadyTorn); torn != nil {
		close(*torn)
	}
}

// alreadyTorn is closed.
var alreadyTorn = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// done returns a channel that is closed when nothing is left of what carried the connection.
func (st *stream) done() <-chan struct{} {
	if torn := st.torn.Load(); torn != nil {
		return *torn
	}
	torn := make(chan struct{})
	st.torn.CompareAndSwap(nil, &torn)
	return *st.torn.Load()
}

func (st *stream) localAddr() *net.TCPAddr { return kept(&st.laddr, st.s.LocalAddr) }

func (st *stream) remoteAddr() *net.TCPAddr { return kept(&st.raddr, st.s.RemoteAddr) }

// kept returns the address in p, which addr makes at first.
func kept(p *atomic.Pointer[net.TCPAddr], addr func() net.Addr) *net.TCPAddr {
	if p.Load() == nil {
		p.CompareAndSwap(nil, addr().(*net.TCPAddr))
	}
	return p.Load()
}

// drainLimit is how long what was sent may take to arrive when the connection is closed.
func (st *stream) drainLimit() time.Duration {
	if sec := st.linger.Load(); sec > 0 {
		return time.Duration(sec) * time.Second
	}
	return defaultDrain
}

// failures are those of the device, nil before the connection stands.
func (st *stream) failures() *failures {
	if d := st.device.Load(); d != nil {
		return &d.failures
	}
	return nil
}

// deviceCounters are those of all connections that a device carried.
type deviceCounters struct {
	name   string
	opened [2]uint64 // dialled, accepted
	open   [2]int
	closed ConnStats // of the connections that are gone
	failures
}

// add takes in a connection that stands. It is called before anything can happen to it.
func (r *registry) add(st *stream, accepted bool) {
	since, device := time.Since(epoch), st.deviceName()
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.devices[device]
	if d == nil {
		d = &deviceCounters{name: device}
		r.devices[d.name] = d
	}
	d.opened[side(accepted)]++
	d.open[side(accepted)]++
	if r.newest != nil {
		since = max(since, r.newest.since) // another has waited for the lock for less long
	}
	st.accepted, st.since, st.older = accepted, since, r.newest
	st.device.Store(d)
	if r.newest != nil {
		r.newest.newer = st
	}
	r.newest = st
	if r.young == nil {
		r.young = st
		r.watch()
	}
}

// remove takes out a connection that is torn down, and keeps what it counted.
func (r *registry) remove(st *stream) {
	d := st.device.Load()
	if d == nil {
		return
	}
	last := st.counted()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlink(st)
	d.open[side(st.accepted)]--
	d.closed.add(&last)
}

// unlink takes a connection out of the list. r.mu is held.
func (r *registry) unlink(st *stream) {
	if r.young == st {
		r.young = st.newer
	}
	if st.newer != nil {
		st.newer.older = st.older
	} else {
		r.newest = st.older
	}
	if st.older != nil {
		st.older.newer = st.newer
	}
	st.older, st.newer = nil, nil
}

// counted is what counts for the device. What is a lane's is not of each of its connections.
func (st *stream) counted() ConnStats {
	s := st.stats()
	if lane, _ := st.lane(); lane != 0 {
		s.KeepAlivesSent, s.WakeupsSent, s.WakeupsSuppressed = 0, 0, 0
	}
	return s
}

func side(accepted bool) int {
	if accepted {
		return 1
	}
	return 0
}

// conns returns the connections of now, the oldest first.
func (r *registry) conns() []*stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connsLocked()
}

func (r *registry) connsLocked() []*stream {
	n := 0
	for _, d := range r.devices {
		n += d.open[0] + d.open[1]
	}
	all := make([]*stream, 0, n)
	for st := r.newest; st != nil; st = st.older {
		all = append(all, st)
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
	leaving := slices.Collect(maps.Keys(r.leaving))
	r.mu.Unlock()
	for _, st := range conns {
		s := st.counted()
		row := rows[st.device.Load()]
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
	for _, l := range leaving {
		s := l.counted.now(l.Stats)
		listening.add(&s)
	}
	return devices, listening, len(open)
}

func (r *registry) addListener(l *Listener) {
	r.mu.Lock()
	r.listeners[l] = struct{}{}
	r.mu.Unlock()
}

// leavingTime is for how long a listener that is closed may count, beside its HandshakeTimeout, up to a
// minute: an Accept takes what was opened before, and lanes that have no place yet end.
const leavingTime = 15 * time.Second

// removeListener takes out a listener that is closed, and keeps what it counts.
func (r *registry) removeListener(l *Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.listeners[l]; !ok {
		return
	}
	delete(r.listeners, l)
	r.leaving[l] = struct{}{}
	time.AfterFunc(min(l.handshakeTimeout, time.Minute)+leavingTime, func() {
		s := l.counted.end(l.Stats) // what it counts from now on is nobody's
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.leaving, l)
		r.closed.add(&s)
	})
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
