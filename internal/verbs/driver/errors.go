package driver

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Explain returns an error with a text of its own, in which errors.Is and errors.As find the
// causes: where the text says all that theirs do, or whoever shows it does so already.
func Explain(text string, causes ...error) error { return &explained{text, causes} }

type explained struct {
	text   string
	causes []error
}

func (e *explained) Error() string   { return e.text }
func (e *explained) Unwrap() []error { return e.causes }

// NoListener is the text of a dial to an address of a device at which nobody listens.
func NoListener(device string) string {
	return "no RDMA listener on " + device + " (is the server on plain TCP, or in another network namespace?)"
}

// PollerError is what err of a file's SetDeadline means where the file is of a kind that the
// network poller takes: if it did not take this one, the system had no memory for that.
func PollerError(err error) error {
	if errors.Is(err, os.ErrNoDeadline) {
		return fmt.Errorf("%w: %w (raise fs.epoll.max_user_watches, or free memory)", verbs.ErrNoMemory, os.NewSyscallError("epoll_ctl", syscall.ENOMEM))
	}
	return err
}
