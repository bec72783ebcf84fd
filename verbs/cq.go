package verbs

import "time"

// A CompChannel turns completions into something a goroutine can sleep on: a
// waiter costs no thread.
//
// Two goroutines may wait at once, one in each direction, each with its own
// deadline; an event wakes both. Which direction means what is the caller's choice.
type CompChannel interface {
	// WaitRead calls try, and again after every completion event of any CQ on the
	// channel, until try returns true. try arms the CQs it cares for, polls them
	// once more, and returns whether it found what it wants; then no wake-up is
	// lost. Events are consumed and acknowledged by the channel.
	//
	// It returns an error that is os.ErrDeadlineExceeded when the read deadline
	// passes, and one that is net.ErrClosed or os.ErrClosed after Close. It
	// allocates nothing. try may be called spuriously.
	WaitRead(try func() bool) error
	// WaitWrite is WaitRead for the other direction, under the write deadline.
	WaitWrite(try func() bool) error
	// SetReadDeadline sets when WaitRead gives up; the zero time means never. It
	// concerns waits in progress too and allocates nothing.
	SetReadDeadline(t time.Time) error
	// SetWriteDeadline is SetReadDeadline for WaitWrite.
	SetWriteDeadline(t time.Time) error

	// GetEvent waits under the read deadline for an event and returns the CQ it
	// is for (ibv_get_cq_event); the event counts as acknowledged. Its errors are those of
	// WaitRead. It must not be mixed with WaitRead and WaitWrite.
	GetEvent() (CQ, error)

	// Close destroys the channel and wakes the waiters; ErrBusy while CQs use it.
	Close() error
}

// A CQ is a completion queue; any number of QPs may share it.
// Its methods may be called concurrently.
type CQ interface {
	// Cap is the number of completions the CQ holds.
	Cap() int
	// Poll removes up to len(wc) completions, oldest first, into wc and returns
	// how many; fewer than len(wc) if there were no more (ibv_poll_cq(3)). It
	// never waits and allocates nothing. After an overrun it fails with ErrCQOverrun. The
	// order of completions of different queues is not defined.
	Poll(wc []WC) (int, error)
	// ReqNotify arms the CQ: the next completion to be added, or with
	// solicitedOnly the next that is solicited or an error, sends one event to
	// the channel and disarms (ibv_req_notify_cq). Completions that are already
	// in the CQ send none; so poll again after arming.
	ReqNotify(solicitedOnly bool) error
	// Close destroys the CQ; ErrBusy while QPs or SRQs use it.
	Close() error
}

// WC is a work completion (ibv_wc).
type WC struct {
	WRID      uint64 // of the request that has completed
	Status    WCStatus
	Opcode    WCOpcode // undefined unless Status is WCSuccess
	Flags     WCFlags
	VendorErr uint32
	ByteLen   uint32 // bytes received, on UD with the GRHSize before them, or transferred by READ and atomics
	ImmData   uint32 // in host order; the device puts it on the wire in network order
	InvRKey   uint32 // the rkey a SEND_WITH_INV invalidated
	QPN       uint32 // the local QP
	SrcQP     uint32 // the remote QP

	// For UD on InfiniBand: where the datagram came from; see AHFromWC.
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
}

// WCFlags qualify a WC.
type WCFlags uint8

// The flags of a WC.
const (
	WCWithImm WCFlags = 1 << 0 // ImmData is valid
	WCWithInv WCFlags = 1 << 1 // InvRKey is valid
	WCGRH     WCFlags = 1 << 2 // the GRHSize bytes before the data have the routing header (UD; always on RoCE)
)

// WCOpcode says what a successful completion completes (ibv_wc_opcode).
type WCOpcode uint8

// The opcodes of completions; those from WCRecv on belong to receive queues.
const (
	WCSend            WCOpcode = iota // SEND
	WCRDMAWrite                       // RDMA_WRITE
	WCRDMARead                        // RDMA_READ
	WCCompSwap                        // COMP_SWAP
	WCFetchAdd                        // FETCH_ADD
	WCAtomicWrite                     // ATOMIC_WRITE
	WCLocalInv                        // LOCAL_INV
	WCBindMW                          // BIND_MW
	WCRecv                            // RECV
	WCRecvRDMAWithImm                 // RECV_RDMA_WITH_IMM
)

// IsRecv reports whether the completion belongs to a receive queue.
func (o WCOpcode) IsRecv() bool { return o >= WCRecv }

// WCStatus is the outcome of a work request (ibv_wc_status; IBA 11.6.2).
type WCStatus uint8

// The statuses, numbered as in ibv_wc_status.
const (
	WCSuccess          WCStatus = iota // SUCCESS
	WCLocLenErr                        // LOC_LEN_ERR
	WCLocQPOpErr                       // LOC_QP_OP_ERR
	WCLocEECOpErr                      // LOC_EEC_OP_ERR
	WCLocProtErr                       // LOC_PROT_ERR
	WCWRFlushErr                       // WR_FLUSH_ERR
	WCMWBindErr                        // MW_BIND_ERR
	WCBadRespErr                       // BAD_RESP_ERR
	WCLocAccessErr                     // LOC_ACCESS_ERR
	WCRemInvReqErr                     // REM_INV_REQ_ERR
	WCRemAccessErr                     // REM_ACCESS_ERR
	WCRemOpErr                         // REM_OP_ERR
	WCRetryExcErr                      // RETRY_EXC_ERR
	WCRNRRetryExcErr                   // RNR_RETRY_EXC_ERR
	WCLocRDDViolErr                    // LOC_RDD_VIOL_ERR
	WCRemInvRDReqErr                   // REM_INV_RD_REQ_ERR
	WCRemAbortErr                      // REM_ABORT_ERR
	WCInvEECNErr                       // INV_EECN_ERR
	WCInvEECStateErr                   // INV_EEC_STATE_ERR
	WCFatalErr                         // FATAL_ERR
	WCRespTimeoutErr                   // RESP_TIMEOUT_ERR
	WCGeneralErr                       // GENERAL_ERR
	WCTMErr                            // TM_ERR
	WCTMRndvIncomplete                 // TM_RNDV_INCOMPLETE
)

// Error makes a WCStatus an error, so that errors.Is and errors.As find it as a
// cause; WCSuccess is never used as one.
func (s WCStatus) Error() string { return "work request failed: " + s.String() }
