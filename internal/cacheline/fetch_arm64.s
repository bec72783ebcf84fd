#include "textflag.h"

// func Fetch(p unsafe.Pointer)
TEXT ·Fetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func FetchToWrite(p unsafe.Pointer)
TEXT ·FetchToWrite(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PSTL1KEEP
	RET
