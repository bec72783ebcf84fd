//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/verbs"
)

const allFlags = verbs.WCWithImm | verbs.WCWithInv | verbs.WCGRH

func TestCompletion(t *testing.T) {
	full := cWC{
		wrID: 1 << 63, status: 0, opcode: wcRecvRDMAWithImm, vendorErr: 7, byteLen: 100,
		immData: 0x04030201, qpNum: 17, srcQP: 18, flags: wcWithImm | wcGRH,
	}
	// Whatever was in the WC before is gone.
	wc := verbs.WC{Flags: 0xff, ImmData: 1, InvRKey: 2, Opcode: 99}
	full.into(&wc, allFlags, wcWithInv)
	assert.Equal(t, verbs.WC{
		WRID: 1 << 63, Opcode: verbs.WCRecvRDMAWithImm, VendorErr: 7, ByteLen: 100,
		ImmData: 0x01020304, QPN: 17, SrcQP: 18, Flags: verbs.WCWithImm | verbs.WCGRH,
	}, wc)
	full.into(&wc, verbs.WCWithImm|verbs.WCWithInv, wcWithInv)
	assert.Equal(t, verbs.WCWithImm, wc.Flags, "a GRH means nothing to a connected QP")

	inv := cWC{opcode: wcRecv, immData: 0x04030201, flags: wcWithInv}
	inv.into(&wc, allFlags, wcWithInv)
	assert.Equal(t, verbs.WC{Opcode: verbs.WCRecv, InvRKey: 0x04030201, Flags: verbs.WCWithInv}, wc)

	inv.flags = wcGRH | wcKernelWithInv
	inv.into(&wc, verbs.WCWithImm|verbs.WCWithInv, wcWithInv|wcKernelWithInv)
	assert.Equal(t, verbs.WC{Opcode: verbs.WCRecv, InvRKey: 0x04030201, Flags: verbs.WCWithInv}, wc, "as soft-RoCE says it")

	bad := cWC{wrID: 5, status: 10, opcode: 77, immData: 9, flags: wcWithImm, qpNum: 3}
	bad.into(&wc, allFlags, wcWithInv)
	assert.Equal(t, verbs.WC{WRID: 5, Status: verbs.WCRemAccessErr, QPN: 3}, wc, "of a failure only the id and the cause count")
}

func TestCompletionOpcodes(t *testing.T) {
	for c, want := range map[uint32]verbs.WCOpcode{
		wcSend: verbs.WCSend, wcRDMAWrite: verbs.WCRDMAWrite, wcRDMARead: verbs.WCRDMARead, wcCompSwap: verbs.WCCompSwap,
		wcFetchAdd: verbs.WCFetchAdd, wcLocalInv: verbs.WCLocalInv, wcBindMW: verbs.WCBindMW, wcAtomicWrite: verbs.WCAtomicWrite,
		wcRecv: verbs.WCRecv, wcRecvRDMAWithImm: verbs.WCRecvRDMAWithImm,
	} {
		var wc verbs.WC
		(&cWC{opcode: c}).into(&wc, 0, wcWithInv)
		assert.Equal(t, want, wc.Opcode)
	}
}
