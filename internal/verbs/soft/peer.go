//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
)

// maxMapped bounds the MRs of one peer that are mapped. Each stream that moves much has a ring in one of
// its own, and to map them in turns costs more than their bytes do.
const maxMapped = 4096

// sureMapped is how many a peer has mapped also where the process has mapped shm.ManyMRs.
const sureMapped = 64

// peer is what a connected QP has of the other end. qp.mu guards it.
type peer struct {
	qpn     uint32
	local   bool // it is of this process
	out     shm.Outbox
	srq     srqView         // nil: the peer has a receive queue of its own
	door    *doorbell       // nil: the peer only polls
	mrs     []*shm.RemoteMR // in the order in which they came
	byKey   map[uint32]*shm.RemoteMR
	mapped  int             // bytes of them
	last    *shm.RemoteMR   // the one used last
	refused uint32          // the key the peer has just said it does not know; 0 is none
	bounced bool            // the bounce area may be used
	kicked  bool            // the peer was asked to look into its inbox and has not answered
	again   bool            // it must be asked once more then
	asked   bool            // likewise for the MR or the bounce area that the oldest request waits for
	asks    []ask           // for MRs, of which the answer has not come; answers come in this order
	missed  int             // how often in a row there was no descriptor or no room for the MR that came
	missing time.Time       // when that was first so
	pausing bool            // and it is to be asked for again after a pause: no answer is under way
	stalled uint64          // bytes taken from the bounce area, plus one, when it was asked because that was full
	writing int             // posts that copy into an MR without mu
	dropped []*shm.RemoteMR // to be unmapped when none does
}

// An ask is a question for an MR.
type ask struct {
	key   uint32
	waits bool             // the oldest request that waits does so for the answer
	got   func(known bool) // is told of the answer, or nil
}

// asking returns the question for an MR that is under way, or nil.
func (p *peer) asking(rkey uint32) *ask {
	for i := range p.asks {
		if p.asks[i].key == rkey {
			return &p.asks[i]
		}
	}
	return nil
}

// answered takes the question that has been answered. There must be one.
func (p *peer) answered() ask {
	a := p.asks[0]
	p.asks = slices.Delete(p.asks, 0, 1)
	return a
}

// find returns the mapping of an MR, or nil. A thousand streams write to as many by turns.
func (p *peer) find(rkey uint32) *shm.RemoteMR { return p.byKey[rkey] }

// add takes a mapping; the oldest make room for it.
func (p *peer) add(m *shm.RemoteMR) {
	p.drop(m.Key)
	full := len(p.mrs) == maxMapped || len(p.mrs) >= sureMapped && shm.MappedMRs.Load() > shm.ManyMRs
	for len(p.mrs) > 0 && (full || p.mapped+len(m.Mapped) > shm.MaxPeerMapped) {
		p.drop(p.mrs[0].Key)
		full = false
	}
	p.mapped += len(m.Mapped)
	p.mrs = append(p.mrs, m)
	if p.byKey == nil {
		p.byKey = map[uint32]*shm.RemoteMR{}
	}
	p.byKey[m.Key] = m
}

// drop ends the mapping of an MR.
func (p *peer) drop(rkey uint32) {
	m := p.find(rkey)
	if m == nil {
		return
	}
	i := slices.Index(p.mrs, m)
	p.mrs = slices.Delete(p.mrs, i, i+1)
	delete(p.byKey, rkey)
	p.mapped -= len(m.Mapped)
	p.last = nil
	if p.writing > 0 {
		p.dropped = append(p.dropped, m)
	} else {
		m.Unmap()
	}
}

// unmap lets go of everything.
func (p *peer) unmap() {
	for len(p.mrs) > 0 {
		p.drop(p.mrs[0].Key)
	}
	p.out.Unmap()
	if p.srq != nil {
		_ = shm.Unmap(p.srq)
	}
	if p.door != nil {
		p.door.release()
	}
}

func (m *mr) offer() shm.MROffer {
	return shm.MROffer{Key: m.key, Access: m.access, Addr: m.addr, Size: uint64(len(m.buf)), Off: uint64(m.memOff)}
}

// dupFDs duplicates descriptors, all or none.
func dupFDs(fds []int) ([]int, error) {
	out := make([]int, 0, len(fds))
	for _, fd := range fds {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			control.CloseFDs(out)
			return nil, os.NewSyscallError("fcntl", err)
		}
		out = append(out, d)
	}
	return out, nil
}

// ownPID is asked for once: that is a system call.
var ownPID = os.Getpid()

// findLocal looks whether the peer at the other end of s is a QP of this process. Another process
// may claim any QPN: the kernel says who it is. But where processes share a listening socket
// (cmshare.go) it names the last that has joined, whoever accepts: so the QPN must be one of ours, too.
func (p *peer) findLocal(ctx *devContext, s *control.Socket) {
	if pid, _, err := s.PeerCred(); err != nil || int(pid) != ownPID {
		return
	}
	p.local = ownQPN(ctx.dev, p.qpn)
	if p.door == nil {
		return
	}
	if q := ctx.qpns.find(p.qpn); q != nil {
		p.door.local.Store(q.recvCQ.channel)
	}
}
