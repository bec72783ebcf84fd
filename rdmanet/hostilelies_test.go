package rdmanet

import (
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// A lie is something that the protocol forbids and a peer does all the same.
type lie struct {
	name string
	tell func(t *testing.T, p *wirePeer, victim *Conn)
	want error // what the victim's last call returns
	cfg  wireConfig
}

// lies about doorbells and the bytes behind them.
func dataLies() []lie {
	lies := []lie{
		{name: "data longer than the ring", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.data(p.victim.Size + 1)
		}},
		{name: "data longer than any ring", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.data(1<<27 - 1)
		}},
		{name: "data longer than the free space", want: ErrProtocol, tell: func(t *testing.T, p *wirePeer, v *Conn) {
			p.data(p.victim.Size - 1)
			p.data(2)
			// Of a victim that had read before the second came it would not be a lie.
			within(t, patience, "the second message", func() {
				for !v.term.failed() {
					look(v)
				}
			})
		}},
		{name: "data of length zero", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.data(0)
		}},
		{name: "data after good data", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.text("good")
			p.data(0)
		}},
		{name: "grown without a grant", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.grown(1)
		}},
		{name: "grown at the end without a grant", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, v *Conn) {
			v.ep.maxRing = v.recv.ring.Size()
			p.data(p.victim.Size)
			readFull(p.t, v, int(p.victim.Size)/2)
			p.grown(1)
		}},
		{name: "grown before the end", want: ErrProtocol, tell: func(t *testing.T, p *wirePeer, v *Conn) {
			require.NoError(t, v.SetReadBuffer(2*int(p.victim.Size)))
			p.data(p.victim.Size - 1)
			readFull(t, v, int(p.victim.Size)-1)
			p.grown(1)
		}},
		{name: "grown by more than was granted", want: ErrProtocol, tell: func(t *testing.T, p *wirePeer, v *Conn) {
			require.NoError(t, v.SetReadBuffer(2*int(p.victim.Size)))
			p.data(p.victim.Size)
			readFull(t, v, int(p.victim.Size))
			p.grown(p.victim.Size + 1)
		}},
		{name: "data after FIN", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.kind(ring.KindFIN)
			p.text("more")
		}},
		{name: "data after FIN was read", want: ErrProtocol, tell: func(t *testing.T, p *wirePeer, v *Conn) {
			p.kind(ring.KindFIN)
			_, err := v.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			p.text("more")
		}},
		// The stream was over in good order, and there is nobody to write to.
		{name: "data after Close", want: syscall.EPIPE, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.kind(ring.KindClose)
			p.text("more")
		}},
	}
	for _, imm := range []struct {
		name string
		imm  uint32
	}{
		{"nothing in the immediate", 0},
		{"kind 0 with a length", 5},
		{"kind 7", 7 << 28},
		{"kind 15", 15 << 28},
		{"credit with a length", 2<<28 | 1},
		{"credit with the grown bit", 2<<28 | 1<<27},
		{"FIN with a length", 3<<28 | 1},
		{"close with the grown bit", 4<<28 | 1<<27},
		{"reset with a length", 5<<28 | 1<<26},
		{"keepalive with a length", 6<<28 | 8},
		{"all ones", 1<<32 - 1},
	} {
		lies = append(lies, lie{name: imm.name, want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.bell(imm.imm)
		}})
	}
	return lies
}

// wrote is how many bytes the victim of a creditLie has written before it is told.
const wrote = 100

// creditLies are about what the victim sent, and what the liar's ring is.
func creditLies() []lie {
	honest := ring.Credit{Consumed: wrote / 2, Reposted: wireDepth + 1, Size: wireRing}
	var lies []lie
	for _, c := range []struct {
		name   string
		change func(c *ring.Credit)
	}{
		{"credit for bytes never sent", func(c *ring.Credit) { c.Consumed = wrote + 1 }},
		{"credit that goes back", func(c *ring.Credit) { c.Consumed-- }},
		{"credit for all bytes there are", func(c *ring.Credit) { c.Consumed = 1<<64 - 1 }},
		{"more receives than the queue holds", func(c *ring.Credit) { c.Reposted = wireDepth + 2 }},
		{"receives half the circle ahead", func(c *ring.Credit) { c.Reposted += 1 << 31 }},
		{"receives taken back", func(c *ring.Credit) { c.Reposted-- }},
		{"a ring of no size", func(c *ring.Credit) { c.Size = 0 }},
		{"a ring that is no power of two", func(c *ring.Credit) { c.Size = wireRing + 1 }},
		{"a ring that shrinks", func(c *ring.Credit) { c.Size = wireRing / 2 }},
		{"a ring beyond its maximum", func(c *ring.Credit) { c.Size = 2 * wireMaxRing }},
		{"a ring of all ones", func(c *ring.Credit) { c.Size = 1<<32 - 1 }},
	} {
		lies = append(lies, lie{name: c.name, want: ErrProtocol, tell: func(t *testing.T, p *wirePeer, v *Conn) {
			start(t, p, v, honest)
			told := honest
			c.change(&told)
			p.credit(told)
		}})
	}
	return append(lies,
		lie{name: "growth before the last was taken up", want: ErrProtocol, tell: func(t *testing.T, p *wirePeer, v *Conn) {
			grown := honest
			grown.Size = 2 * wireRing
			start(t, p, v, grown)
			grown.Size = 4 * wireRing
			p.credit(grown)
		}},
		lie{name: "growth taken back", want: ErrProtocol, tell: func(t *testing.T, p *wirePeer, v *Conn) {
			grown := honest
			grown.Size = 2 * wireRing
			start(t, p, v, grown)
			p.credit(honest)
		}},
		lie{name: "credit that was never written", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			if !p.writeImm {
				p.send([]byte{byte(ring.KindCredit) << 4, 0, 0, 0})
				return
			}
			p.kind(ring.KindCredit)
		}},
	)
}

