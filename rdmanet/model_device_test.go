package rdmanet

import (
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// The device of the model: verbs objects on which nothing happens by itself. A request
// is executed, a completion shows and an event wakes when the scheduler of the model
// says so (model_wire_test.go), and each call that a Conn makes here is a place where
// it may let others go on. What the verbs allow, the device does in its worst form.

// simDepth is the room of a send queue.
const simDepth = sendDepth

// A simWR is a request in a send queue.
type simWR struct {
	op       verbs.WROpcode
	signaled bool
	wrid     uint64
	imm      uint32
	at       uint64 // position in the stream of the first of its bytes
	data     []byte // where the bytes are until they are placed
	inline   []byte // memory for data that the post copies, kept from request to request
	to       uint64
	rkey     uint32
	placed   bool
}

// rings says that the request gives the peer a completion.
func (w *simWR) rings() bool { return w.op != verbs.WRRDMAWrite }

// simDevice is all of one end that is not the Conn.
type simDevice struct {
	m    *model
	end  *modelEnd
	peer *modelEnd
	caps verbs.DeviceCaps

	mrs  []*simMR     // by key - 1
	open atomic.Int64 // objects that have not been closed

	// The send queue. Counts of requests, each at most the one before: posted, placed in
	// the peer's memory and told to it, completed, given back by a Poll.
	sq                             [2 * simDepth]simWR
	posted, executed, acked, freed uint64
	signaled                       int // requests that complete, of those not given back

	recvs  fifo[simRecv] // posted receives, oldest first
	recvCQ simCQ
	sendCQ simCQ
	ch     simChannel

	failed       bool           // the QP is in ERR
	status       verbs.WCStatus // of the request that failed, 0 if none did
	refused      bool           // a post, for that
	destroyed    bool           // and is no more
	disconnected bool           // by this end, or by a fault
	asked        atomic.Bool    // Disconnect was called, and has not been done
	news         bool           // the connection manager has DISCONNECTED for this end
	told         bool           // and has told it
}

func (d *simDevice) wr(n uint64) *simWR { return &d.sq[n%uint64(len(d.sq))] }

type simRecv struct {
	wrid uint64
	buf  []byte
}

// A simCQ is a completion queue. slots says of each completion of a send how many
// requests it gives back, all that were posted before it included.
type simCQ struct {
	verbs.CQ
	d     *simDevice
	cap   int
	wcs   fifo[verbs.WC]
	slots fifo[uint64]
	armed bool
}

// add puts a completion into the queue.
func (q *simCQ) add(wc verbs.WC) {
	if q.wcs.len() >= q.cap {
		q.d.m.fail("invariant 2: a completion queue of %d overruns", q.cap)
	}
	q.wcs.push(wc)
	if q.armed {
		q.armed = false
		if f := q.d.m.fault; f != faultLostEvent || !f.now(q.d.m) {
			q.d.ch.event = true
		}
	}
}

func (q *simCQ) Cap() int { return q.cap }

func (q *simCQ) Poll(wc []verbs.WC) (int, error) {
	q.d.m.yield(placePoll)
	n := 0
	for n < len(wc) && q.wcs.len() > 0 {
		wc[n] = q.wcs.pop()
		if q.slots.len() > 0 {
			q.d.freed = q.slots.pop()
			q.d.signaled--
		}
		q.d.m.note(wc[n].WRID, uint64(wc[n].ImmData), uint64(wc[n].Status))
		n++
	}
	q.d.m.note(uint64(n))
	return n, nil
}

func (q *simCQ) ReqNotify(bool) error {
	q.d.m.yield(placeArm)
	q.armed = true
	return nil
}

func (q *simCQ) Close() error { q.d.open.Add(-1); return nil }

// A simChannel wakes who waits in it when its event is delivered. An event that is
// delivered while nobody waits wakes nobody, as in the network poller.
type simChannel struct {
	verbs.CompChannel
	d       *simDevice
	event   bool // one or more events on their way
	waiting [2]bool
	ready   [2]bool // an event has been delivered since the wait began
	past    [2]bool // the deadline has passed
	closed  bool
}

func (ch *simChannel) WaitRead(try func() bool) error  { return ch.wait(dirRead, try) }
func (ch *simChannel) WaitWrite(try func() bool) error { return ch.wait(dirWrite, try) }

func (ch *simChannel) wait(d direction, try func() bool) error {
	ch.waiting[d], ch.ready[d] = true, false
	defer func() { ch.waiting[d] = false }()
	for {
		switch {
		case ch.closed:
			return os.ErrClosed
		case ch.past[d]:
			return os.ErrDeadlineExceeded
		}
		ch.d.m.forget()
		if try() {
			return nil
		}
		ch.d.m.park(d)
		ch.ready[d] = false
	}
}

func (ch *simChannel) SetReadDeadline(t time.Time) error  { return ch.set(dirRead, t) }
func (ch *simChannel) SetWriteDeadline(t time.Time) error { return ch.set(dirWrite, t) }

// set takes every deadline but one long ago for one that never comes.
func (ch *simChannel) set(d direction, t time.Time) error {
	ch.past[d] = !t.IsZero() && !t.After(longPast)
	return nil
}

func (ch *simChannel) Close() error {
	ch.closed = true
	ch.d.open.Add(-1)
	return nil
}

// A simQP is the QP of an end.
type simQP struct {
	verbs.QP
	d *simDevice
}

func (q simQP) State() verbs.QPState {
	if q.d.failed {
		return verbs.QPErr
	}
	return verbs.QPRTS
}

func (q simQP) PostSend(wrs []verbs.SendWR) (int, error) {
	d := q.d
	d.m.yield(placePost)
	if d.failed && d.m.set.refuses {
		d.refused = true
		return 0, verbs.ErrState
	}
	for i := range wrs {
		if d.posted-d.freed >= simDepth {
			d.m.fail("invariant 5: a post beyond the send queue")
		}
		w := d.wr(d.posted)
		*w = simWR{
			op: wrs[i].Opcode, signaled: wrs[i].Flags&verbs.SendSignaled != 0, wrid: wrs[i].WRID, imm: wrs[i].ImmData,
			to: wrs[i].RemoteAddr, rkey: wrs[i].RKey, inline: w.inline[:0], data: d.gather(wrs[i].SGList),
		}
		if wrs[i].Flags&verbs.SendInline != 0 {
			w.inline = append(w.inline, wrs[i].Inline...)
			w.data = w.inline
		}
		d.m.fault.post(d, w)
		if w.signaled {
			d.signaled++
		}
		d.end.posting(w)
		d.posted++
	}
	if d.failed {
		d.flushSends()
	}
	return len(wrs), nil
}

// gather is the memory that a list names.
func (d *simDevice) gather(list []verbs.SGE) []byte {
	if len(list) == 0 {
		return nil
	}
	mr := d.mrs[list[0].LKey-1]
	return mr.buf[list[0].Addr-mr.Addr():][:list[0].Length]
}

func (q simQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	d := q.d
	d.m.yield(placePost)
	if d.failed && d.m.set.refuses {
		return 0, verbs.ErrState
	}
	n := d.m.fault.receives(d, len(wrs))
	for i := range wrs[:n] {
		d.recvs.push(simRecv{wrs[i].WRID, d.gather(wrs[i].SGList)})
	}
	if d.failed {
		d.flushRecvs()
	}
	return len(wrs), nil
}

func (q simQP) Close() error {
	q.d.destroyed, q.d.failed = true, true
	q.d.open.Add(-1)
	return nil
}

// A simMemory is memory of an end. Who looks at it finds what is being written.
type simMemory struct {
	d         *simDevice
	buf       []byte
	committed int
}

func (m *simMemory) Bytes() []byte {
	m.d.writtenMeanwhile()
	return m.buf
}

func (m *simMemory) Committed() int     { return m.committed }
func (m *simMemory) Commit(n int) error { m.committed = max(m.committed, n); return nil }
func (m *simMemory) Close() error       { m.d.open.Add(-1); return nil }

// A simMR is a registration.
type simMR struct {
	verbs.MR
	d      *simDevice
	buf    []byte
	key    uint32
	remote bool
	closed bool
}

func (r *simMR) LKey() uint32 { return r.key }
func (r *simMR) RKey() uint32 { return r.key }
func (r *simMR) Addr() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.buf)))) }
func (r *simMR) Len() int     { return len(r.buf) }

