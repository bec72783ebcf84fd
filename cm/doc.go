// Package cm is connection management: it turns an address into a device and a
// route, and two processes into two connected queue pairs. It has the shape of
// rdma_cm(7): an ID is to RDMA what a socket is to TCP, an EventChannel tells what
// became of it, and the sixteen events have their usual names.
//
// The active side goes
//
//	ID.ResolveAddr     -> AddrResolved
//	ID.ResolveRoute    -> RouteResolved
//	ID.CreateQP, post receives
//	ID.Connect         -> Established, or Rejected, Unreachable, ConnectError
//
// and the passive side
//
//	ID.BindAddr, ID.Listen  -> ConnectRequest, which brings a new ID
//	its CreateQP, post receives
//	its Accept or Reject    -> Established, or ConnectError
//
// Either ends with ID.Disconnect, Disconnected on both sides, and ID.Close. Which
// device and which driver serve an ID is decided by its address: see Options.
//
// Two QPs can also be connected without the connection manager, by hand:
//
//	PortFor                  which device, port and GID index an address belongs to
//	Device.Open, AllocPD, CreateQP of package verbs
//	InitQP, post receives    INIT
//	LocalQPAddr, ExchangeQPAddr over whatever connection there is
//	BringUp                  RTR and RTS
//
// The package also has Refusal, which an end of an rdmanet connection sends as private data
// when it refuses, and Features, by which the two agree on checksums. docs/PROTOCOL.md
// specifies Refusal, and QPAddr, which BringUp needs, to the byte.
//
// Package verbs has what an ID is made with and what it leads to: PD, CQ and QP, work requests
// and completions, and the causes of most errors.
//
// *EventChannel and *ID may be used by several goroutines at once.
package cm
