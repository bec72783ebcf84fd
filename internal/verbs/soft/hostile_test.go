//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// memfd makes a memfd of size bytes with seals.
func memfd(t *testing.T, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return fd
}

func eventfd(t *testing.T, flags int) int {
	t.Helper()
	fd, err := unix.Eventfd(0, flags|unix.EFD_CLOEXEC)
	require.NoError(t, err)
	return fd
}

// pipeEnd is a descriptor that takes writes and does not block.
func pipeEnd(t *testing.T) int {
	t.Helper()
	var p [2]int
	require.NoError(t, unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	require.NoError(t, unix.Close(p[0]))
	return p[1]
}

// TestOfferRefused opens offers that are wrong in every way. Each leaves no
// descriptor and no mapping behind.
func TestOfferRefused(t *testing.T) {
	g := shm.Geometry{Shift: 4, BounceShift: shm.BounceShift}
	size := int64(g.Size())
	header := func(flags byte, mrs int) []byte {
		b := make([]byte, offerHeader)
		b[0], b[1], b[2], b[3], b[8] = offerVersion, flags, g.Shift, g.BounceShift, byte(mrs)
		return b
	}
	withMR := func(o shm.MROffer) []byte { return o.Append(header(0, 1)) }
	change := func(i int, v byte) []byte {
		b := header(0, 0)
		b[i] = v
		return b
	}
	good := func() int { return memfd(t, size, shm.WantSeals) }
	page := uint64(shm.PageSize)
	for name, c := range map[string]struct {
		blob []byte
		fds  []int
	}{
		"empty":             {nil, []int{good()}},
		"truncated":         {header(0, 0)[:offerHeader-1], []int{good()}},
		"version":           {change(0, 9), []int{good()}},
		"unknown flag":      {change(1, 0x80), []int{good()}},
		"queue too long":    {change(2, 63), []int{good()}},
		"bounce too large":  {change(3, 64), []int{good()}},
		"bounce too small":  {change(3, 3), []int{good()}},
		"no descriptor":     {header(0, 0), nil},
		"extra descriptor":  {header(0, 0), []int{good(), good()}},
		"MR without record": {header(0, 1), []int{good(), good()}},
		"too many MRs":      {append(header(0, 5), make([]byte, 5*shm.MROfferSize)...), []int{good(), good(), good(), good(), good(), good()}},
		"not sealed":        {header(0, 0), []int{memfd(t, size, 0)}},
		"may shrink":        {header(0, 0), []int{memfd(t, size, unix.F_SEAL_GROW)}},
		"may grow":          {header(0, 0), []int{memfd(t, size, unix.F_SEAL_SHRINK)}},
		"too small":         {header(0, 0), []int{memfd(t, size-int64(page), shm.WantSeals)}},
		"too large":         {header(0, 0), []int{memfd(t, size+int64(page), shm.WantSeals)}},
		"empty memfd":       {header(0, 0), []int{memfd(t, 0, shm.WantSeals)}},
		"not a memfd":       {header(0, 0), []int{eventfd(t, 0)}},
		"not writable":      {header(0, 0), []int{memfd(t, size, shm.WantSeals|unix.F_SEAL_FUTURE_WRITE)}},
		"not an eventfd":    {header(offerEvent, 0), []int{good(), good()}},
		"pipe, not eventfd": {header(offerEvent, 0), []int{good(), pipeEnd(t)}},
		"eventfd blocks":    {header(offerEvent, 0), []int{good(), eventfd(t, 0)}},
		"SRQ not sealed":    {header(offerSRQ, 0), []int{good(), memfd(t, int64(page), 0)}},
		"SRQ too small":     {header(offerSRQ, 0), []int{good(), memfd(t, 0, shm.WantSeals)}},
		"event after error": {header(offerEvent|offerSRQ, 0), []int{good(), eventfd(t, unix.EFD_NONBLOCK), memfd(t, 0, shm.WantSeals)}},
		"MR past the end":   {withMR(shm.MROffer{Key: 1, Addr: page, Size: page, Off: page}), []int{good(), memfd(t, int64(page), shm.WantSeals)}},
		"MR too long":       {withMR(shm.MROffer{Key: 1, Addr: page, Size: page + 1}), []int{good(), memfd(t, int64(page), shm.WantSeals)}},
		"MR of nothing":     {withMR(shm.MROffer{Key: 1, Addr: page}), []int{good(), memfd(t, int64(page), shm.WantSeals)}},
		"MR wraps":          {withMR(shm.MROffer{Key: 1, Addr: -page & ^uint64(0), Size: 2 * page}), []int{good(), memfd(t, int64(2*page), shm.WantSeals)}},
		"MR huge":           {withMR(shm.MROffer{Key: 1, Addr: page, Size: 1 << 63}), []int{good(), memfd(t, int64(page), shm.WantSeals)}},
		"MR offset huge":    {withMR(shm.MROffer{Key: 1, Addr: page, Size: 1, Off: -page & ^uint64(0)}), []int{good(), memfd(t, int64(page), shm.WantSeals)}},
		"MR askew":          {withMR(shm.MROffer{Key: 1, Addr: page + 8, Size: 8}), []int{good(), memfd(t, int64(page), shm.WantSeals)}},
		"MR not sealed":     {withMR(shm.MROffer{Key: 1, Addr: page, Size: page}), []int{good(), memfd(t, int64(page), 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(leaktest.OpenFiles()) - len(c.fds)
			_, err := openOffer(c.blob, c.fds)
			require.ErrorIs(t, err, verbs.ErrProtocol)
			require.LessOrEqual(t, len(leaktest.OpenFiles()), before)
		})
	}
}

// asPeer runs attack on the hostile end's view of the other's inbox.
func asPeer(s *side, attack func(o *shm.Outbox)) {
	s.qp.mu.Lock()
	defer s.qp.mu.Unlock()
	attack(&s.qp.peer.out)
}

// linkOf is the link of a connected side.
func linkOf(s *side) *link {
	s.qp.mu.Lock()
	defer s.qp.mu.Unlock()
	return s.qp.link
}

// requireCut sees that the end under test noticed and closed this connection.
func requireCut(t *testing.T, local *side) {
	t.Helper()
	h := <-local.gone
	require.False(t, h.orderly)
	require.ErrorIs(t, h.err, verbs.ErrProtocol)
	require.Equal(t, verbs.QPErr, local.qp.State())
}

func TestHostileEntries(t *testing.T) {
	for name, attack := range map[string]func(o *shm.Outbox){
		"without a receive": func(o *shm.Outbox) {
			for range 3 {
				o.Publish(shm.EntryWriteImm, 1, 0)
			}
		},
		"unknown opcode": func(o *shm.Outbox) { o.Publish(9, 1, 0) },
		"opcode 0":       func(o *shm.Outbox) { o.Publish(0, 1, 0) },
		"too long":       func(o *shm.Outbox) { o.Publish(shm.EntrySend, 0, 1<<32-1) },
		"WRITE too long": func(o *shm.Outbox) { o.Publish(shm.EntryWriteImm, 0, 1<<31+1) },
		"data in entry":  func(o *shm.Outbox) { o.Publish(shm.EntrySend|shm.EntryData, 0, 5) },
		"bounce area never asked for": func(o *shm.Outbox) {
			atomic.StoreUint64(o.Long(shm.OffFilled), 100)
			o.Publish(shm.EntrySend, 0, 100)
		},
		"bounce area overfull": func(o *shm.Outbox) {
			atomic.StoreUint64(o.Long(shm.OffFilled), 1<<40)
			o.Publish(shm.EntrySend, 0, 100)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newConnected(t, defaults())
			for i := range 2 {
				_, err := b.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGList: []verbs.SGE{b.sge(0, 1<<20)}}})
				require.NoError(t, err)
			}
			asPeer(a, attack)
			var wc [8]verbs.WC
			eventually(t, func() bool {
				_, err := b.cq.Poll(wc[:])
				require.NoError(t, err)
				return b.qp.State() == verbs.QPErr
			})
			requireCut(t, b)
		})
	}
}

