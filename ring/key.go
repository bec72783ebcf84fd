package ring

import "encoding/binary"

// Key is the rkey of a ring that has grown. On the wire it stands behind the Credit
// that grants the growth, little endian:
//
//	  16          20          24
//	+-----------+-----------+
//	| Size      | RKey      |
//	+-----------+-----------+
//
// It is read as one 64-bit word, beside the two of the Credit. Where it does not have
// the size that the Credit has, it belongs to another credit: the one with the key is
// being written, and its doorbell is still to come.
type Key struct {
	Size uint32 // of the ring that the rkey opens
	RKey uint32
}

// Word returns the value of the 64-bit little-endian word that k is on the wire.
func (k Key) Word() uint64 { return uint64(k.RKey)<<32 | uint64(k.Size) }

// KeyFromWord is the inverse of Word. It accepts everything.
func KeyFromWord(w uint64) Key { return Key{Size: uint32(w), RKey: uint32(w >> 32)} }

// Put writes k behind the Credit in b, which must have KeyedCreditLen bytes.
func (k Key) Put(b []byte) { binary.LittleEndian.PutUint64(b[CreditLen:KeyedCreditLen], k.Word()) }
