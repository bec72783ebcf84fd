//go:build linux && (amd64 || arm64)

package control

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMayTalk(t *testing.T) {
	own := uint32(os.Geteuid())
	require.True(t, MayTalk(own, false))
	require.True(t, MayTalk(0, false))
	require.False(t, MayTalk(own+1, false))
	require.True(t, MayTalk(own+1, true))
}
