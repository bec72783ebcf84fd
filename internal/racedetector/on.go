//go:build race

package racedetector

import (
	"runtime"
	"unsafe"
)

// Enabled reports whether the race detector is on. It allocates, and takes several times as long.
const Enabled = true

// sent is what a Release is of: all that this process sends, as in package syscall.
var sent byte

// Release tells the race detector that what was done before is done before whatever comes behind an Acquire.
func Release() { runtime.RaceReleaseMerge(unsafe.Pointer(&sent)) }

// Acquire is the other half of Release.
func Acquire() { runtime.RaceAcquire(unsafe.Pointer(&sent)) }
