//go:build linux && (amd64 || arm64) && !noverbs

package ibv

//lint:file-ignore U1000 the layouts are whole, also where the driver looks at a part

// The structs of infiniband/verbs.h and rdma/rdma_cma.h as far as the driver
// reads or writes them, and the constants it uses. layout_test.go compares sizes,
// offsets and values with the headers. A struct that C allocates may end before
// the C one does; one that we allocate has its full size.

// cDevice is struct ibv_device.
type cDevice struct {
	_             [2]uintptr
	nodeType      int32
	transportType int32
	name          [64]byte
}

// cContextOps is struct ibv_context_ops, with what the header's inline functions call.
type cContextOps struct {
	_           [7]uintptr
	allocMW     uintptr
	_           uintptr
	deallocMW   uintptr
	_           uintptr
	pollCQ      uintptr
	reqNotifyCQ uintptr
	_           [7]uintptr
	postSRQRecv uintptr
	_           [4]uintptr
	postSend    uintptr
	postRecv    uintptr
	_           [5]uintptr
}

// cContext is struct ibv_context.
type cContext struct {
	device         uintptr
	ops            cContextOps
	cmdFD          int32
	asyncFD        int32
	numCompVectors int32
	_              int32
	_              [mutexSize]byte
	abiCompat      uintptr
}

// cVerbsContextTail is the end of struct verbs_context up to its context, before
// which it lies in memory.
type cVerbsContextTail struct {
	queryDeviceEx uintptr
	_             [5]uintptr
	createQPEx    uintptr
	_             [5]uintptr
	sz            uintptr
}

// abiExtended in cContext.abiCompat means that a verbs_context surrounds the
// context (__VERBS_ABI_IS_EXTENDED).
const abiExtended = ^uintptr(0)

// cDeviceAttr is struct ibv_device_attr.
type cDeviceAttr struct {
	fwVer           [64]byte
	nodeGUID        uint64 // big endian
	sysImageGUID    uint64
	maxMRSize       uint64
	pageSizeCap     uint64
	vendorID        uint32
	vendorPartID    uint32
	hwVer           uint32
	maxQP           int32
	maxQPWR         int32
	deviceCapFlags  uint32
	maxSGE          int32
	maxSGERd        int32
	maxCQ           int32
	maxCQE          int32
	maxMR           int32
	maxPD           int32
	maxQPRdAtom     int32
	maxEERdAtom     int32
	maxResRdAtom    int32
	maxQPInitRdAtom int32
	maxEEInitRdAtom int32
	atomicCap       int32
	_               [2]int32
	maxMW           int32
	_               [5]int32
	maxAH           int32
	_               [2]int32
	maxSRQ          int32
	maxSRQWR        int32
	maxSRQSGE       int32
	maxPkeys        uint16
	localCAAckDelay uint8
	physPortCnt     uint8
}

// cDeviceAttrEx is struct ibv_device_attr_ex. Libraries newer than the header
// know how much of it they may fill.
type cDeviceAttrEx struct {
	attr             cDeviceAttr
	compMask         uint32
	_                [40]byte
	deviceCapFlagsEx uint64
	_                [112]byte
}

// cPortAttr is struct ibv_port_attr.
type cPortAttr struct {
	state         int32
	maxMTU        int32
	activeMTU     int32
	gidTblLen     int32
	portCapFlags  uint32
	maxMsgSz      uint32
	badPkeyCntr   uint32
	qkeyViolCntr  uint32
	pkeyTblLen    uint16
	lid           uint16
	smLID         uint16
	lmc           uint8
	maxVLNum      uint8
	smSL          uint8
	subnetTimeout uint8
	initTypeReply uint8
	activeWidth   uint8
	activeSpeed   uint8
	physState     uint8
	linkLayer     uint8
	flags         uint8
	portCapFlags2 uint16
}

