//go:build amd64 || arm64

package cacheline

import "unsafe"

// Fetch asks for the line at p, to read it soon. p may be anywhere: a line that cannot be had is not an
// error.
//
//go:noescape
func Fetch(p unsafe.Pointer)

// FetchToWrite is Fetch for a line to be written to, which no other processor keeps then.
//
//go:noescape
func FetchToWrite(p unsafe.Pointer)
