package testseed

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A failing is a test that fails, and what it logs.
type failing struct {
	testing.TB
	cleanup func()
	log     string
}

func (f *failing) Cleanup(c func())                { f.cleanup = c }
func (f *failing) Failed() bool                    { return true }
func (f *failing) Logf(format string, args ...any) { f.log = fmt.Sprintf(format, args...) }

func TestFrom(t *testing.T) {
	const variable = "RDMANET_TEST_OF_SEEDS"
	f := &failing{TB: t}
	seed := From(f, variable)
	require.NotEqual(t, seed, From(t, variable))
	f.cleanup()
	require.Equal(t, fmt.Sprintf("%s=%d replays it", variable, seed), f.log)

	t.Setenv(variable, "0x10")
	require.EqualValues(t, 16, From(t, variable))
}
