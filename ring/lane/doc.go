// Package lane holds the protocol of lanes: how many streams share one queue pair (QP).
//
// A lane is one QP of the reliable connected service between the process that dials and
// the one that listens. Each stream on it keeps a ring at either end, into which the peer
// writes directly; the QP, its receives and its completions are shared.
//
//   - Doorbell is the 32-bit immediate of a message.
//   - Record is a control message of 64 bytes, which lies in a small ring of the lane.
//   - Slots counts receives at both ends.
//   - Sender and Receiver are the two sides of a ring that may move to other memory.
//   - Lane is one end of a lane with its table of streams: what arrives goes in, and what
//     is to be posted comes out.
//   - Baton says who polls the lane.
//
// Everything a peer says is checked before it is believed. A lie is a *ProtocolError. One
// about a stream ends that stream, one about the lane ends the link: see Rule.Scope.
//
// These are pure state machines: no goroutine, no I/O, no lock, no clock. None may be used
// by two goroutines at once. Nothing carries bytes by them yet; docs/ARCHITECTURE.md says
// what they are for.
package lane
