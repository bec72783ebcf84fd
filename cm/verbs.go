package cm

import "github.com/rdmanet/go-rdmanet/internal/verbs"

// These are the verbs of internal/verbs under names that can be imported, so that
// whatever this package's API reaches can be written down by its users.
type (
	// Device is an RDMA device that can be opened.
	Device = verbs.Device
	// Transport is the family of a device.
	Transport = verbs.Transport
	// Context is an opened Device.
	Context = verbs.Context
	// Memory is page-aligned memory outside the Go heap.
	Memory = verbs.Memory
	// DeviceCaps are abilities that callers must adapt to.
	DeviceCaps = verbs.DeviceCaps
	// DeviceAttr holds a device's attributes.
	DeviceAttr = verbs.DeviceAttr
	// PortAttr holds a port's attributes.
	PortAttr = verbs.PortAttr
	// PortState is the logical state of a port.
	PortState = verbs.PortState
	// LinkLayer is what carries a port's packets.
	LinkLayer = verbs.LinkLayer
	// MTU is a path MTU as verbs encode it.
	MTU = verbs.MTU
	// GID is a global identifier.
	GID = verbs.GID
	// GIDType says which encapsulation a GID stands for.
	GIDType = verbs.GIDType
	// GIDEntry is one entry of a port's GID table.
	GIDEntry = verbs.GIDEntry
	// PortGID is a port with one entry of its GID table.
	PortGID = verbs.PortGID
	// AsyncEvent is an asynchronous event of a device.
	AsyncEvent = verbs.AsyncEvent
	// AsyncEventType is the kind of an AsyncEvent.
	AsyncEventType = verbs.AsyncEventType

	// PD is a protection domain.
	PD = verbs.PD
	// MR is registered memory.
	MR = verbs.MR
	// AccessFlags say what may be done to an MR.
	AccessFlags = verbs.AccessFlags
	// MW is a memory window.
	MW = verbs.MW
	// MWBind is what a memory window is bound to.
	MWBind = verbs.MWBind
	// AH is an address handle.
	AH = verbs.AH
	// AHAttr is an address vector.
	AHAttr = verbs.AHAttr

	// CompChannel turns completions into something a goroutine can sleep on.
	CompChannel = verbs.CompChannel
	// CQ is a completion queue.
	CQ = verbs.CQ
	// WC is a work completion.
	WC = verbs.WC
	// WCFlags qualify a WC.
	WCFlags = verbs.WCFlags
	// WCOpcode says what a completion completes.
	WCOpcode = verbs.WCOpcode
	// WCStatus is the outcome of a work request.
	WCStatus = verbs.WCStatus

	// QP is a queue pair.
	QP = verbs.QP
	// QPType is the transport service of a QP.
	QPType = verbs.QPType
	// QPState is the state of a QP.
	QPState = verbs.QPState
	// QPCap holds the capacities of a QP.
	QPCap = verbs.QPCap
	// QPInitAttr says how a QP is made.
	QPInitAttr = verbs.QPInitAttr
	// QPAttr holds the attributes of a QP.
	QPAttr = verbs.QPAttr
	// QPAttrMask says which fields of a QPAttr count.
	QPAttrMask = verbs.QPAttrMask
	// SRQ is a shared receive queue.
	SRQ = verbs.SRQ
	// SRQInitAttr says how an SRQ is made.
	SRQInitAttr = verbs.SRQInitAttr

	// SGE is a scatter/gather entry.
	SGE = verbs.SGE
	// SendWR is a work request for a send queue.
	SendWR = verbs.SendWR
	// RecvWR is a work request for a receive queue.
	RecvWR = verbs.RecvWR
	// SendOps is a set of operations that a QP is made for.
	SendOps = verbs.SendOps
	// WROpcode is the operation of a SendWR.
	WROpcode = verbs.WROpcode
	// SendFlags qualify a SendWR.
	SendFlags = verbs.SendFlags

	// ConnParam holds the parameters of a connection.
	ConnParam = verbs.ConnParam
	// RejectReason is why a connection was refused.
	RejectReason = verbs.RejectReason
	// ListenStats count what happened at a listening ID.
	ListenStats = verbs.CMListenStats

	// Library is a library of the system that a driver loads.
	Library = verbs.Library
)

