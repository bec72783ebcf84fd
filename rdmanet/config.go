package rdmanet

import (
	"fmt"
	"math/bits"

	"github.com/rdmanet/go-rdmanet/ring"
)

// Sizes of the receive ring and its queue. A connection begins with a ring of
// DefaultReadBuffer bytes and grows it by use, up to DefaultMaxReadBuffer within a
// host and DefaultMaxNetworkReadBuffer over a network, where more is on its way.
const (
	DefaultReadBuffer           = 16 << 10
	DefaultMaxReadBuffer        = 256 << 10
	DefaultMaxNetworkReadBuffer = 1 << 20
	DefaultRecvDepth            = 256

	MinReadBuffer = ring.MinSize  // 4 KiB
	MaxReadBuffer = ring.MaxSize  // 64 MiB
	MinRecvDepth  = ring.MinDepth // 64
	MaxRecvDepth  = ring.MaxDepth // 32,768
)

// sizes are the checked sizes of one end of a connection, with what else was asked of it.
type sizes struct {
	host  ringSizes
	net   ringSizes // over a network
	depth uint32    // receive work requests posted

	asked    bool // the sizes of rings were not left to this package
	path     pathOptions
	checksum bool // this end wants checksums

	// asynchronous treats the device as one that looks at the source after the
	// post, as hardware does; for tests.
	asynchronous bool
	// confirming treats the software device that is like iWARP as one of a network, whose
	// completions say only that TCP has the request; for tests.
	confirming bool
}

// ringSizes are those of a receive ring.
type ringSizes struct{ first, most uint32 }

// newSizes applies the defaults for zeros and checks the rest; rings are rounded
// up to a power of two. A ring that is given alone is not grown.
func newSizes(readBuffer, maxReadBuffer, depth int) (sizes, error) {
	network, maxNetwork := readBuffer, maxReadBuffer
	asked := readBuffer != 0 || maxReadBuffer != 0
	switch {
	case readBuffer == 0 && maxReadBuffer == 0:
		readBuffer, maxReadBuffer = DefaultReadBuffer, DefaultMaxReadBuffer
		network, maxNetwork = DefaultReadBuffer, DefaultMaxNetworkReadBuffer
	case readBuffer == 0:
		readBuffer = min(DefaultReadBuffer, maxReadBuffer)
		network = readBuffer
	case maxReadBuffer == 0:
		maxReadBuffer, maxNetwork = readBuffer, readBuffer
	}
	if depth == 0 {
		depth = DefaultRecvDepth
	}
	if err := checkRing("ReadBuffer", readBuffer); err != nil {
		return sizes{}, err
	}
	if err := checkRing("MaxReadBuffer", maxReadBuffer); err != nil {
		return sizes{}, err
	}
	if maxReadBuffer < readBuffer {
		return sizes{}, fmt.Errorf("MaxReadBuffer %d is smaller than ReadBuffer %d", maxReadBuffer, readBuffer)
	}
	if depth < MinRecvDepth || depth > MaxRecvDepth {
		return sizes{}, fmt.Errorf("RecvDepth %d is out of bounds: choose %d to %d", depth, MinRecvDepth, MaxRecvDepth)
	}
	return sizes{
		host:  ringSizes{roundUp(readBuffer), roundUp(maxReadBuffer)},
		net:   ringSizes{roundUp(network), roundUp(maxNetwork)},
		depth: uint32(depth),
		asked: asked,
	}, nil
}

func checkRing(name string, n int) error {
	if n < MinReadBuffer || n > MaxReadBuffer {
		return fmt.Errorf("%s %d is out of bounds: choose %d to %d bytes", name, n, MinReadBuffer, MaxReadBuffer)
	}
	return nil
}

func roundUp(n int) uint32 { return 1 << bits.Len32(uint32(n-1)) }
