//go:build linux && (amd64 || arm64)

package soft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// The fuzz targets of this file are all that a peer can do to an end of the software
// device: its offer, what it says on the link, and the memory that both have mapped. A
// target reads its input as a program.

// program is an input that is used up from its front; beyond its end are zeros.
type program []byte

func (p *program) next() (b byte) {
	if len(*p) > 0 {
		b, *p = (*p)[0], (*p)[1:]
	}
	return b
}

func (p *program) bytes(n int) []byte {
	b := make([]byte, n)
	*p = (*p)[copy(b, *p):]
	return b
}

func (p *program) word() uint32 { return binary.LittleEndian.Uint32(p.bytes(4)) }
func (p *program) long() uint64 { return binary.LittleEndian.Uint64(p.bytes(8)) }

// descriptor makes one of the kinds that a peer may send, right and wrong ones.
func descriptor(t *testing.T, kind byte, size int64) int {
	switch kind % 8 {
	case 0:
		return memfd(t, size, shm.WantSeals)
	case 1:
		return eventfd(t, unix.EFD_NONBLOCK)
	case 2:
		return memfd(t, int64(shm.PageSize), shm.WantSeals)
	case 3:
		return memfd(t, size, 0)
	case 4:
		return memfd(t, size, unix.F_SEAL_SHRINK)
	case 5:
		return eventfd(t, 0)
	case 6:
		return pipeEnd(t)
	default:
		return memfd(t, size, shm.WantSeals|unix.F_SEAL_FUTURE_WRITE)
	}
}

// FuzzOffer opens offers. What is opened is as large as it says, and all of it can be
// touched; nothing is left of what is refused.
func FuzzOffer(f *testing.F) {
	g := shm.GeometryFor(16)
	header := func(flags, mrs byte) []byte {
		return append([]byte{offerVersion, flags, g.Shift, g.BounceShift, 1, 0, 0, 0, mrs}, make([]byte, offerHeader-9)...)
	}
	mr := shm.MROffer{Key: 1, Access: verbs.AccessRemoteWrite, Addr: uint64(shm.PageSize), Size: uint64(shm.PageSize)}
	f.Add(header(0, 0), []byte{0})
	f.Add(header(offerEvent, 0), []byte{0, 1})
	f.Add(header(offerEvent|offerSRQ, 0), []byte{0, 1, 2})
	f.Add(mr.Append(header(offerEvent, 1)), []byte{0, 1, 2})
	f.Add(header(0, 0), []byte{3})
	f.Add(mr.Append(header(0, 1)), []byte{0, 7})
	f.Fuzz(func(t *testing.T, blob, kinds []byte) {
		if len(kinds) > control.MaxFDs {
			return
		}
		files, mapped := len(leaktest.OpenFiles()), shm.AllMapped.Load()
		size := int64(g.Size())
		if len(blob) > 3 {
			if g := (shm.Geometry{Shift: blob[2], BounceShift: blob[3]}); g.Check() == nil {
				size = int64(g.Size())
			}
		}
		var fds []int
		for _, kind := range kinds {
			fds = append(fds, descriptor(t, kind, size))
		}
		p, err := openOffer(blob, fds)
		if err == nil {
			require.GreaterOrEqual(t, len(p.out.Data), p.out.Size())
			touch(p.out.Data[:min(len(p.out.Data), 64<<20)])
			for _, m := range p.mrs {
				require.LessOrEqual(t, len(m.Data), maxMRSize)
				_, _ = m.Data[0], m.Data[len(m.Data)-1]
			}
			if p.srq != nil {
				p.srq.ready(&p.out)
			}
			p.unmap()
		} else if !errors.Is(err, verbs.ErrProtocol) && !errors.Is(err, verbs.ErrNoMemory) {
			t.Errorf("an error of no type: %v", err)
		}
		require.LessOrEqual(t, len(leaktest.OpenFiles()), files)
		require.Equal(t, mapped, shm.AllMapped.Load())
	})
}

// touch reads a byte of every page.
func touch(b []byte) (sum byte) {
	for i := 0; i < len(b); i += shm.PageSize {
		sum += b[i]
	}
	return sum
}