// start has the victim write and take in an honest credit for a part of it.
func start(t testing.TB, p *wirePeer, v *Conn, honest ring.Credit) {
	t.Helper()
	_, err := v.Write(make([]byte, wrote))
	require.NoError(t, err)
	require.Equal(t, ring.Doorbell{Kind: ring.KindData, Len: wrote}, p.heard())
	p.credit(honest)
	within(t, patience, "the first credit", func() {
		for v.Stats().CreditsReceived == 0 && !v.term.failed() {
			look(v)
		}
	})
	require.False(t, v.term.failed(), "an honest credit was refused: %v", v.term.err())
}

// verbsLies use the wrong verb, or memory that is none of the liar's business.
func verbsLies() []lie {
	refused := func(wr verbs.SendWR, want ...verbs.WCStatus) func(*testing.T, *wirePeer, *Conn) {
		return func(t *testing.T, p *wirePeer, _ *Conn) {
			wr := wr
			wr.RemoteAddr += p.victim.Addr
			wr.RKey ^= p.victim.RKey
			if wr.Inline == nil {
				p.leaveOut(t, wr.Opcode)
				wr.SGList = p.scratch(8)
				p.mayRead()
			}
			status := p.status(wr)
			if p.iwarp { // the one that was refused has succeeded, and the next was flushed
				require.NotEqual(t, verbs.WCSuccess, status)
				return
			}
			require.Contains(t, want, status)
		}
	}
	inline := func(off uint64, n int, keyBits uint32) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: make([]byte, n), RemoteAddr: off, RKey: keyBits}
	}
	access := []verbs.WCStatus{verbs.WCRemAccessErr, verbs.WCRemInvReqErr}
	return []lie{
		{name: "SEND of nothing", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.send([]byte{})
		}},
		{name: "SEND that is no doorbell", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.send([]byte{byte(ring.KindKeepAlive) << 4, 0, 0})
		}},
		{name: "SEND with something behind a doorbell", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.send(append([]byte{byte(ring.KindKeepAlive) << 4, 0, 0, 0}, make([]byte, ring.CreditLen)...))
		}},
		{name: "SEND of a credit and a bit more", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.send(append([]byte{byte(ring.KindCredit) << 4, 0, 0, 0}, make([]byte, ring.CreditLen+1)...))
		}},
		{name: "SEND longer than all", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.send(make([]byte, sentLen+1))
		}},
		{name: "SEND longer than a doorbell", want: ErrProtocol, tell: func(_ *testing.T, p *wirePeer, _ *Conn) {
			p.send([]byte{0x20, 0, 0, 0, 0})
		}},
		{name: "WRITE before the memory", want: syscall.ECONNRESET, tell: refused(inline(^uint64(7), 8, 0), access...)},
		{name: "WRITE across the start", want: syscall.ECONNRESET, tell: refused(inline(^uint64(3), 8, 0), access...)},
		{name: "WRITE past the memory", want: syscall.ECONNRESET, tell: func(t *testing.T, p *wirePeer, v *Conn) {
			refused(inline(ring.DataOffset+uint64(p.victim.MaxSize)-7, 8, 0), access...)(t, p, v)
		}},
		{name: "WRITE far away", want: syscall.ECONNRESET, tell: refused(inline(1<<40, 8, 0), access...)},
		{name: "WRITE with a wrong key", want: syscall.ECONNRESET, tell: refused(inline(0, 8, 1<<31), access...)},
		{name: "READ", want: syscall.ECONNRESET, tell: refused(verbs.SendWR{Opcode: verbs.WRRDMARead}, access...)},
		{name: "fetch and add", want: syscall.ECONNRESET, tell: refused(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, CompareAdd: 1}, access...)},
	}
}

// leaveOut skips a test of an operation that is no lie on the device, or that it does not have.
func (p *wirePeer) leaveOut(t *testing.T, op verbs.WROpcode) {
	t.Helper()
	if op == verbs.WRRDMARead && p.iwarp {
		t.Skip("on iWARP each end may read the other's ring: docs/PROTOCOL.md, section 13")
	}
	attr, err := p.id.Verbs().QueryDevice()
	require.NoError(t, err)
	if op == verbs.WRAtomicFetchAndAdd && attr.Caps&verbs.CapAtomics == 0 {
		t.Skip("the device has no atomics")
	}
}
