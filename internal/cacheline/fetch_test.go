package cacheline

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestFetchChangesNothing: memory stays as it is, and an address where there is none does no harm.
func TestFetchChangesNothing(t *testing.T) {
	b := make([]byte, 4*Size)
	for i := range b {
		b[i] = byte(i)
	}
	for _, fetch := range []func(unsafe.Pointer){Fetch, FetchToWrite} {
		fetch(nil)
		fetch(unsafe.Pointer(&b[17]))
		fetch(unsafe.Add(nil, 1<<30))
	}
	for i := range b {
		require.EqualValues(t, i, b[i])
	}
}
