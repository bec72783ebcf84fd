//go:build linux && (amd64 || arm64)

package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestGeometry(t *testing.T) {
	for shift := uint8(0); shift <= MaxQueueShift; shift++ {
		g := Geometry{Shift: shift, BounceShift: BounceShift}
		require.NoError(t, g.Check())
		n := 1 << shift
		require.GreaterOrEqual(t, g.EntriesOff(), OffLens+4*n)
		require.Zero(t, g.EntriesOff()%lineSize)
		require.GreaterOrEqual(t, g.bounceOff(), g.EntriesOff()+entrySize*n)
		require.Zero(t, g.bounceOff()%PageSize)
		require.Equal(t, g.bounceOff()+g.BounceSize(), g.Size())
	}
}

func TestStatusWord(t *testing.T) {
	s := MakeStatus(StatusUp, verbs.AccessRemoteRead|verbs.AccessLocalWrite, 31)
	require.Equal(t, StatusUp, s.State())
	require.Equal(t, verbs.AccessRemoteRead|verbs.AccessLocalWrite, s.Access())
	require.EqualValues(t, 31, s.MinRNR())
}
