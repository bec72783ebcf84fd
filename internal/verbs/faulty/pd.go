package faulty

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// pd is a verbs.PD over another. Its address handles and memory windows are those of the device below.
type pd struct {
	verbs.PD
	ctx *Context
}

func (p *pd) Context() verbs.Context { return p.ctx }

func (p *pd) Close() error { return p.ctx.d.gone(kindPD, p.PD.Close()) }

func (p *pd) RegMR(buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	if err := p.ctx.d.ask(RegMR); err != nil {
		return nil, err
	}
	under, err := p.PD.RegMR(buf, access)
	if err != nil {
		return nil, err
	}
	p.ctx.d.made(kindMR)
	m := &mr{under, p, buf}
	p.ctx.keys.add(m)
	return m, nil
}

type mr struct {
	verbs.MR
	pd  *pd
	buf []byte
}

func (m *mr) PD() verbs.PD { return m.pd }

func (m *mr) Close() error { return m.gone(m.MR.Close()) }

// ClosePatiently implements driver.PatientMR.
func (m *mr) ClosePatiently() error {
	if p, ok := m.MR.(driver.PatientMR); ok {
		return m.gone(p.ClosePatiently())
	}
	return m.Close()
}

// gone takes in that the MR below was closed, unless that failed.
func (m *mr) gone(err error) error {
	if err == nil {
		m.pd.ctx.closed(m)
	}
	return m.pd.ctx.d.gone(kindMR, err)
}

func (p *pd) CreateQP(attr *verbs.QPInitAttr) (verbs.QP, error) {
	return p.createQP(attr, p.PD.CreateQP)
}

// createQP makes a QP in the way that create does on the device below.
func (p *pd) createQP(attr *verbs.QPInitAttr, create func(*verbs.QPInitAttr) (verbs.QP, error)) (verbs.QP, error) {
	if err := p.ctx.d.ask(CreateQP); err != nil {
		return nil, err
	}
	below := *attr
	q := &QP{pd: p}
	var ok bool
	if attr.SendCQ != nil {
		if q.sendCQ, ok = attr.SendCQ.(*CQ); !ok {
			return nil, errOther
		}
		below.SendCQ = q.sendCQ.CQ
	}
	if attr.RecvCQ != nil {
		if q.recvCQ, ok = attr.RecvCQ.(*CQ); !ok {
			return nil, errOther
		}
		below.RecvCQ = q.recvCQ.CQ
	}
	if attr.SRQ != nil {
		if q.srq, ok = attr.SRQ.(*srq); !ok {
			return nil, errOther
		}
		below.SRQ = q.srq.SRQ
	}
	under, err := create(&below)
	if err != nil {
		return nil, err
	}
	attr.Cap = below.Cap
	q.QP = under
	p.ctx.d.made(kindQP)
	q.open()
	return q, nil
}

var errOther = fmt.Errorf("%w: object of another device", verbs.ErrInvalid)

func (p *pd) CreateSRQ(attr *verbs.SRQInitAttr) (verbs.SRQ, error) {
	if err := p.ctx.d.ask(CreateSRQ); err != nil {
		return nil, err
	}
	under, err := p.PD.CreateSRQ(attr)
	if err != nil {
		return nil, err
	}
	p.ctx.d.made(kindSRQ)
	s := &srq{under, p}
	p.ctx.mu.Lock()
	p.ctx.srqs[under] = s
	p.ctx.mu.Unlock()
	return s, nil
}

type srq struct {
	verbs.SRQ
	pd *pd
}

func (s *srq) PD() verbs.PD { return s.pd }

func (s *srq) Close() error {
	err := s.pd.ctx.d.gone(kindSRQ, s.SRQ.Close())
	if err == nil {
		s.pd.ctx.mu.Lock()
		delete(s.pd.ctx.srqs, s.SRQ)
		s.pd.ctx.mu.Unlock()
	}
	return err
}
