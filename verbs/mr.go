package verbs

// A PD is a protection domain: QPs, MRs, SRQs and AHs of different PDs do not mix.
// All methods may be called concurrently.
type PD interface {
	Context() Context
	// RegMR registers buf (ibv_reg_mr). Memory that a peer may access must come
	// from Context.AllocMemory; other memory may be registered for local access.
	// The caller keeps buf alive and in place until the MR is closed: memory of the Go heap
	// must be pinned for as long (runtime.Pinner).
	RegMR(buf []byte, access AccessFlags) (MR, error)
	// CreateQP makes a queue pair in RESET (ibv_create_qp). It writes the granted
	// capacities, which are at least those asked for, back into attr.Cap.
	CreateQP(attr *QPInitAttr) (QP, error)
	// CreateSRQ makes a shared receive queue (ibv_create_srq).
	CreateSRQ(attr *SRQInitAttr) (SRQ, error)
	// AllocMW makes a memory window of type 2, bound to nothing (ibv_alloc_mw).
	// ErrNotSupported without CapMemWindow.
	AllocMW() (MW, error)
	// CreateAH makes an address handle for UD sends (ibv_create_ah).
	CreateAH(attr *AHAttr) (AH, error)
	// Close frees the PD (ibv_dealloc_pd); ErrBusy while objects made from it exist.
	Close() error
}

// AccessFlags say what may be done to an MR, or through a QP (ibv_access_flags).
// Local reads are always allowed.
type AccessFlags uint32

// The access rights, numbered as in ibv_access_flags. Remote write and remote
// atomic require local write (IBA 10.6.3.1).
const (
	AccessLocalWrite   AccessFlags = 1 << 0
	AccessRemoteWrite  AccessFlags = 1 << 1
	AccessRemoteRead   AccessFlags = 1 << 2
	AccessRemoteAtomic AccessFlags = 1 << 3
	// AccessMWBind says of an MR that windows may be bound to it.
	AccessMWBind AccessFlags = 1 << 4

	// AccessRemote is every remote right.
	AccessRemote = AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic
)

// An MR is registered memory. Its methods may be called concurrently.
type MR interface {
	PD() PD
	// LKey names the MR in the SGEs of this process; RKey in the requests of a peer.
	LKey() uint32
	RKey() uint32
	// Addr is the virtual address by which SGEs and peers mean the MR's first byte.
	Addr() uint64
	Len() int
	Access() AccessFlags
	// Close deregisters the MR (ibv_dereg_mr). When it returns no peer reaches
	// the memory any more; requests that name the key fail. ErrBusy while windows are
	// bound to it.
	Close() error
}

// An MW is a memory window of type 2B (IBA 10.6.7.2): a key for a part of an MR, with
// rights of its own, that is bound and invalidated by work requests. While it is bound
// only the peer of the QP that bound it can use it. Its methods may be called concurrently.
type MW interface {
	PD() PD
	// RKey is the key that the last bind to be posted gives to the window. If that fails
	// or is flushed, the window is of no use but to be closed.
	RKey() uint32
	// Close frees the window, bound or not (ibv_dealloc_mw). Close windows before the QPs
	// that they are bound to.
	Close() error
}

// MWBind is what a BIND_MW binds (ibv_mw_bind_info). The window must not be bound.
type MWBind struct {
	MW  MW
	Key uint8 // the lowest byte of the window's key from here on; change it every time
	MR  MR    // of the window's PD, with AccessMWBind
	// Addr and Length are the part of the MR, which is not empty.
	Addr   uint64
	Length uint64
	// Access is what the peer may do: remote rights. Those that change memory need
	// AccessLocalWrite in the MR.
	Access AccessFlags
}
