//go:build linux && (amd64 || arm64)

package soft

import "runtime"

// deepStack is what making a connection, or ending one, takes of a stack.
const deepStack = 6 << 10

// deepen gives a goroutine that has just begun the stack that it is going to need. It would
// get there anyhow, but in steps, each of which moves and adjusts all frames that there
// are by then: that was a tenth of what a connection costs.
//
//go:noinline
func deepen() {
	var room [deepStack]byte
	runtime.KeepAlive(&room)
}
