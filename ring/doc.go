// Package ring has what the bytes of a stream are checked by: the errors about a peer that
// broke the protocol, and the frames of connections with checksums. Package lane below it is
// the flow control of streams over RDMA.
//
// Each end of a stream owns a receive ring in registered memory, which its peer fills with
// RDMA WRITE; the doorbell travels in the 32-bit immediate of WRITE_WITH_IMM, and credits
// flow back as the owner reads. Many streams share a lane, which is one QP: package lane has
// its immediates and records, the windows of bytes and of receives, and rings that move to
// larger and smaller ones. Everything a peer says is checked before it is believed; a lie is
// an error that matches ErrProtocol and changes nothing.
//
// # Checksums
//
// A connection may have checksums. Then every data message is a frame: a header with the
// CRC-32C of the stream so far, the bytes, and padding. FrameHeader and FrameReader are the
// two ends of it. To rings, credits and moves it is data like any other.
//
// These are pure state machines: no goroutine, no I/O, no lock, no allocation outside of
// errors.
package ring

// maxPayload bounds the bytes of a frame: no ring is larger.
const maxPayload = 64 << 20
