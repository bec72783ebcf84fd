package verbs

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// A Device is an RDMA device (an HCA or RNIC, or the software device) that can be opened.
type Device interface {
	// Name is the device's name in its driver: "mlx5_0", "rxe0", "soft0".
	Name() string
	// GUID is the node GUID, 0 if the device has none.
	GUID() uint64
	// Transport says what family the device speaks.
	Transport() Transport
	// Open opens the device. The caller must Close the Context.
	Open() (Context, error)
}

// Transport is the family of a device.
type Transport uint8

// The transports. iWARP has no WRITE_WITH_IMM (RFC 5040); see CapWriteImm.
const (
	TransportUnknown  Transport = iota // unknown
	TransportIB                        // InfiniBand
	TransportRoCE                      // RoCE
	TransportIWARP                     // iWARP
	TransportSoftware                  // software
)

// A Context is an opened Device. Everything else is made from it.
// All methods may be called concurrently.
type Context interface {
	Device() Device
	// QueryDevice returns the device's attributes and limits (ibv_query_device).
	QueryDevice() (DeviceAttr, error)
	// QueryPort returns the state of a port; ports count from 1 (ibv_query_port).
	QueryPort(port uint8) (PortAttr, error)
	// QueryGID returns one entry of a port's GID table (ibv_query_gid_ex).
	// An index past the table is ErrInvalid; an empty entry has a zero GID.
	QueryGID(port uint8, index int) (GIDEntry, error)

	// AllocPD makes a protection domain (ibv_alloc_pd).
	AllocPD() (PD, error)
	// CreateCompChannel makes a completion channel (ibv_create_comp_channel).
	CreateCompChannel() (CompChannel, error)
	// CreateCQ makes a completion queue for at least cqe completions; channel may
	// be nil if the CQ is only polled (ibv_create_cq).
	CreateCQ(cqe int, channel CompChannel) (CQ, error)

	// AllocMemory maps size bytes, rounded up to pages, outside the Go heap, of
	// which the first committed bytes are backed at once. Only such memory may be
	// registered for remote access on every device.
	AllocMemory(size, committed int) (Memory, error)

	// AsyncEvent waits for the next asynchronous event (ibv_get_async_event).
	// It returns ctx's cause when ctx ends and ErrClosed after Close.
	AsyncEvent(ctx context.Context) (AsyncEvent, error)

	// Close closes the device. It fails with ErrBusy while objects made from the Context exist.
	Close() error
}

// Memory is page-aligned memory outside the Go heap. Its methods may be called concurrently, but
// for Bytes beside Close.
type Memory interface {
	// Bytes is the whole mapping. Touching it past the committed part is not allowed,
	// but where a peer has written (CapODP).
	Bytes() []byte
	// Committed is how many bytes from the start may be touched.
	Committed() int
	// Commit extends the committed part to n bytes, rounded up to pages; fewer than there are
	// change nothing. It fails with ErrNoMemory, with ErrInvalid beyond the mapping, and with
	// ErrClosed.
	Commit(n int) error
	// Close unmaps the memory; ErrBusy while MRs that were made from its Context cover it.
	Close() error
}

// DeviceCaps are abilities that callers must adapt to.
type DeviceCaps uint32

const (
	// CapWriteImm: the device has RDMA_WRITE_WITH_IMM and SEND_WITH_IMM. iWARP has neither.
	CapWriteImm DeviceCaps = 1 << iota
	// CapAtomics: FETCH_ADD and CMP_SWAP on 8 bytes.
	CapAtomics
	// CapAtomicWrite: ATOMIC_WRITE of 8 bytes.
	CapAtomicWrite
	// CapSRQ: shared receive queues.
	CapSRQ
	// CapSendInv: SEND_WITH_INV.
	CapSendInv
	// CapSameHost: the device reaches processes of this host only.
	CapSameHost
	// CapSynchronous: a post that is accepted has executed when PostSend returns,
	// unless it had to wait for the peer; memory of inline data of any size is
	// never looked at again.
	CapSynchronous
	// CapODP: registered memory need not be committed to be written by a peer, whose
	// writes back what they touch (on-demand paging, ibv_query_device_ex(3)). Only
	// the peer's: this side may touch it when the peer has.
	CapODP
	// CapUC: QPs of type UC. iWARP has neither these nor those of type UD.
	CapUC
	// CapMemWindow: memory windows of type 2B.
	CapMemWindow
	// CapUD: QPs of type UD, with address handles.
	CapUD
)

// capNames are the names of the DeviceCaps, lowest bit first.
var capNames = [...]string{"write with immediate", "atomics", "atomic write", "SRQ", "send with invalidate", "same host only", "synchronous", "on-demand paging", "UC", "memory windows", "UD"}

