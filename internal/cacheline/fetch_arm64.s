#include "textflag.h"

// func Fetch(p unsafe.Pointer, n int)
TEXT ·Fetch(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	ADD  R0, R1
	AND  $~63, R0
line:
	PRFM (R0), PLDL1KEEP
	ADD  $64, R0
	CMP  R1, R0
	BLO  line
	RET

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	YIELD
	RET

// func FetchToWrite(p unsafe.Pointer, n int)
TEXT ·FetchToWrite(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	ADD  R0, R1
	AND  $~63, R0
line:
	PRFM (R0), PSTL1KEEP
	ADD  $64, R0
	CMP  R1, R0
	BLO  line
	RET