func (r *simMR) Close() error {
	r.closed = true
	r.d.open.Add(-1)
	return nil
}

// A simPD is a protection domain.
type simPD struct {
	verbs.PD
	d *simDevice
}

func (p simPD) Context() verbs.Context { return simContext{d: p.d} }
func (p simPD) Close() error           { p.d.open.Add(-1); return nil }

func (p simPD) RegMR(buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	r := &simMR{d: p.d, buf: buf, key: uint32(len(p.d.mrs) + 1), remote: access&verbs.AccessRemoteWrite != 0}
	p.d.mrs = append(p.d.mrs, r)
	p.d.open.Add(1)
	return r, nil
}

// A simContext is the opened device of an end.
type simContext struct {
	verbs.Context
	d *simDevice
}

func (c simContext) Device() verbs.Device { return simName{} }

type simName struct{ verbs.Device }

func (simName) Name() string               { return "model0" }
func (simName) Transport() verbs.Transport { return verbs.TransportUnknown }

func (c simContext) QueryDevice() (verbs.DeviceAttr, error) {
	attr := verbs.DeviceAttr{Caps: c.d.caps, MaxInlineData: maxInline}
	if c.d.caps&verbs.CapSynchronous != 0 {
		attr.MaxInlineData = ring.MaxSize
	}
	return attr, nil
}

