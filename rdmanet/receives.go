package rdmanet

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// blankRecvs are receives without memory: a WRITE_WITH_IMM needs no more. They
// are never written to.
var blankRecvs [64]verbs.RecvWR

// postAll posts the first n receives.
func (e *endpoint) postAll(n int) error {
	if !e.writeImm {
		return e.sends.postAll(e.qp)
	}
	for n > 0 {
		posted, err := e.qp.PostRecv(blankRecvs[:min(n, len(blankRecvs))])
		if err != nil {
			return err
		}
		n -= posted
	}
	return nil
}

// repost posts the receives of completions again, ring.MaxHeld or more at once: that
// costs hardly more than one. The caller holds mu.
func (r *receiveHalf) repost(wcs []verbs.WC) error {
	r.reaped += uint32(len(wcs))
	var n int
	var err error
	switch {
	case !r.ep.writeImm:
		n, err = r.ep.sends.repost(r.ep.qp, wcs)
	case r.reaped >= ring.MaxHeld:
		n, err = r.ep.qp.PostRecv(blankRecvs[:min(int(r.reaped), len(blankRecvs))])
	}
	r.ring.Reposted(uint32(n))
	r.reaped -= uint32(n)
	return err
}

// sendDoorbells are the receive buffers of a device without WRITE_WITH_IMM, where
// the immediate arrives as a SEND of its four bytes, big-endian (RFC 5040 knows no
// immediate), and a credit in the same SEND: two WRITEs to one credit block may be
// placed in any order there (RFC 5040, section 5.5).
type sendDoorbells struct {
	memory verbs.Memory
	mr     verbs.MR
	wrs    []verbs.RecvWR // wrs[i] receives into slot i and has i as its WRID
	batch  []verbs.RecvWR
}

const (
	doorbellLen = 4
	sentLen     = doorbellLen + ring.KeyedCreditLen // the longest SEND
)

func (s *sendDoorbells) init(e *endpoint, ctx verbs.Context, depth int) (err error) {
	if s.memory, err = e.pinned.alloc(ctx, depth*sentLen, depth*sentLen, depth*sentLen); err != nil {
		return err
	}
	if s.mr, err = e.pd.RegMR(s.memory.Bytes()[:depth*sentLen], verbs.AccessLocalWrite); err != nil {
		return err
	}
	s.wrs = make([]verbs.RecvWR, depth)
	s.batch = make([]verbs.RecvWR, 0, len(completions{}))
	sges := make([]verbs.SGE, depth)
	for i := range s.wrs {
		sges[i] = verbs.SGE{Addr: s.mr.Addr() + uint64(i*sentLen), Length: sentLen, LKey: s.mr.LKey()}
		s.wrs[i] = verbs.RecvWR{WRID: uint64(i), SGList: sges[i : i+1]}
	}
	return nil
}

func (s *sendDoorbells) postAll(qp verbs.QP) error {
	_, err := qp.PostRecv(s.wrs)
	return err
}

func (s *sendDoorbells) repost(qp verbs.QP, wcs []verbs.WC) (int, error) {
	s.batch = s.batch[:0]
	for i := range wcs {
		s.batch = append(s.batch, s.wrs[wcs[i].WRID])
	}
	return qp.PostRecv(s.batch)
}

func (s *sendDoorbells) destroy() error {
	if s == nil || s.mr == nil {
		return nil
	}
	return s.mr.Close()
}

// sent is what arrived as a SEND: the immediate, and a credit if there is one. It is
// good until the receive is posted again.
func (e *endpoint) sent(wc *verbs.WC) (imm uint32, credit []byte, err error) {
	if e.writeImm {
		return 0, nil, fmt.Errorf("%w: a SEND arrived where doorbells ride on WRITE_WITH_IMM", ErrProtocol)
	}
	n := int(wc.ByteLen)
	if n != doorbellLen && n != doorbellLen+e.creditLen() {
		return 0, nil, fmt.Errorf("%w: a SEND of %d bytes, a doorbell has %d, a credit %d", ErrProtocol, n, doorbellLen, doorbellLen+e.creditLen())
	}
	b := e.sends.memory.Bytes()[wc.WRID*sentLen:][:n]
	imm = binary.BigEndian.Uint32(b)
	if isCredit := ring.Kind(imm>>28) == ring.KindCredit; isCredit != (n > doorbellLen) {
		return 0, nil, fmt.Errorf("%w: a SEND of %d bytes with the doorbell %#08x", ErrProtocol, n, imm)
	}
	return imm, b[doorbellLen:], nil
}
