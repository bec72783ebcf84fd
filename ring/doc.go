// Package ring has the errors of rdmanet's protocol, and the frames of connections with
// checksums. They take no part in moving bytes: package rdmanet does that. Use it to ask what an
// error is, by errors.Is and errors.As.
//
// Each end of a connection owns a ring of registered memory, which its peer fills with RDMA
// WRITE. The 32-bit immediate of WRITE_WITH_IMM says how much came, and credits go back as the
// owner reads. Package lane, in the folder below, has that flow control, and how connections
// share a queue pair. Everything that a peer sends is checked before it is used. What breaks the
// protocol is an error that matches ErrProtocol, and changes nothing.
//
// # Checksums
//
// On a connection with checksums every data message is a frame: a header with the CRC-32C of
// the stream so far, the bytes, and padding. FrameHeader writes one and FrameReader reads them.
// Flow control counts the bytes of a frame like any others.
//
// Nothing here starts a goroutine, does I/O or takes a lock. Only errors are allocated. A
// FrameReader may be used by one goroutine at a time.
package ring

// maxPayload bounds the bytes of a frame: no ring is larger.
const maxPayload = 64 << 20
