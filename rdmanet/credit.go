package rdmanet

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/ring"
)

// creditWords are the words of a credit with its key.
type creditWords [ring.KeyedCreditLen / 8]uint64

// takeCredit applies a credit of the peer.
func (w *sendHalf) takeCredit(words creditWords) error {
	credit := ring.CreditFromWords(words[0], words[1])
	w.mu.Lock()
	if credit.Size != w.ring.Size() && !w.ep.takeKey(credit.Size, ring.KeyFromWord(words[2])) {
		credit.Size = w.ring.Size()
	}
	err := w.ring.Update(credit)
	if err == nil {
		w.chunk = chunkFor(w.ring.Size())
	}
	w.mu.Unlock()
	return err
}

// chunkFor is the largest data message for a ring: a quarter, so that the reader
// copies out one part while the writer fills the next.
func chunkFor(size uint32) uint32 { return size / 4 }

// returnCredit tells the peer what was consumed and which receives were posted.
// Without a slot it is not lost: it stays due. The caller holds mu.
func (r *receiveHalf) returnCredit() {
	if r.wantGrow && !r.ring.Growing() {
		r.wantGrow = false
		r.grow(min(r.ring.Size()*growthStep, r.ep.maxRing))
	}
	credit := r.ring.Credit()
	r.s.send.mu.Lock()
	block := r.s.send.control[:r.ep.creditLen()]
	credit.Put(block)
	if r.ep.rekeys {
		ring.Key{Size: credit.Size, RKey: r.ep.ringKey()}.Put(block)
	}
	if r.s.send.postControl(ring.KindCredit, block) {
		r.ring.CreditSent(credit)
		r.reported = credit.Consumed
		r.s.send.stats.creditsSent++
	}
	r.s.send.mu.Unlock()
}

// creditLen is the length of a credit on the wire.
func (e *endpoint) creditLen() int {
	if e.rekeys {
		return ring.KeyedCreditLen
	}
	return ring.CreditLen
}

// creditWords reads the credit that was sent or, where doorbells ride on
// WRITE_WITH_IMM, the credit block, which the peer writes.
func (e *endpoint) creditWords(sent []byte) (words creditWords) {
	if e.writeImm {
		for i := range words {
			words[i] = e.creditWord(i)
		}
		return words
	}
	for i := range len(sent) / 8 {
		words[i] = binary.LittleEndian.Uint64(sent[8*i:])
	}
	return words
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// creditWord reads a word of the credit block, which the peer writes.
func (e *endpoint) creditWord(i int) uint64 {
	p := unsafe.Pointer(&e.memory.Bytes()[ring.CreditOffset+8*i])
	w := atomic.LoadUint64((*uint64)(p))
	if !littleEndian {
		w = bits.ReverseBytes64(w)
	}
	return w
}
