//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A context has room for many CQs of a page and more each: those of soft-iWARP's library
// end at some eighty where nothing lies at the offset that it takes for a failure.
func TestManyCQs(t *testing.T) {
	ctx := openDevice(t)
	for i := range 300 {
		cq, err := ctx.CreateCQ(256, nil)
		require.NoError(t, err, "CQ %d", i)
		closeLater(t, cq)
	}
}