// cGIDEntry is struct ibv_gid_entry.
type cGIDEntry struct {
	_           [0]uint64 // the GID's two 64-bit halves align it
	gid         [16]byte
	gidIndex    uint32
	portNum     uint32
	gidType     uint32
	ndevIfIndex uint32
}

// cMR is struct ibv_mr.
type cMR struct {
	_      [3]uintptr
	length uintptr
	handle uint32
	lkey   uint32
	rkey   uint32
}

// cMW is struct ibv_mw.
type cMW struct {
	context uintptr
	pd      uintptr
	rkey    uint32
	handle  uint32
	mwType  uint32
}

// cCompChannel is struct ibv_comp_channel.
type cCompChannel struct {
	context uintptr
	fd      int32
	refcnt  int32
}

// cCQ is struct ibv_cq.
type cCQ struct {
	_      [3]uintptr
	handle uint32
	cqe    int32
}

// cSRQAttr is struct ibv_srq_attr.
type cSRQAttr struct {
	maxWR  uint32
	maxSGE uint32
	limit  uint32
}

// cSRQInitAttr is struct ibv_srq_init_attr.
type cSRQInitAttr struct {
	srqContext uintptr
	attr       cSRQAttr
}

// cQPCap is struct ibv_qp_cap.
type cQPCap struct {
	maxSendWR     uint32
	maxRecvWR     uint32
	maxSendSGE    uint32
	maxRecvSGE    uint32
	maxInlineData uint32
}

// cQPInitAttr is struct ibv_qp_init_attr.
type cQPInitAttr struct {
	qpContext uintptr
	sendCQ    uintptr
	recvCQ    uintptr
	srq       uintptr
	cap       cQPCap
	qpType    uint32
	sqSigAll  int32
}

// cQPInitAttrEx is struct ibv_qp_init_attr_ex.
type cQPInitAttrEx struct {
	qpContext    uintptr
	sendCQ       uintptr
	recvCQ       uintptr
	srq          uintptr
	cap          cQPCap
	qpType       uint32
	sqSigAll     int32
	compMask     uint32
	pd           uintptr
	_            [56]byte
	sendOpsFlags uint64
}

// cQP is struct ibv_qp. state is what the last ibv_modify_qp or ibv_query_qp left
// there, librdmacm's included.
type cQP struct {
	_      [6]uintptr
	handle uint32
	qpNum  uint32
	state  uint32
	qpType uint32
}

// cQPEx is struct ibv_qp_ex.
type cQPEx struct {
	_             [qpSize]byte
	compMask      uint64
	wrID          uint64
	wrFlags       uint32
	_             [17]uintptr
	wrStart       uintptr
	wrComplete    uintptr
	wrAbort       uintptr
	wrAtomicWrite uintptr
}

// cGlobalRoute is struct ibv_global_route.
type cGlobalRoute struct {
	_            [0]uint64
	dgid         [16]byte
	flowLabel    uint32
	sgidIndex    uint8
	hopLimit     uint8
	trafficClass uint8
}

// cAHAttr is struct ibv_ah_attr.
type cAHAttr struct {
	grh         cGlobalRoute
	dlid        uint16
	sl          uint8
	srcPathBits uint8
	staticRate  uint8
	isGlobal    uint8
	portNum     uint8
}

// cQPAttr is struct ibv_qp_attr.
type cQPAttr struct {
	qpState          uint32
	curQPState       uint32
	pathMTU          uint32
	pathMigState     uint32
	qkey             uint32
	rqPSN            uint32
	sqPSN            uint32
	destQPNum        uint32
	qpAccessFlags    uint32
	cap              cQPCap
	ah               cAHAttr
	altAH            cAHAttr
	pkeyIndex        uint16
	altPkeyIndex     uint16
	enSQDAsyncNotify uint8
	sqDraining       uint8
	maxRdAtomic      uint8
	maxDestRdAtomic  uint8
	minRNRTimer      uint8
	portNum          uint8
	timeout          uint8
	retryCnt         uint8
	rnrRetry         uint8
	altPortNum       uint8
	altTimeout       uint8
	rateLimit        uint32
}

