//go:build !(amd64 || arm64)

package cacheline

import "unsafe"

// Fetch does nothing on this processor.
func Fetch(unsafe.Pointer, int) {}

// FetchToWrite does nothing on this processor.
func FetchToWrite(unsafe.Pointer, int) {}

// Pause does nothing on this processor.
func Pause() {}
