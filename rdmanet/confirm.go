package rdmanet

import (
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

const (
	// maxReads is how many READs may be under way each way: more would be more memory of
	// the device, and with fewer the send queue waits.
	maxReads = 16

	// confirmLen is what a READ reads: one of nothing would do, but siw answers it with the
	// length of another.
	confirmLen = 8
)

// A confirmation is what an endpoint needs where a completion says only that TCP has taken
// the request (iWARP): a READ, which the peer's device answers when it has placed and
// delivered all that was sent before (RFC 5040, section 5.5). It reads the peer's credit
// block into the own one, which are both otherwise unused where doorbells are SENDs.
type confirmation struct {
	mr       verbs.MR // as it was told to the peer, which reads there until it is closed
	peerAddr uint64
	peerRKey uint32 // as it was told
	reads    uint8  // that each end may have under way
}

// newConfirmation returns nil where completions are answers of the peer's device. The software
// device is not asked unless it is to be treated as one of a network.
func newConfirmation(transport verbs.Transport, attr *verbs.DeviceAttr, confirming bool) *confirmation {
	if transport != verbs.TransportIWARP || attr.Caps&verbs.CapSameHost != 0 && !confirming {
		return nil
	}
	return &confirmation{reads: uint8(min(maxReads, attr.MaxQPRdAtom, attr.MaxQPInitRdAtom))}
}

// request makes the READ of r.
func (f *confirmation) request(r *requests) []verbs.SendWR {
	r.sge[0] = verbs.SGE{Addr: f.mr.Addr() + ring.CreditOffset, Length: confirmLen, LKey: f.mr.LKey()}
	r.wrs[0] = verbs.SendWR{
		Opcode: verbs.WRRDMARead, SGList: r.sge[:1],
		RemoteAddr: f.peerAddr + ring.CreditOffset, RKey: f.peerRKey,
	}
	return r.wrs[:1]
}

// maxReads is how many READs each end asks the connection manager for; 0 but on iWARP.
func (e *endpoint) maxReads() uint8 {
	if e.confirm == nil {
		return 0
	}
	return e.confirm.reads
}