// Names are the names of the abilities that are there.
func (c DeviceCaps) Names() []string {
	var names []string
	for i, name := range capNames {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (c DeviceCaps) String() string { return strings.Join(c.Names(), ", ") }

// DeviceAttr holds a device's attributes (ibv_device_attr).
type DeviceAttr struct {
	FWVer           string
	NodeGUID        uint64
	VendorID        uint32
	VendorPartID    uint32
	HWVer           uint32
	Caps            DeviceCaps
	MaxMRSize       uint64 // in bytes
	MaxQP           int
	MaxQPWR         int // work requests in one queue
	MaxSGE          int
	MaxSGERD        int // SGEs of a READ, which are fewer on iWARP
	MaxCQ           int
	MaxCQE          int // completions that one CQ holds
	MaxMR           int
	MaxPD           int
	MaxQPRdAtom     int // READs and atomics a QP takes as responder
	MaxQPInitRdAtom int // READs and atomics a QP keeps outstanding as requester
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	MaxAH           int
	MaxMW           int
	MaxInlineData   int // the most QPCap.MaxInlineData may ask for
	PhysPortCnt     int
}

// PortState is the logical state of a port (ibv_port_state).
type PortState uint8

// The port states, numbered as in ibv_port_state.
const (
	PortNop         PortState = iota // NOP
	PortDown                         // DOWN
	PortInit                         // INIT
	PortArmed                        // ARMED
	PortActive                       // ACTIVE
	PortActiveDefer                  // ACTIVE_DEFER
)

// LinkLayer is what carries a port's packets.
type LinkLayer uint8

// The link layers, numbered as in rdma-core.
const (
	LinkLayerUnspecified LinkLayer = iota // unspecified
	LinkLayerInfiniBand                   // InfiniBand
	LinkLayerEthernet                     // Ethernet
)

// PortAttr holds a port's attributes (ibv_port_attr).
type PortAttr struct {
	State      PortState
	MaxMTU     MTU
	ActiveMTU  MTU
	GIDTblLen  int    // entries of the GID table, empty ones included
	MaxMsgSize uint32 // in bytes
	LID        uint16 // InfiniBand only
	SMLID      uint16 // of the subnet manager, InfiniBand only
	LinkLayer  LinkLayer
}

// MTU is a path MTU as verbs encode it: 1 is 256 bytes, 5 is 4096.
type MTU uint8

// The path MTUs.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes is the MTU in bytes, 0 if m is not an MTU.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// GID is a global identifier: an IPv6-shaped address of a port.
type GID [16]byte

// GIDFromAddr is the GID that RoCE derives from an IP address; IPv4 is v4-mapped.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

// Addr is the IP address the GID stands for, an IPv4 address where it is v4-mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether g is that of an empty entry of the GID table.
func (g GID) IsZero() bool { return g == GID{} }

func (g GID) String() string {
	return fmt.Sprintf("%x:%x:%x:%x:%x:%x:%x:%x", g[0:2], g[2:4], g[4:6], g[6:8], g[8:10], g[10:12], g[12:14], g[14:16])
}

// GIDType says which encapsulation a GID table entry stands for.
type GIDType uint8

// The GID types.
const (
	GIDTypeIB     GIDType = iota // IB
	GIDTypeRoCEv1                // RoCE v1
	GIDTypeRoCEv2                // RoCE v2
)

// GIDEntry is one entry of a port's GID table.
type GIDEntry struct {
	GID     GID
	Index   int
	Port    uint8
	Type    GIDType
	NetDev  string // the network device's name, "" if there is none
	IfIndex int
}

// AsyncEventType is the kind of an asynchronous event (ibv_event_type).
type AsyncEventType uint8

// The asynchronous events, numbered as in ibv_event_type.
const (
	EventCQErr            AsyncEventType = iota // CQ_ERR
	EventQPFatal                                // QP_FATAL
	EventQPReqErr                               // QP_REQ_ERR
	EventQPAccessErr                            // QP_ACCESS_ERR
	EventCommEst                                // COMM_EST
	EventSQDrained                              // SQ_DRAINED
	EventPathMig                                // PATH_MIG
	EventPathMigErr                             // PATH_MIG_ERR
	EventDeviceFatal                            // DEVICE_FATAL
	EventPortActive                             // PORT_ACTIVE
	EventPortErr                                // PORT_ERR
	EventLIDChange                              // LID_CHANGE
	EventPKeyChange                             // PKEY_CHANGE
	EventSMChange                               // SM_CHANGE
	EventSRQErr                                 // SRQ_ERR
	EventSRQLimitReached                        // SRQ_LIMIT_REACHED
	EventQPLastWQEReached                       // QP_LAST_WQE_REACHED
	EventClientReregister                       // CLIENT_REREGISTER
	EventGIDChange                              // GID_CHANGE
)

// AsyncEvent is an asynchronous event with the object it concerns.
type AsyncEvent struct {
	Type AsyncEventType
	QP   QP    // for QP events
	CQ   CQ    // for CQ_ERR
	SRQ  SRQ   // for SRQ events
	Port uint8 // for port events
}
