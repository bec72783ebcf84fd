#include "textflag.h"

// func Fetch(p unsafe.Pointer)
TEXT ·Fetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func FetchToWrite(p unsafe.Pointer)
TEXT ·FetchToWrite(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	// PREFETCHW (AX), which the assembler does not know.
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08
	RET