// FuzzLink has a peer say anything on the link of a connection: it ends, and leaves
// nothing.
func FuzzLink(f *testing.F) {
	say := func(fds byte, msg ...byte) []byte { return append([]byte{byte(len(msg)), fds}, msg...) }
	f.Add(say(0, msgKick))
	f.Add(bytes.Join([][]byte{say(0, msgLookup, 1, 2, 3, 4), say(0, msgRevoke, 1, 2, 3, 4), say(0, msgBounce)}, nil))
	f.Add(bytes.Join([][]byte{say(0, msgUp), say(0, msgKicked), say(0, msgBounceReady), say(0, msgNoBounce), say(0, msgWake)}, nil))
	f.Add(say(0, msgNak, 1))
	f.Add(say(1, append([]byte{msgMR}, make([]byte, shm.MROfferSize)...)...))
	f.Add(say(0, control.MsgRTU, control.WireVersion))
	f.Add(append(say(0, msgBye), say(0, msgKick)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, v := newConnected(t, defaults())
		// The QP under test waits for an MR and for the bounce area, and has receives.
		v.postRecv(4, 1)
		v.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: []byte{1}, RKey: a.mr.RKey() ^ 1, RemoteAddr: a.mr.Addr()})
		l := linkOf(a)
		for p := program(b); len(p) > 0; {
			n, k := int(p.next())%64, int(p.next())%4
			var fds []int
			for range k {
				fds = append(fds, descriptor(t, p.next(), int64(shm.PageSize)))
			}
			err := l.tx.Send(p.bytes(max(n, 1)), fds)
			control.CloseFDs(fds)
			if err != nil {
				break
			}
		}
		l.tx.Shutdown()
		select {
		case h := <-v.gone:
			if h.err != nil && !errors.Is(h.err, verbs.ErrProtocol) && !errors.Is(h.err, verbs.ErrPeerGone) && !errors.Is(h.err, verbs.ErrNoMemory) {
				t.Errorf("an error of no type: %v", h.err)
			}
		case <-time.After(patience):
			t.Fatal("the connection goes on")
		}
		require.Equal(t, verbs.QPErr, v.qp.State())
	})
}

// FuzzInbox has a peer write anything to the inbox of an end that polls: what completes
// is of receives that were posted, and no byte lands elsewhere.
func FuzzInbox(f *testing.F) {
	entry := func(op byte, imm uint32, w1 uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32([]byte{0, op}, imm), w1)
	}
	word := func(op byte, at uint32, v uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32([]byte{op}, at), v)
	}
	f.Add(entry(shm.EntryWriteImm, 7, 0))
	f.Add(entry(shm.EntrySend|shm.EntryData, 7, 4|0xdddddddd<<32))
	f.Add(bytes.Join([][]byte{{4}, word(2, shm.OffFilled, 100), entry(shm.EntrySend, 0, 100)}, nil))
	f.Add(bytes.Join([][]byte{{4}, word(2, shm.OffFilled, 1<<40), entry(shm.EntrySend, 0, 1<<30)}, nil))
	f.Add(bytes.Join([][]byte{entry(shm.EntrySend, 0, 100), word(1, 0, 1<<shm.LapShift|shm.EntryWriteImm<<32)}, nil))
	f.Add(bytes.Join([][]byte{entry(shm.EntrySendInv, 1, 0), word(1, 3, 1<<shm.LapShift), {3}}, nil))
	f.Add(bytes.Join([][]byte{{8}, entry(shm.EntrySendInv|shm.EntryData, 1<<31, 0), {5}, {8, 7}}, nil))
	f.Add(bytes.Join([][]byte{entry(shm.EntrySend, 0, 100), {5, 6, byte(nakLength)}}, nil))
	f.Add(bytes.Join([][]byte{{4, 8}, word(2, shm.OffFilled, 50), entry(shm.EntrySend, 0, 100), {5, 3, 3, 5}, word(2, shm.OffArmed, 0), {7}}, nil))
	f.Add(bytes.Join([][]byte{word(2, shm.OffArmed, 2), entry(shm.EntrySendImm|shm.EntrySolicited, 1, 0), word(2, shm.OffEmptied, ^uint64(0))}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		const first, taken, size = 4096, 16, 256
		c := defaults()
		c.memory = first + taken*size + 4096
		c.depth, c.cqe = taken, 2*taken
		a, v := newConnected(t, c)
		// An MR that the peer may invalidate.
		other, err := v.pd.RegMR(v.bytes(0, 64), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		require.NoError(t, err)
		defer other.Close()
		for i := range v.mem.Bytes() {
			v.mem.Bytes()[i] = 0xaa
		}
		posted := 0
		post := func() {
			_, err := v.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(posted), SGList: []verbs.SGE{v.sge(first+posted%taken*size, size)}}})
			if err == nil {
				posted++
			} else {
				require.ErrorIs(t, err, verbs.ErrQueueFull)
			}
		}
		for range 4 {
			post()
		}
		completed := 0
		poll := func() {
			var wc [8]verbs.WC
			n, err := v.cq.Poll(wc[:])
			require.NoError(t, err)
			for i := range wc[:n] {
				require.Equal(t, uint64(completed), wc[i].WRID)
				if wc[i].Status == verbs.WCSuccess && wc[i].Opcode == verbs.WCRecv {
					require.LessOrEqual(t, wc[i].ByteLen, uint32(size))
				}
				completed++
			}
			require.LessOrEqual(t, completed, posted)
		}
		for p := program(b); len(p) > 0; {
			polls := true
			switch op := p.next(); op % 9 {
			case 0:
				kind, imm, w1 := p.next(), p.word(), p.long()
				if imm == 1<<31 {
					imm = other.RKey()
				}
				asPeer(a, func(o *shm.Outbox) { o.Publish(uint64(kind), imm, w1) })
			case 1:
				at, w := p.word(), p.long()
				asPeer(a, func(o *shm.Outbox) {
					atomic.StoreUint64(shm.LongAt(o.Data, o.EntriesOff()+int(at&(2<<o.Shift-1))*8), w)
				})
			case 2:
				at, w := p.word(), p.long()
				asPeer(a, func(o *shm.Outbox) { atomic.StoreUint64(o.Long(int(at)%shm.OffLens&^7), w) })
			case 3:
				post()
			case 4:
				require.NoError(t, v.qp.commitBounce())
			case 5: // msgKick
				v.qp.progressInbox()
				polls = false
			case 6:
				v.qp.gotNak(linkOf(v), nakCode(p.next()))
			case 7:
				v.cq.lookAgain()
				polls = false
			case 8:
				require.NoError(t, v.cq.ReqNotify(op&16 != 0))
				polls = false
			}
			if polls {
				poll()
			}
			if v.qp.State() == verbs.QPErr {
				break
			}
		}
		require.NoError(t, v.qp.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
		for before := -1; completed != before; {
			before = completed
			poll()
		}
		require.Equal(t, posted, completed, "each receive completes once")
		for i, b := range v.mem.Bytes() {
			if b != 0xaa && (i < first || i >= first+taken*size) {
				t.Fatalf("byte %d, which is in no receive, is %#x", i, b)
			}
		}
	})
}

