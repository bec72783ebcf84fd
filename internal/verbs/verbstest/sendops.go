package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testSendOps makes QPs for some operations: those work, inline as well, and others are
// refused at the post, in the middle of a chain, too.
func testSendOps(t *testing.T, s *suite) {
	for _, c := range []struct {
		name string
		need verbs.DeviceCaps
		ops  verbs.SendOps
		bell verbs.WROpcode // which uses up a receive
	}{
		{"Write and SEND", 0, verbs.NewSendOps(verbs.WRRDMAWrite, verbs.WRSend), verbs.WRSend},
		{"Writes", verbs.CapWriteImm, verbs.NewSendOps(verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm), verbs.WRRDMAWriteWithImm},
	} {
		s.needs(t, c.need, c.name, func(e *env) {
			inline := min(128, e.attr.MaxInlineData)
			p := e.pair(PairConfig{A: EndConfig{SendOps: c.ops, Cap: verbs.QPCap{MaxSendWR: 64, MaxInlineData: inline}}})
			_, init, err := p.A.QP.Query()
			require.NoError(e.t, err)
			require.Equal(e.t, c.ops, init.SendOps)
			for _, refused := range []verbs.WROpcode{verbs.WRRDMARead, verbs.WRSendWithImm, verbs.WRLocalInv} {
				wrs := []verbs.SendWR{writeWR(1, p.A.SGL(0, 8), p.B, 0), readWR(2, p.A.SGL(0, 8), p.B, 0)}
				wrs[1].Opcode = refused
				n, err := p.A.QP.PostSend(wrs)
				require.Error(e.t, err, "%v", refused)
				require.Equal(e.t, 1, n, "%v", refused)
				if refused == verbs.WRRDMARead {
					require.ErrorIs(e.t, err, verbs.ErrInvalid)
				}
				p.A.SentOK(1, verbs.WCRDMAWrite)
			}
			// A whole queue of them, as long as may be.
			for i := range 64 {
				p.B.Recv(uint64(i), 512, 512)
			}
			data := make([]byte, inline)
			fill(data, 5)
			for i := range 64 {
				wr := inlineWR(c.bell, uint64(i), data, p.B, 512)
				if i < 63 {
					wr = unsignaled(wr)
				}
				p.A.Post(wr)
			}
			require.Equal(e.t, verbs.WCSuccess, p.A.Sent(1)[0].Status)
			for i, wc := range p.B.Received(64) {
				require.Equal(e.t, verbs.WCSuccess, wc.Status)
				require.EqualValues(e.t, i, wc.WRID)
			}
			sameBytes(e.t, data, p.B.Mem[512:512+inline])
		})
	}
}
