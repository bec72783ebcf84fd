//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A sender publishes an entry and then looks whether the receiver sleeps; a receiver
// that is about to sleep says so and then looks for entries. If the processor moved
// either look before the store in front of it, both could miss the other, so each
// needs a full fence there. The sender's is paid with every message and, because a
// fence waits for the stores before it, costs as much as all the rest.
//
// So a receiver that has not slept for a while lets its sender off (ArmedUnfenced) and
// pays for both when it goes to sleep: membarrier(2) has every processor that runs a
// thread of a process that takes part execute a fence. A sender takes part from the
// moment its process has registered for it, and until then uses its own fences. Where
// the kernel does not have the call, or forbids it, everybody does so for ever.

// Commands of membarrier(2).
const (
	membarrierQuery                   = 0
	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2
)

// RemoteFences reports whether this process is registered and may call for fences.
var RemoteFences atomic.Bool

var registerFences sync.Once

// WantRemoteFences registers the process, in the background: the kernel waits until
// all processors have noticed.
func WantRemoteFences() {
	registerFences.Do(func() {
		const need = membarrierGlobalExpedited | membarrierRegisterGlobalExpedited
		if have, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, membarrierQuery, 0, 0); errno != 0 || have&need != need {
			return
		}
		go func() {
			_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterGlobalExpedited, 0, 0)
			RemoteFences.Store(errno == 0)
		}()
	})
}

// FenceAll executes a full fence on all processors that run senders without one.
func FenceAll() error {
	_, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, membarrierGlobalExpedited, 0, 0)
	if errno != 0 {
		return fmt.Errorf("%w (a seccomp filter that came later must go on allowing it)", os.NewSyscallError("membarrier", errno))
	}
	return nil
}
