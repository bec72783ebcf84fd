package verbstest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// That keys of one PD are worth nothing in another is tested with the other
// violations, in remote.go and local.go.
func testPD(t *testing.T, s *suite) {
	s.run(t, "Context", func(e *env) {
		assert.Equal(e.t, e.ctx, e.pd().Context())
	})

	s.run(t, "BusyWithMR", func(e *env) {
		pd := e.pd()
		mr := e.mr(pd, e.memory(4096), everything)
		assert.Equal(e.t, pd, mr.PD())
		require.ErrorIs(e.t, pd.Close(), verbs.ErrBusy)
		require.NoError(e.t, mr.Close())
		require.NoError(e.t, pd.Close())
	})

	s.run(t, "BusyWithQP", func(e *env) {
		a := e.end(EndConfig{})
		assert.Equal(e.t, a.PD, a.QP.PD())
		require.NoError(e.t, a.MR.Close())
		require.ErrorIs(e.t, a.PD.Close(), verbs.ErrBusy)
		require.NoError(e.t, a.QP.Close())
		require.NoError(e.t, a.PD.Close())
	})

	s.needs(t, verbs.CapSRQ, "BusyWithSRQ", func(e *env) {
		pd := e.pd()
		srq := e.srq(pd, verbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})
		assert.Equal(e.t, pd, srq.PD())
		require.ErrorIs(e.t, pd.Close(), verbs.ErrBusy)
		require.NoError(e.t, srq.Close())
		require.NoError(e.t, pd.Close())
	})

	s.run(t, "UsableAfterBusy", func(e *env) {
		pd := e.pd()
		e.mr(pd, e.memory(4096), everything)
		require.ErrorIs(e.t, pd.Close(), verbs.ErrBusy)
		e.mr(pd, e.memory(4096), everything)
	})
}
