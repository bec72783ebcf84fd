// Package ring is the flow control of a byte stream over RDMA: a credit-based
// byte ring and the codec of its doorbells.
//
// Each end of a connection owns a receive ring in registered memory, which its
// peer fills with RDMA WRITE. A message is announced by a Doorbell in the 32-bit
// immediate of WRITE_WITH_IMM. As the application reads, the owner returns
// Credit: how many bytes were consumed, how many receive WRs were posted, how
// large the ring is.
//
//   - Sender is the writer's view of the peer's ring: what may be sent now, and
//     where it goes.
//   - Receiver is the owner's view of its own ring: what has arrived, what is
//     free again, and when that has to be told.
//   - Doorbell and Credit are what travels, with their wire formats.
//   - FrameHeader and FrameReader are the checksums of connections that have them.
//
// A Sender keeps two windows apart: bytes free in the ring, and receive WRs the
// peer has posted. It exceeds neither, so a receiver-not-ready (RNR) condition
// does not arise. Everything a peer says is checked before it is believed; a lie
// is an error that matches ErrProtocol and changes nothing.
//
// # Growth
//
// A ring may be enlarged while it is in use, without moving a byte. The owner
// grants a larger size in a credit. The sender goes on in the old ring until its
// write position stands at the old end; there it continues into the new area
// instead of wrapping, and marks that message as grown, so that both ends change
// over at the same byte. One growth is under way at a time.
//
// # Checksums
//
// A connection may have checksums. Then every data message is a frame: a header with the
// CRC-32C of the stream so far, the bytes, and padding. To Sender and Receiver it is data
// like any other, of a length that Sender.NextFrame chooses.
//
// # Use
//
// These are pure state machines: no goroutine, no I/O, no lock, no allocation
// outside of errors. A Sender and a Receiver share nothing and may be guarded by
// different locks; neither may be used by two goroutines at once. The zero value
// of neither is usable.
package ring

// Layout of the memory each end registers and its peer writes. The credit block
// has lines of its own so that a write to it does not disturb the ring's start.
const (
	// CreditOffset is where the peer writes its Credit.
	CreditOffset = 0
	// CreditLen is the length of a Credit on the wire.
	CreditLen = 16
	// KeyedCreditLen is the length of a Credit with a Key behind it.
	KeyedCreditLen = CreditLen + 8
	// DataOffset is where the ring's first byte lies.
	DataOffset = 256
)

// Bounds of a ring and of the receive queue behind it.
const (
	// MinSize and MaxSize bound the ring's length in bytes, which is a power of two.
	MinSize = 4096
	MaxSize = 64 << 20

	// MinDepth and MaxDepth bound the number of receive WRs kept posted. Any
	// number between is allowed.
	MinDepth = 64
	MaxDepth = 32768

	// ControlReserve is the number of the peer's receive WRs that data may not
	// take, so that a credit or the end of the stream always finds one. See
	// Sender.ControlSlots for what may draw on it.
	ControlReserve = 16

	// MaxHeld is the number of receives that are posted again together at the latest:
	// the owner of a ring may save posts by holding fewer back.
	MaxHeld = 16
)

// validSize reports whether a ring may have n bytes.
func validSize(n uint32) bool {
	return n >= MinSize && n <= MaxSize && n&(n-1) == 0
}
