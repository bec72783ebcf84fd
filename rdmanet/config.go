package rdmanet

import (
	"math/bits"

	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// Sizes of the receive ring, in bytes. A connection begins with a ring of DefaultReadBuffer,
// which grows as it is used, up to DefaultMaxReadBuffer, and shrinks again. What Dialer and
// ListenConfig ask for is from MinReadBuffer to MaxReadBuffer.
const (
	DefaultReadBuffer    = link.DefaultFirstRing // 1 KiB
	DefaultMaxReadBuffer = link.DefaultMaxRing   // 4 MiB

	MinReadBuffer = 4 << 10
	MaxReadBuffer = lane.MaxRing // 64 MiB
)

// Whose options a refused one is among.
const (
	optionsOfDialer = "Dialer"
	optionsOfListen = "ListenConfig"
)

// sizes are the checked sizes of one end of a connection, with what else was asked of it.
type sizes struct {
	first, most uint32 // bytes of the receive ring; 0 stands for the default

	path     pathOptions
	checksum bool // this end wants checksums
}

// newSizes checks what is not 0; rings are rounded up to a power of two. A ring that is
// given alone does not grow beyond that. owner, "Dialer" or "ListenConfig", is who is asked to choose again.
func newSizes(owner string, readBuffer, maxReadBuffer int) (sizes, error) {
	if maxReadBuffer == 0 {
		maxReadBuffer = readBuffer
	}
	first, err := checkRing(owner, "ReadBuffer", readBuffer)
	if err != nil {
		return sizes{}, err
	}
	most, err := checkRing(owner, "MaxReadBuffer", maxReadBuffer)
	if err != nil {
		return sizes{}, err
	}
	if maxReadBuffer < readBuffer {
		return sizes{}, invalid("%s.MaxReadBuffer %d is smaller than ReadBuffer %d", owner, maxReadBuffer, readBuffer)
	}
	return sizes{first: first, most: most}, nil
}

// checkRing is the size of a ring that n asks for, 0 if that is 0.
func checkRing(owner, option string, n int) (uint32, error) {
	if n == 0 {
		return 0, nil
	}
	if n < MinReadBuffer || n > MaxReadBuffer {
		return 0, invalid("%s.%s %d is out of bounds: choose %d to %d bytes", owner, option, n, MinReadBuffer, MaxReadBuffer)
	}
	return 1 << bits.Len32(uint32(n-1)), nil
}
