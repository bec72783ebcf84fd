package verbstest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func inlineWR(op verbs.WROpcode, id uint64, data []byte, to *End, toOff int) verbs.SendWR {
	wr := oneSided(op, id, nil, to, toOff)
	wr.Flags |= verbs.SendInline
	wr.Inline = data
	return wr
}

func testInline(t *testing.T, s *suite) {
	for _, op := range []struct {
		op   verbs.WROpcode
		need verbs.DeviceCaps
	}{
		{verbs.WRSend, 0},
		{verbs.WRRDMAWrite, 0},
		{verbs.WRRDMAWriteWithImm, verbs.CapWriteImm},
	} {
		s.needs(t, op.need, op.op.String(), func(e *env) {
			if e.attr.MaxInlineData == 0 {
				e.t.Skip("MaxInlineData is 0")
			}
			want := min(200, e.attr.MaxInlineData)
			p := e.pair(PairConfig{A: EndConfig{Cap: verbs.QPCap{MaxInlineData: want}}})
			data := make([]byte, want) // of the Go heap, not registered
			for i, n := range []int{want, 1, 0, want / 2} {
				if op.op != verbs.WRRDMAWrite {
					p.B.Recv(uint64(i), 0, 256)
				}
				fill(data, i)
				sent := append([]byte(nil), data[:n]...)
				p.A.Post(inlineWR(op.op, uint64(i), data[:n], p.B, 0))
				clear(data) // it is ours again at once
				wc := p.A.Sent(1)[0]
				require.Equal(e.t, verbs.WCSuccess, wc.Status)
				if op.op != verbs.WRRDMAWrite {
					require.EqualValues(e.t, n, p.B.Received(1)[0].ByteLen)
				}
				require.True(e.t, bytes.Equal(sent, p.B.Mem[:n]), "%d bytes", n)
			}
		})
	}

	s.run(t, "ReusedWhileItWaits", func(e *env) {
		// Also a request that cannot execute yet has copied its data.
		waits := !e.cfg.has(DeviatesNoRNR)
		if e.attr.MaxInlineData == 0 {
			e.t.Skip("MaxInlineData is 0")
		}
		p := e.pair(PairConfig{})
		data := make([]byte, min(32, p.A.Cap.MaxInlineData))
		receives := func() {
			for i := range 5 {
				p.B.Recv(uint64(i), 64*i, 64)
			}
		}
		if !waits {
			receives()
		}
		var sent [][]byte
		for i := range 5 {
			fill(data, i)
			sent = append(sent, append([]byte(nil), data...))
			p.A.Post(inlineWR(verbs.WRSend, uint64(i), data, p.B, 0))
			clear(data)
		}
		if waits {
			receives()
		}
		for i := range 5 {
			p.B.ReceivedOK(uint64(i), verbs.WCRecv)
			p.A.SentOK(uint64(i), verbs.WCSend)
			sameBytes(e.t, sent[i], p.B.Mem[64*i:64*i+len(data)], "message %d", i)
		}
	})

	s.run(t, "BeyondTheLimit", func(e *env) {
		p := e.pair(PairConfig{})
		limit := p.A.Cap.MaxInlineData
		if limit > 1<<20 {
			e.t.Skipf("the QP was granted %d bytes", limit)
		}
		p.B.Recv(1, 0, 64)
		n, err := p.A.QP.PostSend([]verbs.SendWR{inlineWR(verbs.WRRDMAWrite, 2, make([]byte, limit+1), p.B, 0)})
		require.ErrorIs(e.t, err, verbs.ErrInvalid)
		require.Zero(e.t, n)
		drain(e, p.B.RecvCQ)
		p.A.Post(sendWR(3, p.A.SGL(0, 8)))
		p.B.ReceivedOK(1, verbs.WCRecv)
		p.A.SentOK(3, verbs.WCSend)
	})

	s.run(t, "Invalid", func(e *env) {
		p := e.pair(PairConfig{})
		both := inlineWR(verbs.WRRDMAWrite, 1, make([]byte, 8), p.B, 0)
		both.SGList = p.A.SGL(0, 8)
		for name, wr := range map[string]verbs.SendWR{
			"Inline and SGList": both,
			"READ":              inlineWR(verbs.WRRDMARead, 1, make([]byte, 8), p.B, 0),
		} {
			n, err := p.A.QP.PostSend([]verbs.SendWR{wr})
			assert.ErrorIs(e.t, err, verbs.ErrInvalid, name)
			assert.Zero(e.t, n, name)
		}
		exchange(e.t, p)
	})
}
