package link

import (
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
)

// maxFetch is how much of a message is fetched while it is taken in. Of what lies behind it the processor
// sees by itself, when it is read, that its lines lie one behind the other.
const maxFetch = 2 << 10

// fetch asks for what a message of n bytes is about to bring. The processor that wrote it has it, and a Read
// wants it at once, as a rule: it comes over while the lane takes the message in. mu is held.
func (s *stream) fetch(n uint32) {
	if len(s.in.pieces) != 1 { // of two, one is the ring that the peer is about to move to
		return
	}
	ring, from := s.in.pieces[0].Bytes(), int(s.st.Receiver().Next())
	cacheline.Fetch(unsafe.Pointer(&ring[from]), min(int(n), maxFetch, len(ring)-from))
}
