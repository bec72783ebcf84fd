package verbstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// env is what one subtest works with: a Context of its own, so that asynchronous
// events and forgotten objects of one subtest do not trouble the next.
type env struct {
	t    *testing.T
	cfg  *Config
	ctx  verbs.Context
	attr verbs.DeviceAttr
	at   Location
}

// run runs one subtest with a fresh Context. That the Context closes at the end
// shows that everything made from it could be destroyed.
func (s *suite) run(t *testing.T, name string, f func(e *env)) {
	t.Run(name, func(t *testing.T) { f(s.open(t)) })
}

// needs is run for a subtest that has no meaning on a device without caps.
func (s *suite) needs(t *testing.T, caps verbs.DeviceCaps, name string, f func(e *env)) {
	s.run(t, name, func(e *env) {
		e.require(caps)
		f(e)
	})
}

func (s *suite) open(t *testing.T) *env {
	t.Helper()
	ctx := s.cfg.Open(t)
	require.NotNil(t, ctx, "Config.Open returned no Context")
	closeAtEnd(t, "Context", ctx)
	attr, err := ctx.QueryDevice()
	require.NoError(t, err)
	at, err := Locate(ctx)
	require.NoError(t, err)
	return &env{t: t, cfg: &s.cfg, ctx: ctx, attr: attr, at: at}
}

// rounds is how many of n rounds the device does in the time that a common one needs for n.
func (e *env) rounds(n int) int { return n / max(e.cfg.Slow, 1) }

func (e *env) can(caps verbs.DeviceCaps) bool { return e.attr.Caps&caps == caps }

func (e *env) require(caps verbs.DeviceCaps) {
	e.t.Helper()
	if !e.can(caps) {
		e.t.Skipf("the device lacks capability %#x (has %#x)", uint32(caps), uint32(e.attr.Caps))
	}
}

// closeAtEnd closes c when the test is over, unless the test did.
func closeAtEnd(t testing.TB, what string, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("close %s: %v", what, err)
		}
	})
}

func (e *env) pd() verbs.PD {
	e.t.Helper()
	pd, err := e.ctx.AllocPD()
	require.NoError(e.t, err)
	closeAtEnd(e.t, "PD", pd)
	return pd
}

func (e *env) memory(n int) []byte {
	e.t.Helper()
	return allocMemory(e.t, e.ctx, n)
}

func allocMemory(t testing.TB, ctx verbs.Context, n int) []byte {
	t.Helper()
	m, err := ctx.AllocMemory(n, n)
	require.NoError(t, err)
	closeAtEnd(t, "Memory", m)
	return m.Bytes()[:n:n]
}

func (e *env) mr(pd verbs.PD, buf []byte, access verbs.AccessFlags) verbs.MR {
	e.t.Helper()
	mr, err := pd.RegMR(buf, access)
	require.NoError(e.t, err)
	closeAtEnd(e.t, "MR", mr)
	return mr
}

func (e *env) channel() verbs.CompChannel {
	e.t.Helper()
	ch, err := e.ctx.CreateCompChannel()
	require.NoError(e.t, err)
	closeAtEnd(e.t, "CompChannel", ch)
	return ch
}

func (e *env) cq(cqe int, ch verbs.CompChannel) verbs.CQ {
	e.t.Helper()
	cq, err := e.ctx.CreateCQ(cqe, ch)
	require.NoError(e.t, err)
	closeAtEnd(e.t, "CQ", cq)
	return cq
}

func (e *env) srq(pd verbs.PD, attr verbs.SRQInitAttr) verbs.SRQ {
	e.t.Helper()
	srq, err := pd.CreateSRQ(&attr)
	require.NoError(e.t, err)
	closeAtEnd(e.t, "SRQ", srq)
	return srq
}

// pair makes two connected QPs; see NewPair.
func (e *env) pair(cfg PairConfig) *Pair {
	e.t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = e.cfg.Timeout
	}
	cfg.ByCM = e.byCM()
	return NewPair(e.t, e.ctx, cfg)
}

// byCM is how QPs are connected; nil: by hand.
func (e *env) byCM() *ByCM {
	if !e.cfg.has(DeviatesOnlyCM) {
		return nil
	}
	return &ByCM{Driver: e.cfg.Driver, Device: e.cfg.Device, Addr: e.cmAddr()}
}

