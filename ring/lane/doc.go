// Package lane is the protocol by which many streams share one queue pair (QP). Package rdmanet
// speaks it; docs/PROTOCOL.md has it on the wire.
//
// A lane is one QP of the reliable connected service, between the process that dials and the one
// that listens. A stream is one connection on it. Each end of a stream owns a ring, into which the
// peer writes; the QP, its receives and its completions are shared.
//
//   - Lane is one end of a lane with its streams: what arrives goes in, what has to be posted
//     comes out.
//   - Doorbell is the 32-bit immediate of a message.
//   - Record is a control message of 64 bytes, written into a small ring of the lane.
//   - Sender and Receiver are the two sides of a stream's ring.
//   - PollRole decides which goroutine polls the lane.
//
// Everything a peer sends is checked before it is used. A violation is a *ProtocolError. One about
// a stream resets that stream, one about the lane ends the lane: see Rule.Scope.
//
// These are state machines: no goroutine, no I/O, no lock, no clock. None may be used by two
// goroutines at once.
package lane
