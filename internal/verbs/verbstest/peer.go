package verbstest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A peer process brings up one QP whose other end is the suite's and does as it
// is told on its standard input, until it is killed. Both ways speak JSON values.

// peerHello is what the two processes tell each other first.
type peerHello struct {
	Address Address
	Addr    uint64
	RKey    uint32
	Dial    string // to the peer: connect by the CM to this address instead
	Number  bool   // with the QP of Address
}

// A Peer is what a peer process needs to play its part.
type Peer struct {
	Open   func() (verbs.Context, error)
	Driver driver.Driver // as in Config
	Device string
}

// peerOrder is one order to the peer process, which answers with a peerReport.
type peerOrder struct {
	Op    string // "send": Count messages; "stream": messages for ever, no answer
	Count int
}

type peerReport struct {
	Done int
	Err  string
}

const (
	peerEnv      = "VERBSTEST_PEER"
	peerTypeEnv  = "VERBSTEST_PEER_TYPE" // the type of its QP if that is not RC
	peerMemory   = 64 << 10
	peerReceives = 64
	peerPlaces   = 64 // of messages in the upper half of its memory
	messageSize  = 64
)

// PeerCommand returns a command that runs the test binary again as a peer; its
// TestMain must call ServePeerIfAsked.
func PeerCommand(t testing.TB) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), peerEnv+"=1")
	return cmd
}

