package ring

import "encoding/binary"

// Credit is what the owner of a ring reports to its peer. All counts are totals
// since the connection began, so a later credit replaces an earlier one and none
// of them needs to be seen.
//
// On the wire, little endian:
//
//	  0                8           12          16
//	+----------------+-----------+-----------+
//	| Consumed       | Reposted  | Size      |
//	+----------------+-----------+-----------+
//
// The peer's next credit may overwrite the block while it is read. Each half has
// to be read as one 64-bit word (see CreditFromWords); a pair of halves from two
// credits is still a credit that Sender.Update accepts, and the doorbell of the
// newer one is still to come.
type Credit struct {
	Consumed uint64 // bytes the application took out of the ring
	Reposted uint32 // receive WRs posted, the initial ones included, modulo 2^32
	Size     uint32 // ring size granted
}

// Words returns the values of the two 64-bit little-endian words that c is on the
// wire.
func (c Credit) Words() (w0, w1 uint64) {
	return c.Consumed, uint64(c.Size)<<32 | uint64(c.Reposted)
}

// CreditFromWords is the inverse of Words. It accepts everything; Sender.Update
// judges.
func CreditFromWords(w0, w1 uint64) Credit {
	return Credit{Consumed: w0, Reposted: uint32(w1), Size: uint32(w1 >> 32)}
}

// Put writes c to the first CreditLen bytes of b, which must have them.
func (c Credit) Put(b []byte) {
	_ = b[CreditLen-1]
	w0, w1 := c.Words()
	binary.LittleEndian.PutUint64(b, w0)
	binary.LittleEndian.PutUint64(b[8:], w1)
}

// ParseCredit reads a credit from the first CreditLen bytes of b. It returns an
// error matching ErrProtocol when b is shorter or the size is one that no ring
// has, as in a block that was never written. Whether the counts make sense is for
// Sender.Update to say.
func ParseCredit(b []byte) (Credit, error) {
	if len(b) < CreditLen {
		return Credit{}, violation("credit shorter than its block", uint64(len(b)), CreditLen)
	}
	c := CreditFromWords(binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
	if !validSize(c.Size) {
		return Credit{}, violation("credit with a size that no ring has", uint64(c.Size), MaxSize)
	}
	return c, nil
}
