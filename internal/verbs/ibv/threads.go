package ibv

// How many calls of the libraries may wait at a time, each of which holds an OS thread. Calls that
// complete a connection have slots of their own, since its peer waits for them and may lose patience
// behind a crowd that only begins; and so have those that end something, for a device may take
// seconds over them. Nobody takes two slots, or waits for anything else while he has one, but for
// those of connects: first a listener's, then a host's, and last one of all.
const (
	deviceSlots      = 12 // of a device: making and changing objects
	deviceReadySlots = 6  // of a device: taking the QPs of connections to RTS
	deviceEndSlots   = 6  // of a device: destroying objects
	cmSlots          = 6  // of the connection manager
	cmReadySlots     = 6  // answering and confirming
	cmEndSlots       = 6  // destroying ids
	routeSlots       = 4  // rdma_resolve_route, which may wait for a daemon
	connectSlots     = 24 // rdma_connect on iWARP, which may wait for TCP
)

// How many threads that is. Who compares the limits of a host with it, as cmd/rdmanet-doctor does, has
// it from here, also where this package has no driver.
const (
	ThreadsOfDevice = deviceSlots + deviceReadySlots + deviceEndSlots
	ThreadsOfCM     = cmSlots + cmReadySlots + cmEndSlots + routeSlots
	ThreadsOfIWARP  = connectSlots // of the process, beside them
)
