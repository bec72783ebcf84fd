// Package testseed gives randomized tests their seeds.
package testseed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// From returns the seed that an environment variable says, or another one each time. A test that
// fails says how to replay it.
func From(t testing.TB, variable string) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(variable); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 0, 64)
		require.NoError(t, err, variable)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d replays it", variable, seed)
		}
	})
	return seed
}
