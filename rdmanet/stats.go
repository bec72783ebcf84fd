package rdmanet

import "time"

// ConnStats counts what a Conn did since it was made. Ratios tell more than the
// numbers: BytesWritten/MessagesSent is the size of a doorbell's message,
// WakeupsSent/MessagesSent how often the peer slept, BytesCopied against
// BytesPlaced how much of the traffic was zero-copy.
type ConnStats struct {
	// BytesRead and BytesWritten are what the application took and gave.
	BytesRead, BytesWritten uint64

	// MessagesSent and MessagesReceived count data messages. A Write is one
	// message unless the ring is nearly full or the Write is large.
	MessagesSent, MessagesReceived uint64

	// DoorbellsSent and DoorbellsReceived count immediates of every kind: data,
	// credits, and records about the connection (its begin, its end, other rings).
	DoorbellsSent, DoorbellsReceived uint64

	// CreditsSent and CreditsReceived count doorbells that returned ring space.
	CreditsSent, CreditsReceived uint64
	// KeepAlivesSent counts heartbeats to a silent peer. Those of a lane are for all
	// connections on it, and each counts them.
	KeepAlivesSent uint64

	// WakeupsSent counts the messages for which a sleeping peer was woken, with a
	// system call unless it is in this process; WakeupsSuppressed those for which
	// none was. Zero on devices that do not count.
	WakeupsSent, WakeupsSuppressed uint64

	// CreditStalls counts the times a Write found the peer's ring, or its
	// receive queue, full; CreditStallTime is how long it waited for room. A Write that
	// waits now counts as far as it has waited.
	CreditStalls    uint64
	CreditStallTime time.Duration

	// Spins counts the waits that ended while polling; Parks how often one went to sleep.
	Spins, Parks uint64

	// BytesCopied are bytes the library copied between the application's memory
	// and registered memory. BytesPlaced are bytes it did not copy: the device
	// took them from the application's memory or from a Reserve or ReadFrom
	// buffer, or the application read them in the ring.
	BytesCopied, BytesPlaced uint64

	// RingsGrown counts how often the receive ring was enlarged.
	RingsGrown uint64

	// ChecksumErrors counts messages that did not arrive as they were sent: 1 on a
	// connection with checksums that has ended by that. The end that found it counts it.
	ChecksumErrors uint64

	// ReadBuffer is the size of the receive ring now, WriteBuffer the size of the peer's.
	ReadBuffer, WriteBuffer int
}

// ListenerStats counts what a Listener did since it was made.
type ListenerStats struct {
	Accepted    uint64 // RDMA connections handed to Accept
	AcceptedTCP uint64 // TCP connections handed to Accept
	Established uint64 // RDMA connections that clients have opened
	Refused     uint64 // requests refused: bad handshake, wrong version, or told to dial again later
	Failed      uint64 // requests whose client left or failed before the connection stood
	Pending     int    // established connections that wait for Accept
	Requests    uint64 // Established, and the requests for a lane that were refused, failed or gave way
	Shortages   uint64 // times that clients had to wait for lack of descriptors or memory: see Accept
	HalfOpen    int    // clients connected that have not asked for anything yet
	Evicted     uint64 // clients that were silent and gave way to others: half-open ones, and those that were answered
	TimedOut    uint64 // clients that asked for nothing in time
	Malformed   uint64 // clients that sent something else than a request
	Denied      uint64 // clients of another user
}
