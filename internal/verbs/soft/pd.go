//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs/object"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// pd is verbs.PD.
type pd struct {
	ctx   *devContext
	users object.Users // MRs, QPs, SRQs, MWs and AHs

	mu  sync.Mutex
	mrs []*mr
	qps []*qp
}

func (p *pd) Context() verbs.Context { return p.ctx }

// without removes x from s, if it is there.
func without[T comparable](s []T, x T) []T {
	if i := slices.Index(s, x); i >= 0 {
		return slices.Delete(s, i, i+1)
	}
	return s
}

func (p *pd) RegMR(buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	m, err := object.Create(&p.users, func() (*mr, error) { return newMR(p, buf, access) })
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.mrs = append(p.mrs, m)
	p.mu.Unlock()
	return m, nil
}

func (p *pd) CreateQP(attr *verbs.QPInitAttr) (verbs.QP, error) {
	q, err := object.Create(&p.users, func() (*qp, error) { return newQP(p, attr) })
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.qps = append(p.qps, q)
	p.mu.Unlock()
	return q, nil
}

func (p *pd) CreateSRQ(attr *verbs.SRQInitAttr) (verbs.SRQ, error) {
	return object.Create(&p.users, func() (verbs.SRQ, error) { return newSRQ(p, attr) })
}

// quiesce waits until no verb that looked up a key before the call is still
// using it: they all hold one of these locks while they do.
func (p *pd) quiesce() {
	p.mu.Lock()
	qps := slices.Clone(p.qps)
	p.mu.Unlock()
	for _, q := range qps {
		for _, mu := range []*sync.Mutex{&q.mu, &q.recvCQ.mu} {
			mu.Lock()
			//lint:ignore SA2001 taking the lock is the wait
			mu.Unlock()
		}
	}
}

func (p *pd) Close() error {
	err := p.users.Close(func(users int) error {
		if users > 0 {
			return fmt.Errorf("%w: %d MRs, QPs or SRQs belong to the PD", verbs.ErrBusy, users)
		}
		return nil
	})
	if err == nil {
		p.ctx.users.Release()
	}
	return err
}
