//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// leavePatience is for how long a port may be taken that a listener of this process has left: a child
// has copies of the descriptors from fork to execve.
const leavePatience = 100 * time.Millisecond

// left is when listeners of this process left their ports, of those that did so lately.
var left = struct {
	sync.Mutex
	at map[leftPort]time.Time
}{at: map[leftPort]time.Time{}}

type leftPort struct {
	device string
	port   uint16
}

// leave records that a listener of this process has left a port.
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

// leftLately reports whether a port may be taken only by children that are about to let go of it.
func leftLately(device string, port uint16) bool {
	left.Lock()
	defer left.Unlock()
	at, ok := left.at[leftPort{device, port}]
	return ok && time.Since(at) <= leavePatience
}

// claimLeft is claim of a certain port, which may just have been left.
func claimLeft(device string, addr netip.AddrPort, v6only bool) (*portClaim, error) {
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		lately := leftLately(device, addr.Port()) // before the claim: then one was made when it no longer was
		c, err := claim(device, addr, v6only, lockPatience)
		if !lately || !errors.Is(err, unix.EADDRINUSE) {
			return c, err
		}
		time.Sleep(pause)
	}
}