// FuzzPeerWords has a peer write anything to the words of its own inbox, by which an end
// that sends goes: what it sends lands in the peer's memory, or the connection ends.
func FuzzPeerWords(f *testing.F) {
	word := func(at uint32, v uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32([]byte{0}, at), v)
	}
	f.Add([]byte{1, 2, 3, 4, 1, 2, 3, 4})
	f.Add(append(word(shm.OffPosted, 1<<20), 1, 2))
	f.Add(append(word(shm.OffStatus&^7, uint64(shm.StatusError)<<32), 1, 2))
	f.Add(append(word(shm.OffEmptied, 1<<40), 4, 4, 4))
	f.Add(append(word(shm.OffLens, ^uint64(0)), 3, 3))
	f.Add(append(word(shm.OffArmed, shm.ArmedUnfenced), 1, 2))
	f.Add([]byte{0, 6, 7, 8, 9, 10, 0, 10, 1, 9, 10, 2, 10, 3, 6, 2})
	f.Add(append([]byte{0, 9}, append(word(shm.OffStatus&^7, uint64(shm.StatusDown)<<32), 10, 0, 10, 1, 3, 11, 3)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := program(b)
		c := defaults()
		if p.next()&1 != 0 {
			c.srq = 16
		}
		v, a := newConnected(t, c)
		recv := []verbs.RecvWR{{SGList: []verbs.SGE{a.sge(0, 512<<10)}}}
		for range 4 {
			var err error
			if a.qp.srq != nil {
				_, err = a.qp.srq.PostRecv(recv)
			} else {
				_, err = a.qp.PostRecv(recv)
			}
			require.NoError(t, err)
		}
		require.NoError(t, a.qp.commitBounce())
		posted, completed := uint64(0), uint64(0)
		poll := func() {
			var wc [4]verbs.WC
			n, err := v.cq.Poll(wc[:])
			require.NoError(t, err)
			for i := range wc[:n] {
				require.Equal(t, completed, wc[i].WRID)
				completed++
			}
			require.LessOrEqual(t, completed, posted)
		}
		l := linkOf(v)
		for n := 0; len(p) > 0 && n < 100; n++ {
			var wr verbs.SendWR
			switch op := p.next(); op % 12 {
			case 0:
				at, w := p.word(), p.long()
				in := a.qp.in
				if off := int(at) % (shm.OffLens + 4<<in.Shift) &^ 7; off < shm.OffLens {
					atomic.StoreUint64(in.Long(off), w)
				} else {
					atomic.StoreUint64(shm.LongAt(in.Data, shm.OffLens+off-shm.OffLens), w)
				}
				continue
			case 1:
				wr = write(a, int(op), []byte("written"))
			case 2:
				wr = writeImm(a, int(op), []byte("announced"), uint32(op))
			case 3:
				wr = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("four")}
			case 4:
				wr = verbs.SendWR{Opcode: verbs.WRSendWithImm, SGList: []verbs.SGE{v.sge(0, 5000)}}
			case 5:
				at, w := p.word(), p.long()
				if a.qp.srq != nil {
					atomic.StoreUint64(shm.LongAt(a.qp.srq.page, int(at)%128&^7), w)
				}
				continue
			case 6:
				wr = verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: []verbs.SGE{v.sge(0, 100)}, RemoteAddr: a.mr.Addr(), RKey: a.mr.RKey()}
			case 7:
				wr = verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGList: []verbs.SGE{v.sge(0, 8)}, RemoteAddr: a.mr.Addr(), RKey: a.mr.RKey()}
			case 8:
				wr = verbs.SendWR{Opcode: verbs.WRSendWithInv, Flags: verbs.SendInline, Inline: []byte("gone"), ImmData: a.mr.RKey()}
			case 9: // in parts
				wr = verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{v.sge(0, 400<<10)}}
			case 10: // what the link is told
				switch p.next() % 6 {
				case 0:
					v.qp.gotKicked(l)
				case 1:
					v.qp.gotBounce(l, true)
				case 2:
					v.qp.dropMR(l, a.mr.RKey())
				case 3:
					v.qp.gotNoMR(l, a.mr.RKey())
				case 4:
					v.qp.retry()
				case 5:
					v.qp.gotBounce(l, false)
				}
				poll()
				continue
			case 11:
				v.qp.timeout()
				continue
			}
			wr.WRID = posted
			wr.Flags |= verbs.SendSignaled
			if _, err := v.qp.PostSend([]verbs.SendWR{wr}); err != nil {
				require.ErrorIs(t, err, verbs.ErrQueueFull)
			} else {
				posted++
			}
			poll()
		}
		require.NoError(t, v.qp.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
		for before := completed - 1; completed != before; {
			before = completed
			poll()
		}
		require.Equal(t, posted, completed, "each request completes once")
	})
}

