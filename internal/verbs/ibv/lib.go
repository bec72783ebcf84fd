//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// What is loaded.
const (
	nameVerbs = "libibverbs.so.1"
	nameCM    = "librdmacm.so.1"
)

// libibverbs has the entry points of libibverbs that are real functions; see
// cContextOps for the others.
type libibverbs struct {
	getDeviceList, freeDeviceList    uintptr
	getDeviceGUID                    uintptr
	openDevice, closeDevice          uintptr
	queryDevice, queryPort           uintptr
	queryGIDEx                       uintptr // 0 before rdma-core 32
	allocPD, deallocPD               uintptr
	regMR, deregMR                   uintptr
	createCompChannel                uintptr
	destroyCompChannel               uintptr
	createCQ, destroyCQ              uintptr
	getCQEvent, ackCQEvents          uintptr
	createSRQ, modifySRQ, destroySRQ uintptr
	createQP, modifyQP, queryQP      uintptr
	destroyQP                        uintptr
	qpToQPEx                         uintptr // 0 before rdma-core 24
	queryECE, setECE                 uintptr // 0 before rdma-core 30
	createAH, destroyAH              uintptr
	getAsyncEvent, ackAsyncEvent     uintptr
	errnoLocation, calloc, free      uintptr
}

// librdmacm has the entry points of librdmacm.
type librdmacm struct {
	createEventChannel, destroyEventChannel uintptr
	createID, destroyID                     uintptr
	bindAddr, listen                        uintptr
	resolveAddr, resolveRoute               uintptr
	connect, accept, reject, disconnect     uintptr
	establish, initQPAttr, notify           uintptr
	setLocalECE, getRemoteECE               uintptr // 0 before rdma-core 30
	getCMEvent, ackCMEvent                  uintptr
	setOption                               uintptr
}

// symbol is where a function's address goes.
type symbol struct {
	name     string
	addr     *uintptr
	optional bool
}

var loadVerbs = sync.OnceValues(func() (*libibverbs, error) {
	l := new(libibverbs)
	err := load(nameVerbs, "libibverbs1 ibverbs-providers", []symbol{
		{"ibv_get_device_list", &l.getDeviceList, false},
		{"ibv_free_device_list", &l.freeDeviceList, false},
		{"ibv_get_device_guid", &l.getDeviceGUID, false},
		{"ibv_open_device", &l.openDevice, false},
		{"ibv_close_device", &l.closeDevice, false},
		{"ibv_query_device", &l.queryDevice, false},
		{"ibv_query_port", &l.queryPort, false},
		{"_ibv_query_gid_ex", &l.queryGIDEx, true},
		{"ibv_alloc_pd", &l.allocPD, false},
		{"ibv_dealloc_pd", &l.deallocPD, false},
		{"ibv_reg_mr", &l.regMR, false},
		{"ibv_dereg_mr", &l.deregMR, false},
		{"ibv_create_comp_channel", &l.createCompChannel, false},
		{"ibv_destroy_comp_channel", &l.destroyCompChannel, false},
		{"ibv_create_cq", &l.createCQ, false},
		{"ibv_destroy_cq", &l.destroyCQ, false},
		{"ibv_get_cq_event", &l.getCQEvent, false},
		{"ibv_ack_cq_events", &l.ackCQEvents, false},
		{"ibv_create_srq", &l.createSRQ, false},
		{"ibv_modify_srq", &l.modifySRQ, false},
		{"ibv_destroy_srq", &l.destroySRQ, false},
		{"ibv_create_qp", &l.createQP, false},
		{"ibv_modify_qp", &l.modifyQP, false},
		{"ibv_query_qp", &l.queryQP, false},
		{"ibv_destroy_qp", &l.destroyQP, false},
		{"ibv_qp_to_qp_ex", &l.qpToQPEx, true},
		{"ibv_query_ece", &l.queryECE, true},
		{"ibv_set_ece", &l.setECE, true},
		{"ibv_create_ah", &l.createAH, false},
		{"ibv_destroy_ah", &l.destroyAH, false},
		{"ibv_get_async_event", &l.getAsyncEvent, false},
		{"ibv_ack_async_event", &l.ackAsyncEvent, false},
		{"__errno_location", &l.errnoLocation, false},
		{"calloc", &l.calloc, false},
		{"free", &l.free, false},
	})
	if err != nil {
		return nil, err
	}
	return l, nil
})

var loadCM = sync.OnceValues(func() (*librdmacm, error) {
	if _, err := loadVerbs(); err != nil {
		return nil, err
	}
	l := new(librdmacm)
	err := load(nameCM, "librdmacm1", []symbol{
		{"rdma_create_event_channel", &l.createEventChannel, false},
		{"rdma_destroy_event_channel", &l.destroyEventChannel, false},
		{"rdma_create_id", &l.createID, false},
		{"rdma_destroy_id", &l.destroyID, false},
		{"rdma_bind_addr", &l.bindAddr, false},
		{"rdma_listen", &l.listen, false},
		{"rdma_resolve_addr", &l.resolveAddr, false},
		{"rdma_resolve_route", &l.resolveRoute, false},
		{"rdma_connect", &l.connect, false},
		{"rdma_accept", &l.accept, false},
		{"rdma_reject", &l.reject, false},
		{"rdma_disconnect", &l.disconnect, false},
		{"rdma_establish", &l.establish, false},
		{"rdma_init_qp_attr", &l.initQPAttr, false},
		{"rdma_notify", &l.notify, false},
		{"rdma_set_local_ece", &l.setLocalECE, true},
		{"rdma_get_remote_ece", &l.getRemoteECE, true},
		{"rdma_get_cm_event", &l.getCMEvent, false},
		{"rdma_ack_cm_event", &l.ackCMEvent, false},
		{"rdma_set_option", &l.setOption, false},
	})
	if err != nil {
		return nil, err
	}
	return l, nil
})

// load finds symbols in a library, which is never unloaded.
func load(file, pkg string, symbols []symbol) error {
	// What went wrong is asked for in a second call, on the same thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return &verbs.LibraryError{Library: file, Package: pkg, Err: err}
	}
	for _, s := range symbols {
		addr, err := purego.Dlsym(handle, s.name)
		if err == nil {
			*s.addr = addr
		} else if !s.optional {
			return &verbs.LibraryError{Library: file, Package: pkg, Err: fmt.Errorf("it is too old: %w", err)}
		}
	}
	return nil
}

// call calls a C function. Go memory whose address is taken in the arguments stays
// where it is until it returns.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// callInt is call of a function that returns an int.
//
//go:uintptrescapes
func callInt(fn uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(fn, args...)
	return int32(r)
}

// callErrno is call of a function that tells why it failed through errno, which
// belongs to the thread. It means something only if the function did fail.
//
//go:uintptrescapes
func (l *libibverbs) callErrno(fn uintptr, args ...uintptr) (uintptr, syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	location, _, _ := purego.SyscallN(l.errnoLocation)
	errno := (*int32)(pointer(location))
	*errno = 0
	r, _, _ := purego.SyscallN(fn, args...)
	return r, syscall.Errno(*errno)
}

// pointer is an address in C memory as a pointer. Going through memory tells vet
// that it is none of Go's.
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// at is the C struct at an address.
func at[T any](addr uintptr) *T { return (*T)(pointer(addr)) }

// goString is a C string in an array.
func goString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