// byHand leaves a test out that connects QPs by hand.
func (e *env) byHand() {
	e.t.Helper()
	if e.cfg.has(DeviatesOnlyCM) {
		e.t.Skip("only the connection manager connects QPs of this device")
	}
}

// waitingSends leaves a test out that is about SENDs for which the peer has no receive yet.
func (e *env) waitingSends() {
	e.t.Helper()
	if e.cfg.has(DeviatesNoRNR) {
		e.t.Skip("a SEND that finds no receive ends the connection")
	}
}

// ahead waits, on a device where a SEND must find its receive, until fewer than n messages are
// under way: done says how many have been taken. It may be called from any goroutine.
func (e *env) ahead(sent, n int, done *atomic.Int64) error {
	if !e.cfg.has(DeviatesNoRNR) {
		return nil
	}
	return e.behind(sent, n, done)
}

// behind waits until fewer than n of the first requests, sent in number, are not done. A test
// whose completions another goroutine reaps keeps them with it from overrunning a CQ of n:
// where DeviatesEarlySlots, the send queue does not. It may be called from any goroutine.
func (e *env) behind(sent, n int, done *atomic.Int64) error {
	deadline := time.Now().Add(e.cfg.Timeout)
	for turn := 0; int64(sent)-done.Load() >= int64(n); turn++ {
		if time.Now().After(deadline) {
			return fmt.Errorf("request %d waits, and %d are done, after %v", sent, done.Load(), e.cfg.Timeout)
		}
		pause(turn)
	}
	return nil
}

// delivered waits until the peer has what A was told has been sent: where a completion does
// not say so, an answer does, that to a READ.
func (e *env) delivered(p *Pair) {
	e.t.Helper()
	if e.cfg.has(DeviatesEarlySuccess) {
		p.A.Post(readWR(1<<40, p.A.SGL(len(p.A.Mem)-8, 8), p.B, len(p.B.Mem)-8))
		p.A.SentOK(1<<40, verbs.WCRDMARead)
	}
}

// byHandFrom is byHand for a test of a state that is reached by hand alone.
func (e *env) byHandFrom(state verbs.QPState) {
	e.t.Helper()
	if state == verbs.QPRTR || state == verbs.QPRTS || state == verbs.QPSQD {
		e.byHand()
	}
}

// end makes one QP in RESET with all it needs.
func (e *env) end(cfg EndConfig) *End {
	e.t.Helper()
	return newEnd(e.t, e.ctx, cfg, e.cfg.Timeout)
}

// event waits for an asynchronous event, passing over others, which a device may
// raise besides (COMM_EST).
func (e *env) event(want verbs.AsyncEventType, match func(verbs.AsyncEvent) bool) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.Timeout)
	defer cancel()
	var seen []string
	for {
		ev, err := e.ctx.AsyncEvent(ctx)
		if err != nil {
			e.t.Fatalf("no asynchronous event %v: %v; saw %v", want, err, seen)
		}
		if ev.Type == want && match(ev) {
			return
		}
		seen = append(seen, ev.Type.String())
	}
}

// noEvent requires that no event of the type comes for a while.
func (e *env) noEvent(unwanted verbs.AsyncEventType) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.Quiet)
	defer cancel()
	for {
		ev, err := e.ctx.AsyncEvent(ctx)
		if err != nil {
			require.ErrorIs(e.t, err, context.DeadlineExceeded)
			return
		}
		require.NotEqual(e.t, unwanted, ev.Type, "unexpected asynchronous event")
	}
}

// ofQP matches the events of one QP.
func ofQP(qp verbs.QP) func(verbs.AsyncEvent) bool {
	return func(ev verbs.AsyncEvent) bool { return ev.QP == qp }
}

// quiet requires that the CQs stay empty for a while.
func (e *env) quiet(cqs ...verbs.CQ) {
	e.t.Helper()
	var wc [1]verbs.WC
	for end := time.Now().Add(e.cfg.Quiet); time.Now().Before(end); pause(1 << 10) {
		for _, cq := range cqs {
			n, err := cq.Poll(wc[:])
			require.NoError(e.t, err)
			require.Zero(e.t, n, "unexpected completion %+v", wc[0])
		}
	}
}

// inState requires that the QP is in the state, or gets there in time.
func (e *env) inState(qp verbs.QP, want verbs.QPState) {
	e.t.Helper()
	eventually(e.t, e.cfg.Timeout, func() bool { return qp.State() == want },
		"QP %#x is in %v, not in %v", qp.QPN(), qp.State, want)
}