// TestWrongLap: an entry of another lap is no entry.
func TestWrongLap(t *testing.T) {
	a, b := newConnected(t, defaults())
	b.postRecv(1, 0)
	for _, lap := range []uint64{0, 2, 3, shm.LapMask} {
		asPeer(a, func(o *shm.Outbox) {
			atomic.StoreUint64(shm.LongAt(o.Data, o.EntriesOff()), 7|shm.EntryWriteImm<<32|lap<<shm.LapShift)
		})
		b.none()
	}
}

// TestHalfMessage: whatever becomes of a message that a peer has begun, its receive completes before the
// next one.
func TestHalfMessage(t *testing.T) {
	const opcode = shm.EntryOpcode << 32
	for name, attack := range map[string]func(a *side){
		"written over": func(a *side) {
			asPeer(a, func(o *shm.Outbox) {
				p := shm.LongAt(o.Data, o.EntriesOff())
				atomic.StoreUint64(p, *p&^opcode|shm.EntryWriteImm<<32)
				o.Publish(shm.EntryWriteImm, 0, 0)
			})
		},
		"refused": func(a *side) { linkOf(a).nak(nakLength) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newConnected(t, defaults())
			for i := range 2 {
				_, err := b.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGList: []verbs.SGE{b.sge(0, 100)}}})
				require.NoError(t, err)
			}
			asPeer(a, func(o *shm.Outbox) { o.Publish(shm.EntrySend, 0, 100) }) // all of its bytes are missing
			b.none()
			attack(a)
			for id := range uint64(2) {
				require.Equal(t, id, b.next().WRID)
			}
		})
	}
}