// FuzzShared opens what a listener shares with another.
func FuzzShared(f *testing.F) {
	f.Add([]byte{control.MsgSHARED, control.WireVersion, shareSocket}, []byte{0})
	f.Add([]byte{control.MsgSHARED, control.WireVersion, shareSocket | shareSlot | shareCompanion}, []byte{0, 1, 2})
	f.Add(control.AppendREJ(nil, driver.RejectDenied, nil), []byte{})
	f.Add(control.AppendREJ(nil, driver.RejectNone, nil), []byte{})
	// Fuzzing runs in several processes at once, and a name is held by one.
	name := control.BoundName(soft0.name, "127.0.0.1", 65535) + "/fuzz" + strconv.Itoa(os.Getpid())
	f.Fuzz(func(t *testing.T, b, kinds []byte) {
		if len(kinds) > control.MaxFDs {
			return
		}
		files := len(leaktest.OpenFiles())
		var fds []int
		for _, kind := range kinds {
			if kind == 0 && len(fds) == 0 { // the right one
				fd, err := control.HoldName(name)
				require.NoError(t, err)
				require.NoError(t, unix.Listen(fd, 1))
				fds = append(fds, fd)
				continue
			}
			fds = append(fds, descriptor(t, kind, int64(shm.PageSize)))
		}
		claim, companion, err := parseShared(b, fds, name)
		if err != nil {
			refused := len(b) > 0 && b[0] == control.MsgREJ && (errors.Is(err, unix.EACCES) || errors.Is(err, verbs.ErrPeerGone))
			require.True(t, errors.Is(err, verbs.ErrProtocol) || refused, "%v", err)
			control.CloseFDs(fds)
		} else {
			claim.release()
			if companion != nil {
				require.NoError(t, companion.Close())
			}
		}
		require.LessOrEqual(t, len(leaktest.OpenFiles()), files)
	})
}
