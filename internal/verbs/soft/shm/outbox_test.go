//go:build linux && (amd64 || arm64)

package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestCreditWraps(t *testing.T) {
	in, out := openBoth(t, 4)
	out.Next = 1<<32 - 2
	*in.Posted = 1<<32 - 2
	n, err := out.Ready()
	require.NoError(t, err)
	require.Zero(t, n)
	*in.Posted += 4
	n, err = out.Ready()
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
	*in.Posted++
	_, err = out.Ready()
	require.ErrorIs(t, err, verbs.ErrProtocol)
	*in.Posted = 1<<32 - 3
	_, err = out.Ready()
	require.ErrorIs(t, err, verbs.ErrProtocol, "fewer than before")
}

func TestTakeWake(t *testing.T) {
	in, out := openBoth(t, 4)
	for _, c := range []struct {
		armed     uint32
		solicited bool
		wake      bool
		left      uint32
	}{
		{ArmedNot, true, false, ArmedNot},
		{ArmedAny, false, true, ArmedNot},
		{ArmedAny, true, true, ArmedNot},
		{ArmedSolicited, false, false, ArmedSolicited},
		{ArmedSolicited, true, true, ArmedNot},
		{77, true, false, 77},
	} {
		*in.Armed = c.armed
		require.Equal(t, c.wake, out.TakeWake(c.solicited), "%+v", c)
		require.Equal(t, c.left, *in.Armed)
	}
}