// TestLiesAboutReceives: a peer that claims more receives than its queue holds.
func TestLiesAboutReceives(t *testing.T) {
	a, b := newConnected(t, defaults())
	atomic.StoreUint32(b.qp.in.Posted, 1<<20)
	a.post(writeImm(b, 0, nil, 1))
	require.Equal(t, verbs.WCFatalErr, a.next().Status)
	requireCut(t, a)
}

// TestLiesAboutBounce: a peer that claims to have taken more than there was.
func TestLiesAboutBounce(t *testing.T) {
	a, b := newConnected(t, defaults())
	_, err := b.qp.PostRecv([]verbs.RecvWR{{SGList: []verbs.SGE{b.sge(0, 100)}}})
	require.NoError(t, err)
	atomic.StoreUint64(b.qp.in.Long(shm.OffEmptied), 5)
	a.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{a.sge(0, 100)}})
	require.Equal(t, verbs.WCFatalErr, a.next().Status)
	requireCut(t, a)
}

func TestHostileLinkMessages(t *testing.T) {
	key := []byte{msgRevoke, 1, 2, 3, 4}
	for name, c := range map[string]struct {
		msg []byte
		fds int
	}{
		"unknown":           {[]byte{200}, 0},
		"too short":         {key[:4], 0},
		"too long":          {append(key, 0), 0},
		"longer than any":   {make([]byte, maxLinkMsg+1), 0},
		"kick with more":    {[]byte{msgKick, 0}, 0},
		"descriptors":       {[]byte{msgKick}, 2},
		"key and fd":        {key, 1},
		"MR without fd":     {make([]byte, 1+shm.MROfferSize), 0},
		"MR nobody wants":   {append([]byte{msgMR}, shm.MROffer{Key: 1, Addr: 1 << 20, Size: 8}.Append(nil)...), 1},
		"MR of a socket":    {append([]byte{msgMR}, shm.MROffer{Key: 1, Addr: 1 << 20, Size: 8}.Append(nil)...), -1},
		"MR with two fds":   {append([]byte{msgMR}, shm.MROffer{Key: 1, Addr: 1 << 20, Size: 8}.Append(nil)...), 2},
		"many descriptors":  {[]byte{msgMR}, control.MaxFDs},
		"CM with an fd":     {[]byte{5}, 1},
		"zero":              {append([]byte{msgMR}, make([]byte, shm.MROfferSize)...), 1},
		"answer without fd": {append([]byte{msgMR}, make([]byte, shm.MROfferSize)...), 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newConnected(t, defaults())
			var fds []int
			for range c.fds {
				fds = append(fds, memfd(t, 8192, shm.WantSeals))
			}
			if c.fds < 0 {
				fds = append(fds, eventfd(t, 0))
			}
			defer control.CloseFDs(fds)
			if name == "MR without fd" {
				c.msg[0] = msgMR
			}
			require.NoError(t, linkOf(a).tx.Send(c.msg, fds))
			requireCut(t, b)
		})
	}

	// Answers to questions that were not asked change nothing.
	a, b := newConnected(t, defaults())
	for _, m := range [][]byte{{msgKicked}, {msgBounceReady}, {msgNoBounce}, {msgMR, 1, 0, 0, 0}, {msgRevoked, 1, 0, 0, 0}, {msgRevoke, 9, 9, 9, 9}, {msgUp}, {msgWake}, {msgLookup, 1, 1, 1, 1}, {msgNak, 99}} {
		require.NoError(t, linkOf(a).tx.Send(m, nil))
	}
	if a.qp.State() != verbs.QPErr { // an unknown NAK is still a NAK
		eventually(t, func() bool { return b.qp.State() == verbs.QPErr })
	}
}

