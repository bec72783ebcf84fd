//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"time"
)

// leavePatience is for how long a port may be taken that an id of this process has left: a child has copies
// of the descriptors from fork to execve, and a connection's socket is closed when nobody reads it any more.
const leavePatience = time.Second

// left is when ids of this process left their ports, of those that did so lately.
var left = struct {
	sync.Mutex
	at map[leftPort]time.Time
}{at: map[leftPort]time.Time{}}

type leftPort struct {
	device string
	port   uint16
}

// leave records that an id of this process has left a port.
func leave(device string, port uint16) {
	left.Lock()
	defer left.Unlock()
	for p, at := range left.at {
		if time.Since(at) > leavePatience {
			delete(left.at, p)
		}
	}
	left.at[leftPort{device, port}] = time.Now()
}

// leftLately reports whether a port may be taken only by what is about to let go of it.
func leftLately(device string, port uint16) bool {
	left.Lock()
	defer left.Unlock()
	at, ok := left.at[leftPort{device, port}]
	return ok && time.Since(at) <= leavePatience
}
