package verbstest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testDevice(t *testing.T, s *suite) {
	s.run(t, "Attributes", func(e *env) {
		dev := e.ctx.Device()
		require.NotNil(e.t, dev)
		assert.NotEmpty(e.t, dev.Name())
		assert.NotEqual(e.t, verbs.TransportUnknown, dev.Transport())
		a := e.attr
		assert.GreaterOrEqual(e.t, a.MaxMRSize, uint64(1<<20))
		for name, v := range map[string]int{
			"MaxQP": a.MaxQP, "MaxQPWR": a.MaxQPWR, "MaxSGE": a.MaxSGE, "MaxCQ": a.MaxCQ,
			"MaxCQE": a.MaxCQE, "MaxMR": a.MaxMR, "MaxPD": a.MaxPD, "PhysPortCnt": a.PhysPortCnt,
			"MaxQPRdAtom": a.MaxQPRdAtom, "MaxQPInitRdAtom": a.MaxQPInitRdAtom,
		} {
			assert.Positive(e.t, v, name)
		}
		if e.can(verbs.CapSRQ) {
			assert.Positive(e.t, a.MaxSRQ)
			assert.Positive(e.t, a.MaxSRQWR)
			assert.Positive(e.t, a.MaxSRQSGE)
		}
	})

	s.run(t, "Port", func(e *env) {
		p, err := e.ctx.QueryPort(e.at.Port)
		require.NoError(e.t, err)
		assert.Equal(e.t, verbs.PortActive, p.State)
		assert.Positive(e.t, p.ActiveMTU.Bytes())
		assert.LessOrEqual(e.t, p.ActiveMTU, p.MaxMTU)
		assert.Positive(e.t, p.GIDTblLen)
		assert.GreaterOrEqual(e.t, p.MaxMsgSize, uint32(1<<20))
		for _, port := range []int{0, e.attr.PhysPortCnt + 1, 255} {
			_, err := e.ctx.QueryPort(uint8(port))
			assert.ErrorIs(e.t, err, verbs.ErrInvalid, "port %d", port)
		}
	})

	s.run(t, "GID", func(e *env) {
		p, err := e.ctx.QueryPort(e.at.Port)
		require.NoError(e.t, err)
		used := 0
		for i := range p.GIDTblLen {
			g, err := e.ctx.QueryGID(e.at.Port, i)
			require.NoError(e.t, err)
			if g.GID.IsZero() {
				continue
			}
			used++
			assert.Equal(e.t, i, g.Index)
			assert.Equal(e.t, e.at.Port, g.Port)
		}
		assert.Positive(e.t, used)
		for _, i := range []int{-1, p.GIDTblLen, 1 << 30} {
			_, err := e.ctx.QueryGID(e.at.Port, i)
			assert.ErrorIs(e.t, err, verbs.ErrInvalid, "index %d", i)
		}
		_, err = e.ctx.QueryGID(0, 0)
		assert.ErrorIs(e.t, err, verbs.ErrInvalid)
	})

	s.run(t, "OpenTwice", func(e *env) {
		other := s.open(e.t)
		assert.Equal(e.t, e.ctx.Device().Name(), other.ctx.Device().Name())
		assert.Equal(e.t, e.ctx.Device().GUID(), other.ctx.Device().GUID())
		// A QP of one Context reaches one of the other.
		p := e.pair(PairConfig{B: EndConfig{Context: other.ctx}})
		exchange(e.t, p)
	})

	s.run(t, "AsyncEventCancelled", func(e *env) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		errs := make(chan error, 1)
		go func() {
			_, err := e.ctx.AsyncEvent(ctx)
			errs <- err
		}()
		cancel(cause)
		require.ErrorIs(e.t, receive(e, errs), cause)
	})

	t.Run("AsyncEventClosed", func(t *testing.T) {
		ctx := s.cfg.Open(t)
		e := &env{t: t, cfg: &s.cfg, ctx: ctx}
		errs := make(chan error, 1)
		go func() {
			_, err := ctx.AsyncEvent(context.Background())
			errs <- err
		}()
		require.NoError(t, ctx.Close())
		require.ErrorIs(t, receive(e, errs), verbs.ErrClosed)
		_, err := ctx.AsyncEvent(context.Background())
		require.ErrorIs(t, err, verbs.ErrClosed)
	})
}

// receive takes one value from a goroutine of the test.
func receive[T any](e *env, c <-chan T) T {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.Timeout)
	defer cancel()
	select {
	case v := <-c:
		return v
	case <-ctx.Done():
		e.t.Fatalf("nothing came within %v", e.cfg.Timeout)
		panic("unreachable")
	}
}

// exchange sends a message each way.
func exchange(t testing.TB, p *Pair) {
	t.Helper()
	for i, dir := range [][2]*End{{p.A, p.B}, {p.B, p.A}} {
		from, to := dir[0], dir[1]
		fill(from.Mem[:100], i+1)
		to.Recv(7, 1000, 100)
		from.Post(sendWR(8, from.SGL(0, 100)))
		wc := to.ReceivedOK(7, verbs.WCRecv)
		require.EqualValues(t, 100, wc.ByteLen)
		sameBytes(t, from.Mem[:100], to.Mem[1000:1100])
		from.SentOK(8, verbs.WCSend)
	}
}