// TestHostileRandomLink throws noise at a link; it ends in nothing worse than a
// closed connection.
func TestHostileRandomLink(t *testing.T) {
	seed := uint32(1)
	random := func() uint32 {
		seed ^= seed << 13
		seed ^= seed >> 17
		seed ^= seed << 5
		return seed
	}
	for range 100 {
		a, b := newConnected(t, defaults())
		l := linkOf(a)
		for range 20 {
			msg := make([]byte, 1+random()%40)
			for i := range msg {
				msg[i] = byte(random())
			}
			msg[0] = byte(control.FirstLinkMsg + random()%16)
			var fds []int
			if random()%4 == 0 {
				fds = append(fds, 0)
			}
			if l.tx.Send(msg, fds) != nil {
				break
			}
		}
		l.tx.Shutdown()
		<-b.gone
	}
}

// TestBadEntryBeforeAttach: what a peer has published before its offer was taken is looked at where nobody
// polls, and ends the connection if it makes no sense.
func TestBadEntryBeforeAttach(t *testing.T) {
	a, b := newSide(t, defaults()), newSide(t, defaults())
	require.NoError(t, b.cq.ReqNotify(false))
	sa, sb, err := control.SocketPair()
	require.NoError(t, err)
	a.offerTo(sa)
	b.offerTo(sb)
	require.NoError(t, a.attachFrom(sa))
	a.qp.mu.Lock()
	a.qp.peer.out.Publish(shm.EntryWriteImm, 0, 0) // there is no receive for it
	a.qp.mu.Unlock()
	require.NoError(t, b.attachFrom(sb))
	require.Equal(t, verbs.QPErr, b.qp.State())
	require.ErrorIs(t, (<-b.gone).err, verbs.ErrProtocol)
}

// TestFullEventfd: a peer that fills the eventfd of a channel does not keep others from waking it.
func TestFullEventfd(t *testing.T) {
	a, b := newConnected(t, defaults())
	fd := peerDoor(a)
	fill(t, fd)

	got := make(chan verbs.WC)
	go func() { got <- b.next() }()
	b.postRecv(2, 0)
	eventually(t, func() bool { return atomic.LoadUint32(b.qp.in.Armed) != shm.ArmedNot })
	a.post(writeImm(b, 0, nil, 3))
	require.EqualValues(t, 3, (<-got).ImmData)

	// The same for a completion of our own.
	fill(t, fd)
	go func() { got <- b.next() }()
	eventually(t, func() bool { return atomic.LoadUint32(b.qp.in.Armed) != shm.ArmedNot })
	wr := write(a, 0, nil)
	wr.Flags |= verbs.SendSignaled
	b.post(wr)
	<-got
}

// fill fills an eventfd to the last.
func fill(t *testing.T, fd int) {
	t.Helper()
	var buf [8]byte
	for bit := 63; bit >= 0; bit-- {
		shm.HostOrder.PutUint64(buf[:], 1<<bit)
		for {
			if _, err := unix.Write(fd, buf[:]); err != nil {
				require.Equal(t, unix.EAGAIN, err)
				break
			}
		}
	}
	require.False(t, writeEvent(fd), "the eventfd is not full")
}

func peerDoor(s *side) int {
	s.qp.mu.Lock()
	defer s.qp.mu.Unlock()
	return s.qp.peer.door.fd
}

