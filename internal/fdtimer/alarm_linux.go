package fdtimer

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// A timerfd is an alarm whose expiry the network poller sees. It is never read: the poller is
// edge-triggered, and setting it forgets the former expiry.
type timerfd struct {
	fd     uintptr
	file   *os.File // which is not closed
	raw    syscall.RawConn
	waited bool
	poll   func(fd uintptr) bool // arm; made once, as a wait allocates nothing
}

// newAlarm opens a timerfd.
func newAlarm() alarm {
	const monotonic = 1 // CLOCK_MONOTONIC
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, monotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return newGoAlarm()
	}
	f := os.NewFile(fd, "fdtimer")
	raw, err := f.SyscallConn()
	if err != nil || f.SetDeadline(time.Time{}) != nil { // the poller does not take it
		f.Close()
		return newGoAlarm()
	}
	t := &timerfd{fd: fd, file: f, raw: raw}
	t.poll = t.arm
	return t
}

func (t *timerfd) set() {
	// 0 would be never. The call does not wait. Made as one that may, it would wake the runtime's monitor thread in a
	// process that was asleep, which then looks after it every 20 us for a while.
	var spec struct{ interval, value syscall.Timespec }
	spec.value = syscall.NsecToTimespec(max(int64(time.Until(until)), 1))
	_, _, _ = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, t.fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

func (t *timerfd) wait() {
	t.waited = false
	_ = t.raw.Read(t.poll)
}

// arm sets the alarm when a wait has begun, since that forgets an earlier expiry, and ends it
// when it is called again.
func (t *timerfd) arm(uintptr) (over bool) {
	if t.waited {
		return true
	}
	t.waited = true
	mu.Lock()
	defer mu.Unlock()
	t.set()
	return false
}