func (c simContext) AllocPD() (verbs.PD, error) { c.d.open.Add(1); return simPD{d: c.d}, nil }

func (c simContext) CreateCompChannel() (verbs.CompChannel, error) {
	c.d.open.Add(1)
	c.d.ch = simChannel{d: c.d}
	return &c.d.ch, nil
}

func (c simContext) CreateCQ(n int, _ verbs.CompChannel) (verbs.CQ, error) {
	c.d.open.Add(1)
	q := &c.d.recvCQ
	if q.d != nil {
		q = &c.d.sendCQ
	}
	q.d, q.cap = c.d, n
	return q, nil
}

func (c simContext) AllocMemory(size, committed int) (verbs.Memory, error) {
	c.d.open.Add(1)
	buf := c.d.m.memory.take(size)
	clear(buf[:ring.DataOffset])
	return &simMemory{d: c.d, buf: buf, committed: committed}, nil
}

// A simID is the id of an end, connected.
type simID struct{ d *simDevice }

func (id simID) Verbs() verbs.Context                       { return simContext{d: id.d} }
func (id simID) Connect(*cm.ConnParam, time.Duration) error { return nil }
func (id simID) Accept(*cm.ConnParam) error                 { return nil }
func (id simID) LocalAddr() netip.AddrPort                  { return netip.AddrPort{} }
func (id simID) RemoteAddr() netip.AddrPort                 { return netip.AddrPort{} }
func (id simID) Disconnect() error                          { id.d.asked.Store(true); return nil }
func (id simID) Close() error                               { id.d.open.Add(-1); return nil }

func (id simID) CreateQP(_ verbs.PD, attr *verbs.QPInitAttr) (verbs.QP, error) {
	id.d.open.Add(2) // and the id
	return simQP{d: id.d}, nil
}

// A fifo is a queue that keeps its memory.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }
func (f *fifo[T]) push(v T) { f.items = append(f.items, v) }
func (f *fifo[T]) all() []T { return f.items[f.head:] }
func (f *fifo[T]) reset()   { f.items, f.head = f.items[:0], 0 }
func (f *fifo[T]) pop() (v T) {
	v = f.items[f.head]
	if f.head++; f.head == len(f.items) {
		f.reset()
	} else if f.head >= 1024 {
		f.items = append(f.items[:0], f.items[f.head:]...)
		f.head = 0
	}
	return v
}

// A memoryPool keeps the memory of models for the next ones.
type memoryPool struct{ free, used [][]byte }

func (p *memoryPool) take(size int) (b []byte) {
	at := slices.IndexFunc(p.free, func(b []byte) bool { return len(b) >= size })
	if at >= 0 {
		b = p.free[at]
		p.free = slices.Delete(p.free, at, at+1)
	} else {
		words := make([]uint64, (size+7)/8) // those of a credit are read as such
		b = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
	}
	p.used = append(p.used, b)
	return b[:size]
}

// recycle takes back all memory; nobody uses it any more.
func (p *memoryPool) recycle() {
	p.free = append(p.free, p.used...)
	p.used = p.used[:0]
}
