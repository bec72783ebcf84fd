package verbs

// QPType is the transport service of a QP (ibv_qp_type).
type QPType uint8

// The transport services, numbered as in ibv_qp_type.
const (
	QPTypeRC QPType = 2 // RC
	QPTypeUC QPType = 3 // UC
	QPTypeUD QPType = 4 // UD
)

// Has reports whether QPs of the type have an operation (IBA table 34).
func (t QPType) Has(op WROpcode) bool {
	switch t {
	case QPTypeRC:
		return op <= WRBindMW
	case QPTypeUC:
		return op <= WRSendWithImm || op == WRLocalInv || op == WRBindMW
	case QPTypeUD:
		return op == WRSend || op == WRSendWithImm
	}
	return false
}

// QPState is the state of a QP (ibv_qp_state; IBA 10.3.1).
type QPState uint8

// The states, numbered as in ibv_qp_state.
const (
	QPReset QPState = iota // RESET
	QPInit                 // INIT
	QPRTR                  // RTR
	QPRTS                  // RTS
	QPSQD                  // SQD
	QPSQErr                // SQE
	QPErr                  // ERR
)

// QPCap holds the capacities of a QP (ibv_qp_cap).
type QPCap struct {
	MaxSendWR     int // requests that the send queue holds
	MaxRecvWR     int // and the receive queue
	MaxSendSGE    int // SGEs of one of them
	MaxRecvSGE    int
	MaxInlineData int // bytes of SendWR.Inline
}

// QPInitAttr says how a QP is made (ibv_qp_init_attr).
type QPInitAttr struct {
	Type     QPType
	SendCQ   CQ
	RecvCQ   CQ
	SRQ      SRQ // nil: the QP has a receive queue of its own
	Cap      QPCap
	SendOps  SendOps // what is posted to the send queue, which may be the smaller for it
	SigAll   bool    // every send request is signalled
	UserData any     // returned by QP.UserData
}

// AHAttr is an address vector (ibv_ah_attr).
type AHAttr struct {
	DGID         GID    // of the destination
	SGIDIndex    int    // of the source, in the GID table of PortNum
	DLID         uint16 // of the destination, InfiniBand only
	SL           uint8  // service level, 0 to 15
	PortNum      uint8  // port that sends; they count from 1
	HopLimit     uint8  // of the GRH; the TTL of RoCE v2's IP packets
	TrafficClass uint8  // type of service of RoCE v2's IP packets
	FlowLabel    uint32 // 20 bits
	IsGlobal     bool   // DGID, SGIDIndex, HopLimit, TrafficClass, FlowLabel count; always so on RoCE
}

// An AH is an address handle: where a UD send goes.
type AH interface {
	PD() PD
	// Close destroys the handle (ibv_destroy_ah). Sends that name it must have completed.
	Close() error
}

// QPAttr holds the attributes that Modify sets and Query returns (ibv_qp_attr).
type QPAttr struct {
	State           QPState
	PathMTU         MTU
	QKey            uint32 // UD: what a datagram must have to be received
	RQPSN           uint32 // 24 bits
	SQPSN           uint32 // 24 bits
	DestQPN         uint32 // 24 bits
	AccessFlags     AccessFlags
	Cap             QPCap
	AH              AHAttr
	PKeyIndex       uint16
	PortNum         uint8
	MaxRdAtomic     uint8 // outstanding READs and atomics as requester
	MaxDestRdAtomic uint8 // as responder
	MinRNRTimer     uint8 // IBA table 46: 0 is 655.36 ms, 1 is 0.01 ms, 31 is 491.52 ms
	Timeout         uint8 // ACK timeout 4.096 us x 2^Timeout; 0 is for ever
	RetryCnt        uint8 // 0..7 transport retries
	RNRRetry        uint8 // 0..7 RNR retries; 7 is for ever
}

// QPAttrMask says which fields of a QPAttr count (ibv_qp_attr_mask).
type QPAttrMask uint32

