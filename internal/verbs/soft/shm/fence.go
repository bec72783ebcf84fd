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
//
// The fence of other processes has a hole. Linux notes for each processor whether the
// process it runs takes part, where it begins to run one and, when a process registers,
// where that is running. A processor that idles between two threads of the process just
// then has no note until it has run another process, and is left out (found on 6.18). So
// a receiver asks for its own process's fence where its sender is of its process, which
// needs no note, and looks again a little later where it is not.

// Commands of membarrier(2).
const (
	membarrierQuery                    = 0
	membarrierGlobalExpedited          = 1 << 1
	membarrierRegisterGlobalExpedited  = 1 << 2
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
)

// RemoteFences reports whether this process is registered and may call for fences.
var RemoteFences atomic.Bool

var registerFences sync.Once

// WantRemoteFences registers the process, in the background: the kernel waits until
// all processors have noticed.
func WantRemoteFences() {
	registerFences.Do(func() {
		const need = membarrierGlobalExpedited | membarrierRegisterGlobalExpedited |
			membarrierPrivateExpedited | membarrierRegisterPrivateExpedited
		if have, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, membarrierQuery, 0, 0); errno != 0 || have&need != need {
			return
		}
		go func() {
			for _, cmd := range []uintptr{membarrierRegisterGlobalExpedited, membarrierRegisterPrivateExpedited} {
				if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0); errno != 0 {
					return
				}
			}
			RemoteFences.Store(true)
		}()
	})
}

// FenceOwn executes a full fence on all processors that run threads of this process.
func FenceOwn() error { return membarrier(membarrierPrivateExpedited) }

// FenceAll executes a full fence on processors that run senders without one, of any
// process. It may miss one of another process.
func FenceAll() error { return membarrier(membarrierGlobalExpedited) }

func membarrier(cmd uintptr) error {
	_, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, cmd, 0, 0)
	if errno != 0 {
		return fmt.Errorf("%w (a seccomp filter that came later must go on allowing it)", os.NewSyscallError("membarrier", errno))
	}
	return nil
}
