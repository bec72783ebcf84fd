//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"math/bits"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// wcOpcodes translates ibv_wc_opcode up to IBV_WC_ATOMIC_WRITE.
var wcOpcodes = [...]verbs.WCOpcode{
	wcSend:        verbs.WCSend,
	wcRDMAWrite:   verbs.WCRDMAWrite,
	wcRDMARead:    verbs.WCRDMARead,
	wcCompSwap:    verbs.WCCompSwap,
	wcFetchAdd:    verbs.WCFetchAdd,
	wcBindMW:      verbs.WCBindMW,
	wcLocalInv:    verbs.WCLocalInv,
	wcAtomicWrite: verbs.WCAtomicWrite,
}

// into writes the completion as verbs.WC. mask takes away flags that mean nothing
// for the QPs of the CQ: soft-RoCE says WCGRH of every receive. inv is limits.withInv.
func (c *cWC) into(wc *verbs.WC, mask verbs.WCFlags, inv uint32) {
	wc.WRID = c.wrID
	wc.Status = verbs.WCStatus(c.status)
	wc.Opcode = 0
	switch {
	case c.opcode == wcRecv:
		wc.Opcode = verbs.WCRecv
	case c.opcode == wcRecvRDMAWithImm:
		wc.Opcode = verbs.WCRecvRDMAWithImm
	case c.opcode < uint32(len(wcOpcodes)):
		wc.Opcode = wcOpcodes[c.opcode]
	}
	wc.VendorErr = c.vendorErr
	wc.ByteLen = c.byteLen
	wc.QPN = c.qpNum
	wc.SrcQP = c.srcQP
	wc.SLID, wc.SL, wc.DLIDPathBits = c.slid, c.sl, c.dlidPathBits
	wc.Flags, wc.ImmData, wc.InvRKey = 0, 0, 0
	if c.flags == 0 || wc.Status != verbs.WCSuccess {
		return
	}
	if c.flags&wcWithImm != 0 {
		wc.Flags |= verbs.WCWithImm
		wc.ImmData = bits.ReverseBytes32(c.immData)
	}
	if c.flags&inv != 0 {
		wc.Flags |= verbs.WCWithInv
		wc.InvRKey = c.immData
	}
	if c.flags&wcGRH != 0 {
		wc.Flags |= verbs.WCGRH
	}
	wc.Flags &= mask
}
