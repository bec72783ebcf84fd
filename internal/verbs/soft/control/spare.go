//go:build linux && (amd64 || arm64)

package control

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A connection that stands must be given an MR of its peer now and then, which comes with a
// descriptor, also where the process has used up all that it may have. The descriptor is needed
// only until the MR is mapped. So one is kept for that, the spare, which makes room for it. It is
// lost to whoever opens something in the moment in between, until there is one again.
var spare = struct {
	mu   sync.Mutex
	of   int // what it is a duplicate of; -1 for none
	held int // -1 for none
}{of: -1, held: -1}

// KeepSpare takes the spare, unless there is one or no descriptor for it.
func KeepSpare() {
	spare.mu.Lock()
	defer spare.mu.Unlock()
	if spare.of < 0 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return
		}
		spare.of = fd
	}
	if spare.held < 0 {
		if fd, err := unix.FcntlInt(uintptr(spare.of), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			spare.held = fd
		}
	}
}

// RecvSparing is Recv of a message that is there, as Peek has found, and brings one descriptor, for
// which the spare is given up. The descriptor is use's until that returns.
func (s *Socket) RecvSparing(buf []byte, use func(n, fd int) error) error {
	// What a hostile peer has sent is closed when the spare is nobody's any more: that may take
	// for ever, as with a file of its own file system. Memory that has been used does not.
	fds, err := s.recvSparing(buf, use)
	CloseFDs(fds)
	KeepSpare()
	return err
}

func (s *Socket) recvSparing(buf []byte, use func(n, fd int) error) (left []int, err error) {
	spare.mu.Lock()
	defer spare.mu.Unlock()
	if spare.held >= 0 {
		unix.Close(spare.held)
		spare.held = -1
	}
	n, fds, err := s.recv(buf, 1)
	switch {
	case err != nil:
		return fds, err
	case len(fds) == 0:
		return nil, fmt.Errorf("no descriptor in a message: %w", verbs.ErrProtocol)
	}
	if err := use(n, fds[0]); err != nil {
		return fds, err
	}
	// The number becomes the spare again in one step, in which nobody can take it.
	if spare.of < 0 || unix.Dup3(spare.of, fds[0], unix.O_CLOEXEC) != nil {
		return fds, nil
	}
	spare.held = fds[0]
	return nil, nil
}
