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
	for _, fetch := range []func(unsafe.Pointer, int){Fetch, FetchToWrite} {
		fetch(nil, 0)
		fetch(unsafe.Pointer(&b[17]), 0)
		fetch(unsafe.Pointer(&b[17]), len(b))
		fetch(unsafe.Add(nil, 1<<30), Size)
	}
	for i := range b {
		require.EqualValues(t, i, b[i])
	}
}