// TestArmedNoise: a peer that plays with the armed word causes idle wake-ups at worst.
func TestArmedNoise(t *testing.T) {
	a, b := newConnected(t, defaults())
	b.postRecv(1, 0)
	for _, v := range []uint32{3, 1 << 31, shm.ArmedSolicited, shm.ArmedAny, shm.ArmedNot} {
		atomic.StoreUint32(a.qp.in.Armed, v)
		wr := write(a, 0, nil)
		wr.Flags |= verbs.SendSignaled
		b.post(wr)
		b.next()
	}
	require.NoError(t, b.cq.ReqNotify(false))
	asPeer(a, func(o *shm.Outbox) { atomic.StoreUint32(o.Armed, shm.ArmedNot) })
	require.NoError(t, b.ch.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	require.ErrorIs(t, b.ch.WaitRead(func() bool { return false }), os.ErrDeadlineExceeded)
	require.True(t, b.cq.takeEvent(), "an event too many is the price")
	b.none()
}

// TestFormerPeer: what a peer has said that is read only when the QP was reset and has another peer does nothing
// to that connection. It can see to it that it is read late.
func TestFormerPeer(t *testing.T) {
	c := defaults()
	for name, msg := range map[string][]byte{
		"NAK":       {msgNak, byte(nakAccess)},
		"no bounce": {msgNoBounce},
		"revoke":    {msgRevoke, 0, 0, 0, 0},
		"no MR":     {msgMR, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			former, b, next := newSide(t, c), newSide(t, c), newSide(t, c)
			sf, sb, err := control.SocketPair()
			require.NoError(t, err)
			former.offerTo(sf)
			b.offerTo(sb)
			require.NoError(t, former.attachFrom(sf))
			offer := make([]byte, control.MaxMessage)
			n, fds, err := sb.Recv(offer)
			require.NoError(t, err)
			reads, goOn := make(chan struct{}), make(chan struct{})
			require.NoError(t, b.qp.attach(newLink(b.qp, sb, sb, func([]byte) error { close(reads); <-goOn; return nil }, b.onHangup), offer[1:n], fds, nil))
			require.NoError(t, former.qp.toRTS(verbs.QPAttr{}))
			require.NoError(t, b.qp.toRTS(verbs.QPAttr{}))
			require.NoError(t, linkOf(former).tx.Signal(control.MsgRTU))
			<-reads
			unknown := next.mr.RKey() ^ 1
			if len(msg) == 5 {
				key := unknown
				if msg[0] == msgRevoke {
					key = next.mr.RKey()
				}
				shm.HostOrder.PutUint32(msg[1:], key)
			}
			require.NoError(t, linkOf(former).tx.Send(msg, nil))

			require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
			require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.QPInit, PortNum: 1, AccessFlags: c.access}, verbs.RCMaskInit))
			connect(t, b, next, c)
			next.qp.mu.Lock() // it does not answer now
			b.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: []byte{1}, RKey: unknown, RemoteAddr: next.mr.Addr()})
			close(goOn)
			<-b.gone
			b.qp.mu.Lock()
			asked, kept := b.qp.peer.asked, b.qp.peer.find(next.mr.RKey()) != nil
			state := b.qp.State()
			b.qp.mu.Unlock()
			next.qp.mu.Unlock()
			require.True(t, asked, "it still waits for the answer")
			require.True(t, kept, "it still has the MR")
			require.Equal(t, verbs.QPRTS, state)
			require.Equal(t, verbs.WCRemAccessErr, b.next().Status)
		})
	}
}

// TestClaimsToHaveWoken: a peer that says it has woken the receiver, and has not, keeps nobody else from doing so.
func TestClaimsToHaveWoken(t *testing.T) {
	needRemoteFences(t)
	for name, look := range map[string]func(a, b *side){
		"looked at again": func(_, b *side) { b.cq.lookAgain() },
		"after many entries": func(a, b *side) {
			asPeer(a, func(o *shm.Outbox) {
				for range unfencedStreak {
					o.Publish(shm.EntryWriteImm, 0, 0)
				}
			})
			b.qp.progressInbox() // as the peer asks for
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newConnected(t, defaults())
			b.postRecv(unfencedStreak, 0)
			require.NoError(t, b.cq.ReqNotify(true))
			tried, once := make(chan struct{}), false
			woken := make(chan error)
			require.NoError(t, b.ch.SetReadDeadline(time.Now().Add(patience)))
			go func() {
				woken <- b.ch.WaitRead(func() bool {
					if !once {
						once = true
						close(tried)
						return false
					}
					return b.cq.takeEvent()
				})
			}()
			<-tried
			asPeer(a, func(o *shm.Outbox) { atomic.StoreUint32(o.Armed, shm.ArmedNot) })
			look(a, b)
			require.NoError(t, <-woken)
		})
	}
}