// What the types above are used with.
const (
	CapWriteImm    = verbs.CapWriteImm
	CapAtomics     = verbs.CapAtomics
	CapAtomicWrite = verbs.CapAtomicWrite
	CapSRQ         = verbs.CapSRQ
	CapSendInv     = verbs.CapSendInv
	CapSameHost    = verbs.CapSameHost
	CapSynchronous = verbs.CapSynchronous
	CapODP         = verbs.CapODP
	CapUC          = verbs.CapUC
	CapMemWindow   = verbs.CapMemWindow
	CapUD          = verbs.CapUD

	TransportUnknown  = verbs.TransportUnknown
	TransportIB       = verbs.TransportIB
	TransportRoCE     = verbs.TransportRoCE
	TransportIWARP    = verbs.TransportIWARP
	TransportSoftware = verbs.TransportSoftware

	PortNop         = verbs.PortNop
	PortDown        = verbs.PortDown
	PortInit        = verbs.PortInit
	PortArmed       = verbs.PortArmed
	PortActive      = verbs.PortActive
	PortActiveDefer = verbs.PortActiveDefer

	LinkLayerUnspecified = verbs.LinkLayerUnspecified
	LinkLayerInfiniBand  = verbs.LinkLayerInfiniBand
	LinkLayerEthernet    = verbs.LinkLayerEthernet

	MTU256  = verbs.MTU256
	MTU512  = verbs.MTU512
	MTU1024 = verbs.MTU1024
	MTU2048 = verbs.MTU2048
	MTU4096 = verbs.MTU4096

	GIDTypeIB     = verbs.GIDTypeIB
	GIDTypeRoCEv1 = verbs.GIDTypeRoCEv1
	GIDTypeRoCEv2 = verbs.GIDTypeRoCEv2

	EventCQErr            = verbs.EventCQErr
	EventQPFatal          = verbs.EventQPFatal
	EventQPReqErr         = verbs.EventQPReqErr
	EventQPAccessErr      = verbs.EventQPAccessErr
	EventCommEst          = verbs.EventCommEst
	EventSQDrained        = verbs.EventSQDrained
	EventPathMig          = verbs.EventPathMig
	EventPathMigErr       = verbs.EventPathMigErr
	EventDeviceFatal      = verbs.EventDeviceFatal
	EventPortActive       = verbs.EventPortActive
	EventPortErr          = verbs.EventPortErr
	EventLIDChange        = verbs.EventLIDChange
	EventPKeyChange       = verbs.EventPKeyChange
	EventSMChange         = verbs.EventSMChange
	EventSRQErr           = verbs.EventSRQErr
	EventSRQLimitReached  = verbs.EventSRQLimitReached
	EventQPLastWQEReached = verbs.EventQPLastWQEReached
	EventClientReregister = verbs.EventClientReregister
	EventGIDChange        = verbs.EventGIDChange

	AccessLocalWrite   = verbs.AccessLocalWrite
	AccessRemoteWrite  = verbs.AccessRemoteWrite
	AccessRemoteRead   = verbs.AccessRemoteRead
	AccessRemoteAtomic = verbs.AccessRemoteAtomic
	AccessMWBind       = verbs.AccessMWBind
	AccessRemote       = verbs.AccessRemote // every remote right

	QPTypeRC = verbs.QPTypeRC
	QPTypeUC = verbs.QPTypeUC
	QPTypeUD = verbs.QPTypeUD

	QPReset = verbs.QPReset
	QPInit  = verbs.QPInit
	QPRTR   = verbs.QPRTR
	QPRTS   = verbs.QPRTS
	QPSQD   = verbs.QPSQD
	QPSQErr = verbs.QPSQErr
	QPErr   = verbs.QPErr

	QPMaskState           = verbs.QPMaskState
	QPMaskAccessFlags     = verbs.QPMaskAccessFlags
	QPMaskPKeyIndex       = verbs.QPMaskPKeyIndex
	QPMaskPort            = verbs.QPMaskPort
	QPMaskQKey            = verbs.QPMaskQKey
	QPMaskAV              = verbs.QPMaskAV
	QPMaskPathMTU         = verbs.QPMaskPathMTU
	QPMaskTimeout         = verbs.QPMaskTimeout
	QPMaskRetryCnt        = verbs.QPMaskRetryCnt
	QPMaskRNRRetry        = verbs.QPMaskRNRRetry
	QPMaskRQPSN           = verbs.QPMaskRQPSN
	QPMaskMaxQPRdAtomic   = verbs.QPMaskMaxQPRdAtomic
	QPMaskMinRNRTimer     = verbs.QPMaskMinRNRTimer
	QPMaskSQPSN           = verbs.QPMaskSQPSN
	QPMaskMaxDestRdAtomic = verbs.QPMaskMaxDestRdAtomic
	QPMaskCap             = verbs.QPMaskCap
	QPMaskDestQPN         = verbs.QPMaskDestQPN

	// RCMaskInit, RCMaskRTR and RCMaskRTS are the masks that a reliable connection needs
	// on its way up, and those of UC an unreliable one and of UD datagrams.
	RCMaskInit = verbs.RCMaskInit
	RCMaskRTR  = verbs.RCMaskRTR
	RCMaskRTS  = verbs.RCMaskRTS
	UCMaskInit = verbs.UCMaskInit
	UCMaskRTR  = verbs.UCMaskRTR
	UCMaskRTS  = verbs.UCMaskRTS
	UDMaskInit = verbs.UDMaskInit
	UDMaskRTR  = verbs.UDMaskRTR
	UDMaskRTS  = verbs.UDMaskRTS

	WRRDMAWrite         = verbs.WRRDMAWrite
	WRRDMAWriteWithImm  = verbs.WRRDMAWriteWithImm
	WRSend              = verbs.WRSend
	WRSendWithImm       = verbs.WRSendWithImm
	WRRDMARead          = verbs.WRRDMARead
	WRAtomicCmpAndSwp   = verbs.WRAtomicCmpAndSwp
	WRAtomicFetchAndAdd = verbs.WRAtomicFetchAndAdd
	WRLocalInv          = verbs.WRLocalInv
	WRSendWithInv       = verbs.WRSendWithInv
	WRAtomicWrite       = verbs.WRAtomicWrite
	WRBindMW            = verbs.WRBindMW

	SendFence     = verbs.SendFence
	SendSignaled  = verbs.SendSignaled
	SendSolicited = verbs.SendSolicited
	SendInline    = verbs.SendInline

	WCWithImm = verbs.WCWithImm
	WCWithInv = verbs.WCWithInv
	WCGRH     = verbs.WCGRH

	WCSend            = verbs.WCSend
	WCRDMAWrite       = verbs.WCRDMAWrite
	WCRDMARead        = verbs.WCRDMARead
	WCCompSwap        = verbs.WCCompSwap
	WCFetchAdd        = verbs.WCFetchAdd
	WCAtomicWrite     = verbs.WCAtomicWrite
	WCLocalInv        = verbs.WCLocalInv
	WCBindMW          = verbs.WCBindMW
	WCRecv            = verbs.WCRecv
	WCRecvRDMAWithImm = verbs.WCRecvRDMAWithImm

	WCSuccess          = verbs.WCSuccess
	WCLocLenErr        = verbs.WCLocLenErr
	WCLocQPOpErr       = verbs.WCLocQPOpErr
	WCLocProtErr       = verbs.WCLocProtErr
	WCWRFlushErr       = verbs.WCWRFlushErr
	WCBadRespErr       = verbs.WCBadRespErr
	WCLocAccessErr     = verbs.WCLocAccessErr
	WCRemInvReqErr     = verbs.WCRemInvReqErr
	WCRemAccessErr     = verbs.WCRemAccessErr
	WCRemOpErr         = verbs.WCRemOpErr
	WCRetryExcErr      = verbs.WCRetryExcErr
	WCRNRRetryExcErr   = verbs.WCRNRRetryExcErr
	WCFatalErr         = verbs.WCFatalErr
	WCGeneralErr       = verbs.WCGeneralErr
	WCLocEECOpErr      = verbs.WCLocEECOpErr
	WCMWBindErr        = verbs.WCMWBindErr
	WCLocRDDViolErr    = verbs.WCLocRDDViolErr
	WCRemInvRDReqErr   = verbs.WCRemInvRDReqErr
	WCRemAbortErr      = verbs.WCRemAbortErr
	WCInvEECNErr       = verbs.WCInvEECNErr
	WCInvEECStateErr   = verbs.WCInvEECStateErr
	WCRespTimeoutErr   = verbs.WCRespTimeoutErr
	WCTMErr            = verbs.WCTMErr
	WCTMRndvIncomplete = verbs.WCTMRndvIncomplete

	RejectNone      = verbs.RejectNone
	RejectNoQP      = verbs.RejectNoQP
	RejectTimeout   = verbs.RejectTimeout
	RejectNoService = verbs.RejectNoService
	RejectConsumer  = verbs.RejectConsumer
	RejectDenied    = verbs.RejectDenied

	// DefaultAckTimeout and DefaultMinRNRTimer are the timing of a connection for which
	// nothing else was asked: 0.27 s and 0.64 ms. See BringUpParam.
	DefaultAckTimeout  = verbs.DefaultAckTimeout
	DefaultMinRNRTimer = verbs.DefaultMinRNRTimer

	// MaxConnectPrivateData, MaxAcceptPrivateData and MaxRejectPrivateData are the
	// most private data that Connect, Accept and Reject carry.
	MaxConnectPrivateData = verbs.MaxConnectPrivateData
	MaxAcceptPrivateData  = verbs.MaxAcceptPrivateData
	MaxRejectPrivateData  = verbs.MaxRejectPrivateData
)

// GRHSize is how many bytes precede the data of a datagram in its receive.
const GRHSize = verbs.GRHSize

// AHFromWC is the address vector that leads back to the sender of a datagram: wc is the
// completion of its receive, on a QP at that port, and grh the first GRHSize bytes of the
// receive. It fails with ErrInvalid if these are not a header to an address of the port.
func AHFromWC(ctx Context, port uint8, wc *WC, grh []byte) (AHAttr, error) {
	return verbs.AHFromWC(ctx, port, wc, grh)
}

// Devices lists the devices of every driver. The error joins what the drivers
// said that could not look; it may come together with devices of the others.
func Devices() ([]Device, error) { return devicesOf(verbs.Drivers()) }
