package rdmanet

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestHalvesLieApart: what a reader and a writer write with every message is in lines of the
// cache of their own.
func TestHalvesLieApart(t *testing.T) {
	var c Conn
	readerEnd := unsafe.Offsetof(c.stream) + unsafe.Offsetof(c.recv) + unsafe.Sizeof(c.recv)
	writerBegin := unsafe.Offsetof(c.stream) + unsafe.Offsetof(c.send) + unsafe.Offsetof(c.send.mu)
	require.GreaterOrEqual(t, writerBegin, readerEnd+apart)
	// And both lie apart from what every call reads.
	require.GreaterOrEqual(t, unsafe.Offsetof(c.recv)+unsafe.Offsetof(c.recv.mu), unsafe.Offsetof(c.term)+apart)
}