// The mask bits, numbered as in ibv_qp_attr_mask.
const (
	QPMaskState           QPAttrMask = 1 << 0
	QPMaskAccessFlags     QPAttrMask = 1 << 3
	QPMaskPKeyIndex       QPAttrMask = 1 << 4
	QPMaskPort            QPAttrMask = 1 << 5
	QPMaskQKey            QPAttrMask = 1 << 6
	QPMaskAV              QPAttrMask = 1 << 7
	QPMaskPathMTU         QPAttrMask = 1 << 8
	QPMaskTimeout         QPAttrMask = 1 << 9
	QPMaskRetryCnt        QPAttrMask = 1 << 10
	QPMaskRNRRetry        QPAttrMask = 1 << 11
	QPMaskRQPSN           QPAttrMask = 1 << 12
	QPMaskMaxQPRdAtomic   QPAttrMask = 1 << 13
	QPMaskMinRNRTimer     QPAttrMask = 1 << 15
	QPMaskSQPSN           QPAttrMask = 1 << 16
	QPMaskMaxDestRdAtomic QPAttrMask = 1 << 17
	QPMaskCap             QPAttrMask = 1 << 19
	QPMaskDestQPN         QPAttrMask = 1 << 20
)

// The masks that a reliable connection needs on its way up (ibv_modify_qp(3)).
const (
	RCMaskInit = QPMaskState | QPMaskPKeyIndex | QPMaskPort | QPMaskAccessFlags
	RCMaskRTR  = QPMaskState | QPMaskAV | QPMaskPathMTU | QPMaskDestQPN | QPMaskRQPSN | QPMaskMaxDestRdAtomic | QPMaskMinRNRTimer
	RCMaskRTS  = QPMaskState | QPMaskSQPSN | QPMaskTimeout | QPMaskRetryCnt | QPMaskRNRRetry | QPMaskMaxQPRdAtomic
)

// Those of an unreliable connection: it has no acknowledgements, READs or atomics.
const (
	UCMaskInit = RCMaskInit
	UCMaskRTR  = QPMaskState | QPMaskAV | QPMaskPathMTU | QPMaskDestQPN | QPMaskRQPSN
	UCMaskRTS  = QPMaskState | QPMaskSQPSN
)

// Those of datagrams, which need no peer but a Q_Key.
const (
	UDMaskInit = QPMaskState | QPMaskPKeyIndex | QPMaskPort | QPMaskQKey
	UDMaskRTR  = QPMaskState
	UDMaskRTS  = QPMaskState | QPMaskSQPSN
)

// A QP is a queue pair. Its methods may be called concurrently; requests of
// concurrent posts to one queue are ordered in some way, those of one post as given.
type QP interface {
	// QPN is the QP's number, 24 bits.
	QPN() uint32
	PD() PD
	Type() QPType
	UserData() any
	// State is the current state, ERR as soon as the device has moved the QP there.
	State() QPState
	// Modify changes the state and attributes that mask names (ibv_modify_qp). A
	// transition that IBA figure 124 does not have, or whose required attributes (UpMask) are
	// missing, fails with ErrInvalid and changes nothing.
	Modify(attr *QPAttr, mask QPAttrMask) error
	// Query returns all attributes (ibv_query_qp).
	Query() (QPAttr, QPInitAttr, error)
	// PostSend posts requests in order (ibv_post_send) and returns how many were
	// taken. On an error the first one not taken is wrs[n]. ErrQueueFull: the
	// queue has no room; room comes back when a later signalled completion is
	// polled. A QP in ERR, or in SQE, takes requests and flushes them. An operation that
	// the type of the QP does not have is ErrInvalid. The call allocates
	// nothing, and neither wrs nor what it points to is kept.
	PostSend(wrs []SendWR) (n int, err error)
	// PostRecv posts receive buffers in order (ibv_post_recv), likewise. Not for a QP with an SRQ.
	PostRecv(wrs []RecvWR) (n int, err error)
	// Close destroys the QP and what is queued on it. Completions that were not
	// polled yet may go with it.
	Close() error
}

// SRQInitAttr says how an SRQ is made (ibv_srq_init_attr).
type SRQInitAttr struct {
	MaxWR    int
	MaxSGE   int
	SRQLimit int // when fewer are left, SRQ_LIMIT_REACHED is raised once; 0 disarms
}

// An SRQ is a receive queue shared by QPs of one PD. Its methods may be called concurrently.
type SRQ interface {
	PD() PD
	// PostRecv is QP.PostRecv for the shared queue (ibv_post_srq_recv).
	PostRecv(wrs []RecvWR) (n int, err error)
	// SetLimit arms the limit event (ibv_modify_srq).
	SetLimit(limit int) error
	// Close destroys the SRQ; ErrBusy while QPs use it.
	Close() error
}
