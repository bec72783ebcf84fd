//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A datagram is one message of a Unix socket, from the context of its sender to the one
// that has the block of the QPN it is for. The socket begins with msgDatagrams. What the
// receiver's application makes of the sender's address comes with it:
//
//	0 flags u8 | 1 SL u8 | 2 traffic class u8 | 3 hop limit u8 | 4 from QPN u32 | 8 to QPN u32
//	12 Q_Key u32 | 16 immediate u32 | 20 flow label u32 | 24 SGID | 40 DGID | 56 data
const (
	datagramHeader = 56
	datagramMTU    = 4096 // verbs.MTU4096, as the port has it
	maxDatagram    = datagramHeader + datagramMTU

	datagramImm       = 1 << 0
	datagramSolicited = 1 << 1
	datagramFlags     = 1<<2 - 1
)

// maxDatagramSockets is how many contexts one sends to, and hears, at a time. Another takes
// the place of the one that has been silent for longest, which only has to connect again.
const maxDatagramSockets = 64

// datagramPatience is how long datagrams wait for a context that does not read. After that
// they are lost until it does.
const datagramPatience = time.Second

// datagram is one as it was received.
type datagram struct {
	ah       verbs.AHAttr // as the sender's
	sgid     verbs.GID
	flags    byte
	from, to uint32
	qkey     uint32
	imm      uint32
	data     []byte
}

func (d *datagram) append(b []byte) []byte {
	b = append(b, d.flags, d.ah.SL, d.ah.TrafficClass, d.ah.HopLimit)
	for _, v := range [...]uint32{d.from, d.to, d.qkey, d.imm, d.ah.FlowLabel} {
		b = shm.HostOrder.AppendUint32(b, v)
	}
	b = append(b, d.sgid[:]...)
	return append(b, d.ah.DGID[:]...)
}

// parseDatagram reads a datagram; false if no sender has made it. Its addresses are those
// of this host.
func parseDatagram(b []byte) (d datagram, ok bool) {
	if len(b) < datagramHeader || len(b) > maxDatagram {
		return d, false
	}
	d = datagram{
		flags: b[0], from: shm.HostOrder.Uint32(b[4:]), to: shm.HostOrder.Uint32(b[8:]),
		qkey: shm.HostOrder.Uint32(b[12:]), imm: shm.HostOrder.Uint32(b[16:]), sgid: verbs.GID(b[24:40]), data: b[datagramHeader:],
		ah: verbs.AHAttr{SL: b[1], TrafficClass: b[2], HopLimit: b[3], FlowLabel: shm.HostOrder.Uint32(b[20:]), DGID: verbs.GID(b[40:56])},
	}
	src, dst := d.sgid.Addr(), d.ah.DGID.Addr()
	if d.flags&^datagramFlags != 0 || d.ah.SL > 15 || d.ah.FlowLabel >= 1<<20 || d.from < 2 || d.from >= 1<<24-1 ||
		src.Is4() != dst.Is4() || !knownLocal(src) || !knownLocal(dst) {
		return d, false
	}
	return d, true
}

// datagramOut are the sockets on which a context sends.
type datagramOut struct {
	mu     sync.Mutex
	list   []*datagramTo // those used last at the end
	closed bool
}

type datagramTo struct {
	block uint32
	sock  *control.Socket
	taken time.Time // when it took a datagram last
}

// send sends a datagram to the context that has a QPN, which gets it or does not.
func (o *datagramOut) send(dev *device, to uint32, msg []byte) outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range 2 {
		t, err := o.find(dev, to>>qpnBlockBits)
		if err == nil {
			if err = t.sock.Try(msg); err == nil {
				t.taken = time.Now()
				return succeeded
			}
			if err == unix.EAGAIN && time.Since(t.taken) > datagramPatience {
				return succeeded
			}
		}
		if errors.Is(err, unix.EAGAIN) {
			return waitSocket
		}
		if t == nil {
			break
		}
		// The other end is gone, or it made room for others.
		o.drop(len(o.list) - 1)
	}
	return succeeded
}

// find returns the socket to a block, as the last of the list, and connects one if there is none.
func (o *datagramOut) find(dev *device, block uint32) (*datagramTo, error) {
	for i, t := range o.list {
		if t.block == block {
			o.list = append(slices.Delete(o.list, i, i+1), t)
			return t, nil
		}
	}
	if o.closed {
		return nil, verbs.ErrClosed
	}
	s, err := dialBlock(blockName(dev.name, block))
	if err != nil {
		return nil, err
	}
	hello := [helloHeader]byte{msgDatagrams, helloVersion}
	if err := s.Try(hello[:]); err != nil {
		s.Close()
		return nil, err
	}
	if len(o.list) == maxDatagramSockets {
		o.drop(0)
	}
	t := &datagramTo{block: block, sock: s, taken: time.Now()}
	o.list = append(o.list, t)
	return t, nil
}

func (o *datagramOut) drop(i int) {
	o.list[i].sock.Close()
	o.list = slices.Delete(o.list, i, i+1)
}

func (o *datagramOut) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for len(o.list) > 0 {
		o.drop(0)
	}
}

// datagramIn are the sockets on which a context hears.
type datagramIn struct {
	mu     sync.Mutex
	list   []*datagramFrom
	closed bool
}

type datagramFrom struct {
	sock *control.Socket
	used time.Time // when the last datagram came
}

// receiveDatagrams takes the datagrams that come over s, which it owns from here on.
func (b *qpnBlocks) receiveDatagrams(s *control.Socket) bool {
	in := &b.in
	f := &datagramFrom{sock: s, used: time.Now()}
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return false
	}
	if len(in.list) == maxDatagramSockets {
		oldest := slices.MinFunc(in.list, func(a, b *datagramFrom) int { return a.used.Compare(b.used) })
		oldest.sock.Shutdown()
		in.list = without(in.list, oldest)
	}
	in.list = append(in.list, f)
	in.mu.Unlock()
	go func() {
		b.readDatagrams(f)
		in.mu.Lock()
		in.list = without(in.list, f)
		in.mu.Unlock()
		s.Close()
	}()
	return true
}

// readDatagrams reads until the sender hangs up, or sends what is no datagram.
func (b *qpnBlocks) readDatagrams(f *datagramFrom) {
	buf := make([]byte, maxDatagram)
	for {
		n, fds, err := f.sock.Recv(buf)
		if err != nil {
			return
		}
		control.CloseFDs(fds)
		d, ok := parseDatagram(buf[:n])
		if !ok || len(fds) > 0 {
			return
		}
		b.in.mu.Lock()
		f.used = time.Now()
		b.in.mu.Unlock()
		if q := b.find(d.to); q != nil {
			q.takeDatagram(&d)
		}
	}
}

func (in *datagramIn) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	for _, f := range in.list {
		f.sock.Shutdown()
	}
	in.list = nil
}
