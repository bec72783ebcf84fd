package rdmanet

// Stats counts what this process did since it began, over all of its connections and
// listeners, those that are closed included. Counts of what has happened never go down.
type Stats struct {
	// Devices has a row for each device that has carried a connection or a lane, by name.
	Devices []DeviceStats

	// DialErrors counts the dials that failed, by the errno that they failed with, as
	// "ECONNREFUSED", or as "timeout", "canceled" and "other".
	DialErrors map[string]uint64

	// DialFallbacks counts the dials on a network of TCP that returned a *net.TCPConn,
	// and ListenFallbacks the listeners that came to do without RDMA, by FallbackReason.
	DialFallbacks, ListenFallbacks map[string]uint64

	// Listeners is how many listeners there are now, Listening what they and those
	// that are closed counted.
	Listeners int
	Listening ListenerStats

	// RegisteredBytes is the memory of all receive rings and send buffers now, and
	// RegisteredLimit what they may take together: MemoryInUse and SetMemoryLimit.
	RegisteredBytes, RegisteredLimit int64
}

// DeviceStats are those of the connections that one device carries or has carried.
type DeviceStats struct {
	Device string

	// Dialled and Accepted count connections by who asked for them.
	Dialled, Accepted ConnCount

	// ConnStats are the sums over the connections. Its ReadBuffer and WriteBuffer are
	// of the connections that are open now.
	ConnStats

	// Lanes are of the lanes that carry connections. Their heartbeats, and their messages that
	// woke a peer or did not, are in ConnStats, where each counts once.
	Lanes DeviceLanes

	// Errors counts connections that failed, by errno: "ECONNRESET" where the peer
	// reset the connection or died, "ETIMEDOUT" where it did not answer any more,
	// "ECONNABORTED" where it broke the protocol, "ENODEV" where the device went. An
	// orderly close is no failure, whatever is cut short by it.
	Errors map[string]uint64

	// FailedWRs counts connections by the completion status with which their work
	// requests failed, named as in verbs: "RETRY_EXC_ERR" says that the peer's device
	// does not answer, "WR_FLUSH_ERR" that the connection was gone already. A
	// connection counts once for each status.
	FailedWRs map[string]uint64
}

// ConnCount counts connections.
type ConnCount struct {
	Open  int    // now; one that was closed counts until what it sent has arrived
	Total uint64 // ever
}

// ReadStats returns what the process counted so far. It asks every open connection in
// turn, as Conn.Stats does: it is meant to be called now and then, not for every
// request. Nothing is counted for it that a connection does not count anyway.
func ReadStats() Stats {
	var s Stats
	s.Devices, s.Listening, s.Listeners = live.stats()
	s.Devices = addLanes(s.Devices)
	s.DialErrors = live.dials.read()
	s.DialFallbacks, s.ListenFallbacks = fallbackCounts()
	s.RegisteredBytes, s.RegisteredLimit = MemoryInUse(), SetMemoryLimit(-1)
	return s
}
