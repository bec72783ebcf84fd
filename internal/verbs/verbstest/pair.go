package verbstest

import (
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// PairConfig says how a Pair is made. The zero value is complete.
type PairConfig struct {
	A, B EndConfig
	// Timeout bounds the waits of the Ends; 0 is thirty seconds.
	Timeout time.Duration
	// ByCM connects by the connection manager instead of by hand; nil does not.
	ByCM *ByCM
}

// A Pair is two QPs of one process, connected to each other in RTS.
type Pair struct {
	A, B *End
	byCM *ByCM
}

// NewPair makes a Pair by the manual bring-up, if cfg says nothing else. Everything is destroyed when the
// test ends.
func NewPair(t testing.TB, ctx verbs.Context, cfg PairConfig) *Pair {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	p := &Pair{A: newEnd(t, ctx, cfg.A, cfg.Timeout), B: newEnd(t, ctx, cfg.B, cfg.Timeout), byCM: cfg.ByCM}
	p.B.PSN = 0xfffff0 // wraps at 24 bits soon
	p.Connect()
	return p
}

// Connect brings both QPs from RESET to RTS.
func (p *Pair) Connect() {
	p.A.t.Helper()
	if p.byCM != nil {
		p.byCM.connect(p.A, p.B)
		return
	}
	p.A.Connect(p.B.Address())
	p.B.Connect(p.A.Address())
}

// Settle sends an empty message each way. A connection made by hand may come up in
// the background; after Settle both ends know each other, and no memory has changed.
func (p *Pair) Settle() {
	p.A.t.Helper()
	for _, dir := range [][2]*End{{p.A, p.B}, {p.B, p.A}} {
		dir[1].PostRecv(verbs.RecvWR{WRID: 1})
		dir[0].Post(sendWR(2, nil))
		dir[1].ReceivedOK(1, verbs.WCRecv)
		dir[0].SentOK(2, verbs.WCSend)
	}
}

// The requests below go from one End to the other, signalled.

func sendWR(id uint64, sgl []verbs.SGE) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sgl}
}

func oneSided(op verbs.WROpcode, id uint64, sgl []verbs.SGE, to *End, toOff int) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled, SGList: sgl,
		RemoteAddr: to.MR.Addr() + uint64(toOff), RKey: to.MR.RKey(),
	}
}

func writeWR(id uint64, sgl []verbs.SGE, to *End, toOff int) verbs.SendWR {
	return oneSided(verbs.WRRDMAWrite, id, sgl, to, toOff)
}

func writeImmWR(id uint64, sgl []verbs.SGE, to *End, toOff int, imm uint32) verbs.SendWR {
	wr := oneSided(verbs.WRRDMAWriteWithImm, id, sgl, to, toOff)
	wr.ImmData = imm
	return wr
}

func readWR(id uint64, sgl []verbs.SGE, from *End, fromOff int) verbs.SendWR {
	return oneSided(verbs.WRRDMARead, id, sgl, from, fromOff)
}

func unsignaled(wr verbs.SendWR) verbs.SendWR {
	wr.Flags &^= verbs.SendSignaled
	return wr
}

func withFlags(wr verbs.SendWR, f verbs.SendFlags) verbs.SendWR {
	wr.Flags |= f
	return wr
}

// fill writes a pattern that differs from place to place and from seed to seed.
func fill(b []byte, seed int) {
	x := uint32(seed)*2654435761 + 12345
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
}