// cECE is struct ibv_ece.
type cECE struct {
	vendorID uint32
	options  uint32
	compMask uint32
}

// cSGE is struct ibv_sge.
type cSGE struct {
	addr   uint64
	length uint32
	lkey   uint32
}

// cSendWR is struct ibv_send_wr. wr is a union, of cRDMA, cAtomic and cUD, and bindMW is
// in one with what serves segmentation. Between them is what serves XRC.
type cSendWR struct {
	wrID    uint64
	next    uintptr
	sgList  uintptr
	numSGE  int32
	opcode  uint32
	flags   uint32
	immData uint32 // big endian, or a key in host order
	wr      [4]uint64
	_       uint64
	bindMW  cBindMW
}

// cBindMW is bind_mw of struct ibv_send_wr, with its struct ibv_mw_bind_info.
type cBindMW struct {
	mw     uintptr
	rkey   uint32
	mr     uintptr
	addr   uint64
	length uint64
	access uint32
}

type cRDMA struct {
	remoteAddr uint64
	rkey       uint32
}

type cAtomic struct {
	remoteAddr uint64
	compareAdd uint64
	swap       uint64
	rkey       uint32
}

type cUD struct {
	ah         uintptr
	remoteQPN  uint32
	remoteQKey uint32
}

// cRecvWR is struct ibv_recv_wr.
type cRecvWR struct {
	wrID   uint64
	next   uintptr
	sgList uintptr
	numSGE int32
}

// cWC is struct ibv_wc.
type cWC struct {
	wrID         uint64
	status       uint32
	opcode       uint32
	vendorErr    uint32
	byteLen      uint32
	immData      uint32 // big endian, or a key in host order
	qpNum        uint32
	srcQP        uint32
	flags        uint32
	pkeyIndex    uint16
	slid         uint16
	sl           uint8
	dlidPathBits uint8
}

// cAsyncEvent is struct ibv_async_event. element is a union of pointers and a
// port number.
type cAsyncEvent struct {
	element   uintptr
	eventType uint32
}

// cEventChannel is struct rdma_event_channel.
type cEventChannel struct {
	fd int32
}

// cCMID is struct rdma_cm_id.
type cCMID struct {
	verbs   uintptr
	channel uintptr
	context uintptr
	qp      uintptr
	srcAddr [128]byte // route.addr.src_storage
	dstAddr [128]byte // route.addr.dst_storage
	_       [40]byte  // route.addr.addr
	_       [2]uintptr
	ps      uint32
	portNum uint8
}

// cConnParam is struct rdma_conn_param.
type cConnParam struct {
	privateData        uintptr
	privateDataLen     uint8
	responderResources uint8
	initiatorDepth     uint8
	flowControl        uint8
	retryCount         uint8
	rnrRetryCount      uint8
	srq                uint8
	qpNum              uint32
}

// cCMEvent is struct rdma_cm_event, with param.conn of its union.
type cCMEvent struct {
	id       uintptr
	listenID uintptr
	event    uint32
	status   int32
	conn     cConnParam
}

// cSockaddrIn is struct sockaddr_in, cSockaddrIn6 struct sockaddr_in6.
type cSockaddrIn struct {
	family uint16
	port   uint16 // big endian
	addr   [4]byte
	_      [8]byte
}

type cSockaddrIn6 struct {
	family   uint16
	port     uint16 // big endian
	flowInfo uint32
	addr     [16]byte
	scopeID  uint32
}

