package link

import (
	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	// maxReads is how many READs may be under way each way: more would be more memory of the
	// device, and with fewer the send queue waits more often.
	maxReads = 16

	// confirmLen is what a READ reads, the first record: one of nothing would do, but siw answers
	// it with the length of another, and with 32 bytes or less it now and then ends the connection
	// instead (see internal/verbs/ibv/softiwarp.go).
	confirmLen = lane.RecordLen
)

// A confirmation is what a lane needs where a completion says only that TCP has taken the
// request, and not that it may not look at the source again (iWARP): a READ, which the peer's
// device answers when it has placed and delivered all that was sent before (RFC 5040, section
// 5.5). It reads from the peer's ring of records to behind the own one, and what it brings is
// of no interest.
type confirmation struct {
	reads uint8 // that may be under way each way
	sge   [1]verbs.SGE
	addr  uint64 // of the peer's ring of records
	rkey  uint32
	wr    [1]verbs.SendWR
}

// newConfirmation returns nil where completions are answers of the peer's device. Within a
// host they need to be none.
func newConfirmation(t verbs.Transport, attr *verbs.DeviceAttr) *confirmation {
	if t != verbs.TransportIWARP || attr.Caps&verbs.CapSameHost != 0 {
		return nil
	}
	return &confirmation{reads: uint8(min(maxReads, attr.MaxQPRdAtom, attr.MaxQPInitRdAtom))}
}

// request makes the READ.
func (c *confirmation) request() []verbs.SendWR {
	c.wr[0] = verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: c.sge[:], RemoteAddr: c.addr, RKey: c.rkey}
	return c.wr[:]
}

// boundReads keeps to what the peer has said about READs: neither end takes more at once than it has announced
// (rdma_get_cm_event(3), RFC 6581). 0 says nothing, as where devices do not negotiate it.
func (p *endpoint) boundReads(peer *cm.ConnParam) {
	if p.confirm == nil {
		return
	}
	for _, n := range []uint8{peer.ResponderResources, peer.InitiatorDepth} {
		if n > 0 {
			p.confirm.reads = min(p.confirm.reads, n)
		}
	}
}

// maxReads is how many READs each end asks the connection manager for; 0 but on iWARP.
func (p *endpoint) maxReads() uint8 {
	if p.confirm == nil {
		return 0
	}
	return p.confirm.reads
}
