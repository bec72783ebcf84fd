//go:build amd64 || arm64

package cacheline

import "unsafe"

// Fetch asks for the lines in which the n bytes at p lie, one at least, to read them soon. They may be
// anywhere: a line that cannot be had is not an error.
//
//go:noescape
func Fetch(p unsafe.Pointer, n int)

// FetchToWrite is Fetch for lines to be written to, which no other processor keeps then.
//
//go:noescape
func FetchToWrite(p unsafe.Pointer, n int)

// Pause is for a loop that waits until another processor writes to a line: the one that shares its core
// has more of that meanwhile (Intel 64 and IA-32 Architectures SDM, PAUSE; Arm A64, YIELD). It takes about a
// hundred cycles on amd64, and may take none on arm64.
func Pause()
