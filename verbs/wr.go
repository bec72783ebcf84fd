package verbs

// An SGE is a scatter/gather entry: a piece of registered memory (ibv_sge).
type SGE struct {
	Addr   uint64 // of the first byte: MR.Addr and its offset
	Length uint32 // in bytes
	LKey   uint32 // MR.LKey
}

// WROpcode is the operation of a send work request (ibv_wr_opcode).
type WROpcode uint8

// The operations.
const (
	WRRDMAWrite         WROpcode = iota // RDMA_WRITE
	WRRDMAWriteWithImm                  // RDMA_WRITE_WITH_IMM
	WRSend                              // SEND
	WRSendWithImm                       // SEND_WITH_IMM
	WRRDMARead                          // RDMA_READ
	WRAtomicCmpAndSwp                   // ATOMIC_CMP_AND_SWP
	WRAtomicFetchAndAdd                 // ATOMIC_FETCH_AND_ADD
	WRLocalInv                          // LOCAL_INV
	WRSendWithInv                       // SEND_WITH_INV
	WRAtomicWrite                       // ATOMIC_WRITE
	WRBindMW                            // BIND_MW
)

// SendFlags qualify a send work request (ibv_send_flags).
type SendFlags uint8

// The flags, numbered as in ibv_send_flags.
const (
	SendFence     SendFlags = 1 << 0 // start after all earlier READs and atomics have completed
	SendSignaled  SendFlags = 1 << 1 // completes with a WC; otherwise only a failure does
	SendSolicited SendFlags = 1 << 2 // the peer's completion is a solicited one
	SendInline    SendFlags = 1 << 3 // the data is copied at post time; lkeys are not looked at
)

// SendWR is a work request for a send queue (ibv_send_wr).
type SendWR struct {
	WRID   uint64 // the caller's: WC.WRID of its completion
	Opcode WROpcode
	Flags  SendFlags
	// SGList is gathered from for SEND and WRITE, scattered to for READ and
	// atomics. It is not kept after PostSend.
	SGList []SGE
	// Inline is the data of a request with SendInline; SGList must then be empty.
	// It may be any memory and is not kept after PostSend.
	Inline []byte
	// ImmData is the immediate in host order, or for SEND_WITH_INV and LOCAL_INV the key to invalidate.
	ImmData uint32

	// For WRITE, READ and atomics. The four bytes of the key fill up what the immediate leaves.
	RKey       uint32
	RemoteAddr uint64

	// For atomics: the value to add, or to compare with and to swap in. For ATOMIC_WRITE Swap is the value.
	CompareAdd uint64
	Swap       uint64

	// Bind is for BIND_MW. It fails with MW_BIND_ERR. Not kept after PostSend.
	Bind *MWBind

	// For UD: SEND and SEND_WITH_IMM of at most the port's MTU. A longer message is not
	// sent, and that is no error (IBA C10-93.1.1). A RemoteQKey whose highest bit is set
	// stands for the sending QP's own (IBA 10.2.5).
	AH         AH
	RemoteQPN  uint32
	RemoteQKey uint32
}

// RecvWR is a work request for a receive queue (ibv_recv_wr). SGList is not kept after the post.
type RecvWR struct {
	WRID   uint64 // the caller's: WC.WRID of its completion
	SGList []SGE  // where the data goes, in this order
}