// ServePeerIfAsked does not return in a process that PeerCommand started.
func ServePeerIfAsked(p Peer) {
	if os.Getenv(peerEnv) == "" {
		return
	}
	if err := p.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "verbstest peer:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve plays the peer process. It returns when in ends; what it made is left to
// the end of the process.
func (c Peer) Serve(in io.Reader, out io.Writer) error {
	ctx, err := c.Open()
	if err != nil {
		return err
	}
	p, err := newPeer(ctx)
	if err != nil {
		return err
	}
	enc, dec := json.NewEncoder(out), json.NewDecoder(in)
	if err := enc.Encode(peerHello{Address: p.address(), Addr: p.mr.Addr(), RKey: p.mr.RKey()}); err != nil {
		return err
	}
	var hello peerHello
	if err := dec.Decode(&hello); err != nil {
		return err
	}
	if hello.Dial != "" {
		if !hello.Number {
			p.qp = nil
		}
		p, err = c.dial(hello.Dial, p)
	} else {
		err = BringUp(p.qp, p.at, p.address(), hello.Address, DefaultConnAttr())
		if err == nil && p.qp.Type() == verbs.QPTypeUD {
			p.to = hello.Address
			av := p.at.AH(p.to.GID, p.to.LID)
			p.ah, err = p.qp.PD().CreateAH(&av)
		}
	}
	if err != nil {
		return err
	}
	if err := enc.Encode(peerReport{}); err != nil {
		return err
	}
	for {
		var order peerOrder
		if err := dec.Decode(&order); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		switch order.Op {
		case "send":
			report := peerReport{Done: order.Count}
			if err := p.send(order.Count); err != nil {
				report = peerReport{Err: err.Error()}
			}
			if err := enc.Encode(report); err != nil {
				return err
			}
		case "stream":
			if err := p.send(1 << 40); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unknown order %q", order.Op)
		}
	}
}

// peer is the QP of the peer process. It does without testing.
type peer struct {
	at  Location
	mem []byte
	mr  verbs.MR
	scq verbs.CQ
	qp  verbs.QP
	n   uint64 // messages sent
	ah  verbs.AH
	to  Address // where datagrams go
}

// newPeer makes a peer for the manual bring-up, in INIT.
func newPeer(ctx verbs.Context) (*peer, error) {
	at, err := Locate(ctx)
	if err != nil {
		return nil, err
	}
	p := &peer{at: at}
	err = p.make(ctx, func(pd verbs.PD, attr *verbs.QPInitAttr) (verbs.QP, error) {
		qp, err := pd.CreateQP(attr)
		if err != nil {
			return nil, err
		}
		init := at.InitAttr(DefaultConnAttr())
		return qp, qp.Modify(&init, verbs.UpMask(qp.Type(), verbs.QPInit))
	})
	return p, err
}

// dial connects to the suite's listener, with the QP that p has or, if it has none, one of
// the id.
func (c Peer) dial(addr string, p *peer) (*peer, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	events := make(chan driver.CMEvent, 16)
	id, err := c.Driver.CreateID(c.Device, func(ev driver.CMEvent) { events <- ev })
	if err != nil {
		return nil, err
	}
	await := func(want driver.CMEventType, err error) error {
		if err != nil {
			return err
		}
		if ev := <-events; ev.Type != want {
			return fmt.Errorf("event %v (%w) instead of %v", ev.Type, ev.Err, want)
		}
		return nil
	}
	if err := await(driver.CMAddrResolved, id.ResolveAddr(netip.AddrPort{}, to, defaultTimeout)); err != nil {
		return nil, err
	}
	if err := await(driver.CMRouteResolved, id.ResolveRoute(defaultTimeout)); err != nil {
		return nil, err
	}
	if p.qp != nil {
		return p, await(driver.CMEstablished, id.Connect(numbered(p.qp), defaultTimeout))
	}
	if err := p.make(id.Verbs(), id.CreateQP); err != nil {
		return nil, err
	}
	return p, await(driver.CMEstablished, id.Connect(connParam(nil), defaultTimeout))
}

// make makes memory, CQs and QP, and posts receives.
func (p *peer) make(ctx verbs.Context, create func(verbs.PD, *verbs.QPInitAttr) (verbs.QP, error)) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	m, err := ctx.AllocMemory(peerMemory, peerMemory)
	if err != nil {
		return err
	}
	p.mem = m.Bytes()[:peerMemory]
	if p.mr, err = pd.RegMR(p.mem, everything); err != nil {
		return err
	}
	if p.scq, err = ctx.CreateCQ(256, nil); err != nil {
		return err
	}
	rcq, err := ctx.CreateCQ(256, nil)
	if err != nil {
		return err
	}
	p.qp, err = create(pd, &verbs.QPInitAttr{
		Type: peerType(), SendCQ: p.scq, RecvCQ: rcq,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: peerReceives, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return err
	}
	for i := range peerReceives {
		sge := verbs.SGE{Addr: p.mr.Addr() + uint64(i*messageSize), Length: messageSize, LKey: p.mr.LKey()}
		if _, err := p.qp.PostRecv([]verbs.RecvWR{{SGList: []verbs.SGE{sge}}}); err != nil {
			return err
		}
	}
	return nil
}

// peerType is the type of a peer's QP.
func peerType() verbs.QPType {
	for _, typ := range []verbs.QPType{verbs.QPTypeUC, verbs.QPTypeUD} {
		if os.Getenv(peerTypeEnv) == typ.String() {
			return typ
		}
	}
	return verbs.QPTypeRC
}

func (p *peer) address() Address {
	return Address{QPN: p.qp.QPN(), PSN: 99, GID: p.at.GID, LID: p.at.LID}
}

// send sends n numbered messages, one after the other.
func (p *peer) send(n int) error {
	var wc [1]verbs.WC
	for range n {
		// A place of its own for every message: it may be read late.
		off := peerMemory/2 + int(p.n%peerPlaces)*messageSize
		binary.NativeEndian.PutUint64(p.mem[off:], p.n)
		sge := verbs.SGE{Addr: p.mr.Addr() + uint64(off), Length: messageSize, LKey: p.mr.LKey()}
		wr := sendWR(p.n, []verbs.SGE{sge})
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = p.ah, p.to.QPN, testQKey
		if _, err := p.qp.PostSend([]verbs.SendWR{wr}); err != nil {
			return err
		}
		for turn := 0; ; turn++ {
			k, err := p.scq.Poll(wc[:])
			if err != nil {
				return err
			}
			if k == 1 {
				break
			}
			pause(turn)
		}
		if err := check(wc[0], p.n, verbs.WCSend); err != nil {
			return err
		}
		p.n++
	}
	return nil
}