const (
	nodeCA   = 1 // IBV_NODE_CA
	nodeRNIC = 4 // IBV_NODE_RNIC

	atomicNone        = 0       // IBV_ATOMIC_NONE
	deviceMemMgtExt   = 1 << 21 // IBV_DEVICE_MEM_MGT_EXTENSIONS
	deviceMemWindow2B = 1 << 24 // IBV_DEVICE_MEM_WINDOW_TYPE_2B
	mwType2           = 2       // IBV_MW_TYPE_2
	deviceAtomicWrite = 1 << 40 // IB_UVERBS_DEVICE_ATOMIC_WRITE, in the kernel's header only
	qpInitAttrPD      = 1 << 0  // IBV_QP_INIT_ATTR_PD
	qpInitAttrSendOps = 1 << 6  // IBV_QP_INIT_ATTR_SEND_OPS_FLAGS

	// Operations that a QP is made for (ibv_qp_create_send_ops_flags).
	qpExWithRDMAWrite         = 1 << 0  // IBV_QP_EX_WITH_RDMA_WRITE
	qpExWithRDMAWriteWithImm  = 1 << 1  // IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
	qpExWithSend              = 1 << 2  // IBV_QP_EX_WITH_SEND
	qpExWithSendWithImm       = 1 << 3  // IBV_QP_EX_WITH_SEND_WITH_IMM
	qpExWithRDMARead          = 1 << 4  // IBV_QP_EX_WITH_RDMA_READ
	qpExWithAtomicCmpAndSwp   = 1 << 5  // IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
	qpExWithAtomicFetchAndAdd = 1 << 6  // IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
	qpExWithLocalInv          = 1 << 7  // IBV_QP_EX_WITH_LOCAL_INV
	qpExWithBindMW            = 1 << 8  // IBV_QP_EX_WITH_BIND_MW
	qpExWithSendWithInv       = 1 << 9  // IBV_QP_EX_WITH_SEND_WITH_INV
	qpExWithAtomicWrite       = 1 << 12 // IBV_QP_EX_WITH_ATOMIC_WRITE
	srqMaskLimit              = 1 << 1  // IBV_SRQ_LIMIT
	qpMaskEnSQDNotify         = 1 << 2  // IBV_QP_EN_SQD_ASYNC_NOTIFY
	gidTypeIB                 = 0       // IBV_GID_TYPE_IB
	gidTypeRoCEv1             = 1       // IBV_GID_TYPE_ROCE_V1
	gidTypeRoCEv2             = 2       // IBV_GID_TYPE_ROCE_V2
	rdmaPSTCP                 = 0x0106  // RDMA_PS_TCP
	rdmaMaxRespRes            = 0xff    // RDMA_MAX_RESP_RES
	rdmaMaxInitDepth          = 0xff    // RDMA_MAX_INIT_DEPTH
	rdmaOptionID              = 0       // RDMA_OPTION_ID
	rdmaOptionTOS             = 0       // RDMA_OPTION_ID_TOS
	rdmaOptionReuseAddr       = 1       // RDMA_OPTION_ID_REUSEADDR
	rdmaOptionAFOnly          = 2       // RDMA_OPTION_ID_AFONLY
	rdmaOptionAckTimeout      = 3       // RDMA_OPTION_ID_ACK_TIMEOUT
	addrFamilyINET            = 2       // AF_INET
	addrFamilyINET6           = 10      // AF_INET6
)

// The opcodes of send work requests, where they differ from verbs.WROpcode.
const (
	wrBindMW      = 8 // IBV_WR_BIND_MW
	wrSendWithInv = 9 // IBV_WR_SEND_WITH_INV
)

// The opcodes of completions (ibv_wc_opcode).
const (
	wcSend            = 0
	wcRDMAWrite       = 1
	wcRDMARead        = 2
	wcCompSwap        = 3
	wcFetchAdd        = 4
	wcBindMW          = 5
	wcLocalInv        = 6
	wcAtomicWrite     = 9
	wcRecv            = 128
	wcRecvRDMAWithImm = 129
)

// The flags of completions (ibv_wc_flags).
const (
	wcGRH     = 1 << 0
	wcWithImm = 1 << 1
	wcWithInv = 1 << 3

	wcKernelWithInv = 1 << 2 // IB_WC_WITH_INVALIDATE, in the kernel only
)
