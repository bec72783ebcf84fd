package driver

import (
	"net/netip"
	"os"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// CMEventType is the kind of a connection manager event (rdma_cm_event_type).
type CMEventType uint8

// The sixteen events, numbered as in rdma_cm_event_type.
const (
	CMAddrResolved    CMEventType = iota // ADDR_RESOLVED
	CMAddrError                          // ADDR_ERROR
	CMRouteResolved                      // ROUTE_RESOLVED
	CMRouteError                         // ROUTE_ERROR
	CMConnectRequest                     // CONNECT_REQUEST
	CMConnectResponse                    // CONNECT_RESPONSE
	CMConnectError                       // CONNECT_ERROR
	CMUnreachable                        // UNREACHABLE
	CMRejected                           // REJECTED
	CMEstablished                        // ESTABLISHED
	CMDisconnected                       // DISCONNECTED
	CMDeviceRemoval                      // DEVICE_REMOVAL
	CMMulticastJoin                      // MULTICAST_JOIN
	CMMulticastError                     // MULTICAST_ERROR
	CMAddrChange                         // ADDR_CHANGE
	CMTimewaitExit                       // TIMEWAIT_EXIT
)

// CMEvent is an event of a CMID. Its memory belongs to the receiver; drivers
// copy what is the library's and acknowledge at once.
type CMEvent struct {
	Type CMEventType
	// ID is the id the event is for; for CONNECT_REQUEST a new one, which the
	// receiver must Close.
	ID CMID
	// ListenID is the listening id of a CONNECT_REQUEST.
	ListenID CMID
	// Err says why, for the events that report a failure.
	Err error
	// Reason is the reject reason of REJECTED: RejectConsumer if the peer's
	// application refused, otherwise the transport's own code.
	Reason RejectReason
	// Param holds what the peer sent, with CONNECT_REQUEST, CONNECT_RESPONSE,
	// ESTABLISHED and REJECTED. PrivateData may be padded with zeros.
	Param ConnParam
}

// RejectReason is why a connection was refused (IBA 12.6.7.2).
type RejectReason uint16

// Reject reasons that this library tells apart.
const (
	RejectNone      RejectReason = 0  // none
	RejectNoQP      RejectReason = 1  // no QP available
	RejectNoService RejectReason = 8  // nobody listens
	RejectTimeout   RejectReason = 4  // timeout
	RejectConsumer  RejectReason = 28 // refused by the application

	// The software device's own, beyond what the specification uses.
	RejectDenied RejectReason = 0x8000 // belongs to another user
)

// Sizes of private data for rdma_connect and rdma_accept in RDMA_PS_TCP (rdma_connect(3)).
const (
	MaxConnectPrivateData = 56
	MaxAcceptPrivateData  = 196
	MaxRejectPrivateData  = 148
)

// ConnParam holds the parameters of a connection (rdma_conn_param).
type ConnParam struct {
	PrivateData        []byte
	ResponderResources uint8 // READs and atomics taken from the peer at once
	InitiatorDepth     uint8 // READs and atomics outstanding towards the peer
	FlowControl        bool
	RetryCount         uint8 // 0..7; for Accept 0 is the dialer's
	RNRRetryCount      uint8 // 0..7; 7 is for ever
	SRQ                bool  // ignored if the QP was made by CMID.CreateQP
	QPNum              uint32
}

// CMOptions are set on a CMID before it binds or resolves. Those that cm.Options has as well mean the
// same; here is what that asks of a driver.
type CMOptions struct {
	// ReuseAddr is RDMA_OPTION_ID_REUSEADDR. A device without such sharing has every bind alone.
	ReuseAddr bool
	// ReusePort is ignored where the driver's ids are not ListenSharers.
	ReusePort bool
	// AFOnly is RDMA_OPTION_ID_AFONLY.
	AFOnly bool
	// ApartFromTCP has BindAddr and ResolveAddr fail with verbs.ErrTCPPorts on a device that has its
	// ports from the system's TCP. A wildcard is on all devices, so one of iWARP is enough.
	ApartFromTCP bool
	// TOS is RDMA_OPTION_ID_TOS.
	TOS uint8
	// AckTimeout is RDMA_OPTION_ID_ACK_TIMEOUT.
	AckTimeout uint8
	// AskToConfirm has CONNECT_RESPONSE delivered for a CMID with a QP, too, where the transport has
	// a message that confirms a connection: Accept then brings the QP up and sends that message.
	AskToConfirm bool
	// AnyUser concerns the software device alone.
	AnyUser bool
	// HandshakeTimeout is five seconds if it is 0.
	HandshakeTimeout time.Duration
	// MaxHalfOpen is the driver's own choice if it is 0.
	MaxHalfOpen int
	// OnEvict may be nil.
	OnEvict func()
}

// CMListenStats count what happened at a listening CMID.
type CMListenStats struct {
	Requests  uint64 // CONNECT_REQUESTs delivered
	HalfOpen  int    // dialers connected that have sent no request yet
	Evicted   uint64 // half-open dialers dropped because there were too many
	TimedOut  uint64 // dialers that sent no request in time
	Malformed uint64 // dialers that sent something else than a request
	Denied    uint64 // processes of another user
	Hangup    uint64 // dialers that left before their request
}

// A CMSink receives the events of the CMIDs made with it, in order for each id,
// one at a time for each id. It runs on the driver's goroutine, or inside the call of a
// CMID that brings the event about, and must not block; it may call any method of a CMID.
type CMSink func(CMEvent)

// A CMID is a communication identifier: what a socket is to TCP (rdma_cm_id). It
// goes through bind and listen, or through resolve address, resolve route and
// connect, or arrives with a CONNECT_REQUEST and is accepted or rejected.
// A call in the wrong state fails with verbs.ErrState. Methods may be called concurrently.
type CMID interface {
	// SetSink changes where later events go (rdma_migrate_id).
	SetSink(CMSink)
	// SetOptions may be called before BindAddr and ResolveAddr.
	SetOptions(CMOptions) error
	// BindAddr binds to a local address; port 0 chooses one (rdma_bind_addr).
	// Errors: EADDRINUSE, EADDRNOTAVAIL, EACCES as bind(2) has them.
	BindAddr(addr netip.AddrPort) error
	// Listen starts listening (rdma_listen). CONNECT_REQUEST events follow. At
	// most backlog requests wait unanswered; further ones wait at the dialer. A
	// CONNECT_ERROR tells that dialers could not be taken in for lack of descriptors or
	// memory; they wait, and are tried again.
	Listen(backlog int) error
	// ListenStats returns the counts of a listening id.
	ListenStats() CMListenStats
	// ResolveAddr finds the device and local address for dst (rdma_resolve_addr).
	// ADDR_RESOLVED or ADDR_ERROR follows. src may be the zero value.
	ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error
	// ResolveRoute finds the path (rdma_resolve_route). ROUTE_RESOLVED or ROUTE_ERROR follows.
	ResolveRoute(timeout time.Duration) error
	// Verbs is the opened device the id is bound to, nil before that. It is
	// shared and must not be closed.
	Verbs() verbs.Context
	// CreateQP makes an RC QP on the id, in INIT, ready for receives; Connect and
	// Accept take it to RTS (rdma_create_qp). The caller closes it before the id.
	CreateQP(pd verbs.PD, attr *verbs.QPInitAttr) (verbs.QP, error)
	// Connect asks the peer (rdma_connect). ESTABLISHED, REJECTED, UNREACHABLE or
	// CONNECT_ERROR follows; timeout 0 leaves the wait to the transport's own bound.
	Connect(param *ConnParam, timeout time.Duration) error
	// Accept answers a CONNECT_REQUEST (rdma_accept). ESTABLISHED or
	// CONNECT_ERROR follows; data may arrive before ESTABLISHED.
	Accept(param *ConnParam) error
	// Reject refuses a CONNECT_REQUEST (rdma_reject).
	Reject(privateData []byte) error
	// Disconnect ends the connection (rdma_disconnect): the QP goes to ERR, what
	// is queued is flushed, both ends see DISCONNECTED.
	Disconnect() error
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	// Close destroys the id (rdma_destroy_id). No event is delivered after it
	// returns, unless it was called from the sink itself. A connected id is
	// disconnected first.
	Close() error
}

// A ListenSharer is a CMID whose address several processes may listen on with the
// option ReusePort. A file goes with the address to who comes to share it.
type ListenSharer interface {
	// SetCompanion sets the file, of a bound id, which owns it from now on, and closes it on failure.
	SetCompanion(f *os.File) error
	// Companion hands over the file that came with the address of a bound id, or that
	// was set; nil if there is none.
	Companion() *os.File
}

// A Withdrawer is a CMID of a CONNECT_REQUEST whose two ends decide in one place whether
// the connection stands.
type Withdrawer interface {
	// Withdraw gives up an id that was accepted and is not ESTABLISHED, and reports
	// whether it did. If so the dialer does not become connected, and is told to dial again.
	// If not the dialer has confirmed, and ESTABLISHED was or will be delivered.
	Withdraw() bool
}

// A PeerChecker is a CMID that can look whether its peer has gone.
type PeerChecker interface {
	// PeerGone reports whether the peer of a connected id, or its process, has gone, perhaps before the
	// event that says so. It does not wait.
	PeerGone() bool
}

// A Notifier is a CMID of a connection manager whose messages may be lost.
type Notifier interface {
	// Notify tells the connection manager that data has arrived on the QP of a CMID that
	// has called Accept (rdma_notify). If the peer's confirmation is missing, ESTABLISHED
	// follows soon. On one that is connected it does nothing.
	Notify() error
}

// A ListenHolder is a CMID that can leave new dialers waiting where they cost nothing, for a
// listener that has no descriptors or memory left for those it has. The id of a
// CONNECT_REQUEST that is one holds a descriptor.
type ListenHolder interface {
	// Hold(true) has a listening id accept no further dialers, until Hold(false). Each
	// Hold(true) also drops a half-open dialer that has long been silent, if there is one:
	// it holds a descriptor.
	Hold(hold bool)
	// Waits reports whether the dialer of a CONNECT_REQUEST that was not answered still waits.
	Waits() bool
	// OnLeave has f called, once, when the dialer of a CONNECT_REQUEST leaves before it was
	// answered; a device that tells so by an event does not call it. stop ends that, and
	// must be called before the request is answered. f must not block.
	OnLeave(f func()) (stop func())
}

// Route is a driver's answer to how it would reach an address.
type Route struct {
	Device   string
	Src      netip.Addr // the local address that would be used
	SameHost bool       // dst is an address of this host
}
