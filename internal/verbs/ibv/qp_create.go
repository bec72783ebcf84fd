//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// sendOpFlags are the operations as ibv_create_qp_ex counts them.
var sendOpFlags = [...]uint64{
	verbs.WRRDMAWrite:         qpExWithRDMAWrite,
	verbs.WRRDMAWriteWithImm:  qpExWithRDMAWriteWithImm,
	verbs.WRSend:              qpExWithSend,
	verbs.WRSendWithImm:       qpExWithSendWithImm,
	verbs.WRRDMARead:          qpExWithRDMARead,
	verbs.WRAtomicCmpAndSwp:   qpExWithAtomicCmpAndSwp,
	verbs.WRAtomicFetchAndAdd: qpExWithAtomicFetchAndAdd,
	verbs.WRLocalInv:          qpExWithLocalInv,
	verbs.WRSendWithInv:       qpExWithSendWithInv,
	verbs.WRAtomicWrite:       qpExWithAtomicWrite,
	verbs.WRBindMW:            qpExWithBindMW,
}

// sendOps is what a QP is made for by the extended verbs, 0 if it is not to be made by
// them. A provider makes room in every entry of the send queue for the largest of the
// operations: that of mlx5 reckons with memory windows and atomics where none are named.
// And only the extended verbs have ATOMIC_WRITE; ibv_post_send, which does not know
// these flags, serves such a QP as well.
func (q *qp) sendOps() (flags uint64) {
	has := q.ctx.limits.attr.Caps
	if q.init.SendOps == 0 {
		if q.init.Type == verbs.QPTypeRC && has&verbs.CapAtomicWrite != 0 {
			return qpExWithAtomicWrite
		}
		return 0
	}
	for op, flag := range sendOpFlags {
		// What the device lacks is refused when it is posted.
		if need := needs[op]; q.init.SendOps.Has(verbs.WROpcode(op)) && has&need == need {
			flags |= flag
		}
	}
	return flags
}

// make is ibv_create_qp, or ibv_create_qp_ex.
func (q *qp) make(in *cQPInitAttrEx) error {
	lib := q.ctx.lib
	create := func(name string, fn, first uintptr) error {
		r, errno := q.ctx.makes(fn, first, uintptr(unsafe.Pointer(in)))
		if r == 0 {
			return failed(name, errno)
		}
		q.handle, q.c = r, at[cQP](r)
		q.qpn.Store(q.c.qpNum)
		return nil
	}
	var extended func() error
	if fn := q.ctx.extended(unsafe.Offsetof(cVerbsContextTail{}.createQPEx)); fn != 0 {
		extended = func() error { return create("ibv_create_qp_ex", fn, q.ctx.handle) }
	}
	return q.makeEither(in, extended, func() error { return create("ibv_create_qp", lib.createQP, q.pd.handle) })
}

// makeEither makes a QP of in by the extended verbs, if there are any and it has a use for
// them, and otherwise, or where the provider refuses these attributes, by the plain ones.
func (q *qp) makeEither(in *cQPInitAttrEx, extended, plain func() error) error {
	ops := q.sendOps()
	if ops == 0 || extended == nil || q.ctx.plainQPs.Load() {
		return plain()
	}
	asked := *in
	in.compMask = qpInitAttrPD | qpInitAttrSendOps
	in.pd = q.pd.handle
	in.sendOpsFlags = ops
	err := extended()
	if err == nil {
		q.extended = true
		return nil
	}
	if !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.ENOSYS) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	*in = asked
	if plain() != nil {
		return err // that of the call with more to say
	}
	q.ctx.plainQPs.Store(true)
	return nil
}
