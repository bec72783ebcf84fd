package rdmanet

// A new goroutine has a stack of 2 KiB, unless the runtime has found larger ones usual. A Write needs nearly
// as much again, a dial three times as much. The runtime moves a stack that has become too small, and takes
// ten times as long as for a call to look at each frame: so whoever begins a call makes room for all of it,
// before there are more frames. On a stack with room enough this takes as long as the call of a function
// that does nothing.

const (
	callStack = 1280 // less than a Write or a Read that waits needs, so no stack grows for nothing that these use
	dialStack = 4096
)

// neverGrown is false, which the compiler does not know.
var neverGrown bool

// growCallStack makes room for a Read or a Write.
//
//go:noinline
func growCallStack() {
	if neverGrown {
		var frame [callStack]byte
		useFrame(frame[:])
	}
}

// growDialStack makes room for a dial.
//
//go:noinline
func growDialStack() {
	if neverGrown {
		var frame [dialStack]byte
		useFrame(frame[:])
	}
}

//go:noinline
func useFrame([]byte) {}
