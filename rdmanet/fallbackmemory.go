package rdmanet

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// maxRemembered bounds the destinations that are remembered.
const maxRemembered = 1024

// A failureMemory remembers for a while which destinations RDMA did not reach, so
// that not every dial to them has to find out. The zero value is ready to use.
type failureMemory struct {
	mu      sync.Mutex
	entries map[destination]*list.Element
	order   list.List // *rememberedFailure, the longest unchanged first
}

// A destination is where RDMA would go, with what was asked for on the way: the
// device and the local address, if any.
type destination struct {
	device string
	src    netip.Addr
	addr   netip.AddrPort
}

type rememberedFailure struct {
	to    destination
	err   error
	until time.Time
}

// unreached are the destinations of this process's dials.
var unreached failureMemory

// remember keeps err for a destination, for as long as it is told.
func (m *failureMemory) remember(to destination, err error, howLong time.Duration) {
	if howLong <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(m.entries[to])
	if len(m.entries) >= maxRemembered {
		m.drop(m.order.Front())
	}
	if m.entries == nil {
		m.entries = map[destination]*list.Element{}
	}
	m.entries[to] = m.order.PushBack(&rememberedFailure{to, err, time.Now().Add(howLong)})
}

// recall returns what is remembered of a destination; nil is nothing.
func (m *failureMemory) recall(to destination) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[to]
	if e == nil {
		return nil
	}
	f := e.Value.(*rememberedFailure)
	if !time.Now().Before(f.until) {
		m.drop(e)
		return nil
	}
	return f.err
}

// forget is told that a destination was reached.
func (m *failureMemory) forget(to destination) {
	m.mu.Lock()
	m.drop(m.entries[to])
	m.mu.Unlock()
}

// drop is called with mu held; e may be nil.
func (m *failureMemory) drop(e *list.Element) {
	if e != nil {
		delete(m.entries, m.order.Remove(e).(*rememberedFailure).to)
	}
}
