package cm

import "github.com/rdmanet/go-rdmanet/internal/verbs/driver"

// The most private data that Connect, Accept and Reject carry in RDMA_PS_TCP, in bytes
// (rdma_connect(3), rdma_accept(3)).
const (
	MaxConnectPrivateData = 56
	MaxAcceptPrivateData  = 196
	MaxRejectPrivateData  = 148
)

// ConnParam holds the parameters of a connection (rdma_conn_param).
type ConnParam struct {
	PrivateData        []byte // for the peer's application
	ResponderResources uint8  // READs and atomics taken from the peer at once
	InitiatorDepth     uint8  // READs and atomics outstanding towards the peer
	FlowControl        bool   // hardware flow control is there: told to the peer, and changes no QP
	RetryCount         uint8  // 0..7; for Accept 0 is the dialer's
	RNRRetryCount      uint8  // 0..7; 7 is for ever
	SRQ                bool   // the QP has an SRQ; ignored if the QP was made by ID.CreateQP
	QPNum              uint32 // the number of the QP; likewise
}

// RejectReason is why a connection was refused (IBA 12.6.7.2).
type RejectReason uint16

// Reject reasons that this library tells apart.
const (
	RejectNone      RejectReason = 0      // none
	RejectNoQP      RejectReason = 1      // no QP available
	RejectTimeout   RejectReason = 4      // timeout
	RejectNoService RejectReason = 8      // nobody listens
	RejectConsumer  RejectReason = 28     // refused by the application
	RejectDenied    RejectReason = 0x8000 // belongs to another user; the software device's own
)

func (r RejectReason) String() string { return driver.RejectReason(r).String() }

// ListenStats count what happened at a listening ID.
type ListenStats struct {
	Requests  uint64 // ConnectRequests delivered
	HalfOpen  int    // dialers connected that have sent no request yet
	Evicted   uint64 // half-open dialers dropped because there were too many
	TimedOut  uint64 // dialers that sent no request in time
	Malformed uint64 // dialers that sent something else than a request
	Denied    uint64 // processes of another user
	Hangup    uint64 // dialers that left before their request
}