// TestBadEntryBeforeReset: a QP that was reset stays so, though what its peer had published made no sense and
// whoever has found out comes to act on it only then.
func TestBadEntryBeforeReset(t *testing.T) {
	a, b := newConnected(t, defaults())
	asPeer(a, func(o *shm.Outbox) { o.Publish(0, 0, 0) })
	// As Poll does, which lets go of the lock in between.
	var wc [1]verbs.WC
	b.cq.mu.Lock()
	require.Zero(t, b.qp.receive(wc[:]))
	require.Equal(t, []*qp{b.qp}, b.cq.failed)
	b.cq.failed = nil
	b.cq.mu.Unlock()
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
	b.qp.receiveFailed()
	require.Equal(t, verbs.QPReset, b.qp.State())
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.QPInit, PortNum: 1}, verbs.RCMaskInit))
}

// TestReceivesOfAKick: a peer that has the completions of its messages made before anybody polls has no more of them
// wait than receives may be posted, however often the application fills the queue. Else they would overrun the CQ,
// and with it end all others of it.
func TestReceivesOfAKick(t *testing.T) {
	const depth = 4
	for name, setUp := range map[string]func(*sideConfig){
		"QP":  func(*sideConfig) {},
		"SRQ": func(c *sideConfig) { c.srq = depth },
	} {
		t.Run(name, func(t *testing.T) {
			c := defaults()
			c.depth, c.cqe = depth, 2*depth
			setUp(&c)
			a, b := newConnected(t, c)
			post := b.qp.PostRecv
			if b.qp.srq != nil {
				post = b.qp.srq.PostRecv
			}
			fillQueue := func() (n int) {
				for ; n < 3*depth; n++ {
					if _, err := post([]verbs.RecvWR{{SGList: []verbs.SGE{b.sge(0, 8)}}}); err != nil {
						require.ErrorIs(t, err, verbs.ErrQueueFull)
						break
					}
				}
				return n
			}
			require.Equal(t, depth, fillQueue())
			asPeer(a, func(o *shm.Outbox) {
				for range depth - 1 {
					o.Publish(shm.EntrySend|shm.EntryData, 0, 4)
				}
				o.Publish(shm.EntrySend, 0, 8) // its bytes do not come
			})
			b.qp.progressInbox() // as the peer asks for
			require.Zero(t, fillQueue())
			for range depth - 1 {
				require.Equal(t, verbs.WCSuccess, b.next().Status)
				require.Equal(t, 1, fillQueue())
			}
			b.qp.disconnect()
			require.Equal(t, verbs.WCWRFlushErr, b.next().Status)
			if b.qp.srq != nil {
				require.Equal(t, 1, fillQueue())
				return
			}
			for range depth - 1 {
				require.Equal(t, verbs.WCWRFlushErr, b.next().Status)
			}
			// What is posted in ERR is flushed, and has to be polled as well.
			require.Equal(t, depth, fillQueue())
			require.Equal(t, verbs.WCWRFlushErr, b.next().Status)
			require.Equal(t, 1, fillQueue())
		})
	}
}

// TestArmedByWhoWasCut: a peer that has lost its connection still has the memory mapped, and causes no event of the
// CQ by it, which others share.
func TestArmedByWhoWasCut(t *testing.T) {
	a, b := newConnected(t, defaults())
	b.postRecv(1, 0)
	armed := b.qp.in.Armed // as a peer keeps it
	asPeer(a, func(o *shm.Outbox) { o.Publish(0, 0, 0) })
	require.Equal(t, verbs.WCWRFlushErr, b.next().Status)
	requireCut(t, b)
	b.none()
	b.cq.takeEvent()
	require.NoError(t, b.cq.ReqNotify(false))
	atomic.StoreUint32(armed, shm.ArmedNot)
	require.False(t, b.cq.takeEvent())
	require.NoError(t, b.cq.ReqNotify(false))
	require.False(t, b.cq.takeEvent())
}
