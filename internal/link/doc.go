// Package link carries many streams on few queue pairs.
//
// A link joins one dialing process to one listener. It has some lanes, each one QP of the
// reliable connected service, and on them as many streams as its ends like to open. What is
// said on a lane, and what may be believed of it, is decided by the state machines of
// ring/lane; this package gives them a QP, memory, goroutines and time.
//
//   - Links has the links of a process that dials, Listener the lanes of one that listens.
//   - Stream is what both hand out: two byte streams, as a TCP connection has them. It is a
//     handle: the lane has the stream itself, so that a Stream which the program drops is
//     found by the collector, and closed.
//   - laneEnd is one end of a lane: it posts what the state machine says, and gives it what
//     completes. One lock guards the machine and the send queue. It consists of parts, each with a file:
//     dialerPart and listenerPart are what only one of the two ends has, polling is for the calls that wait,
//     peerMemory for memory that the device does not know, laneEnds for streams that were closed.
//   - stream is one end of a stream: a receiveHalf, a sendHalf and the termination, which says who may still
//     read or write.
//   - endpoint has the verbs objects of a lane, a memory.Slab the memory of its rings.
//
// Whoever waits polls for all, and nobody polls who does not wait: see lane.PollRole and wait.go.
// A lie about the lane ends it, with the error that names it. A stream's error ends the
// stream.
//
// Package rdmanet makes a net.Conn of a stream.
package link
