//go:build linux

package hosts

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A Failure is an error on its way from a worker to the tests: its text, and what
// programs tell errors by.
type Failure struct {
	Text string   // "" if there was no error
	Op   string   // of the *net.OpError; "" if it is none
	Is   []string // names of targets
}

var targets = map[string]error{
	"EOF": io.EOF, "closed": net.ErrClosed, "deadline": os.ErrDeadlineExceeded, "context": context.DeadlineExceeded,
	"ECONNRESET": syscall.ECONNRESET, "ECONNREFUSED": syscall.ECONNREFUSED, "ECONNABORTED": syscall.ECONNABORTED,
	"ETIMEDOUT": syscall.ETIMEDOUT, "EPIPE": syscall.EPIPE, "ENETDOWN": syscall.ENETDOWN,
	"peer gone": rdmanet.ErrPeerGone, "no device": rdmanet.ErrNoDevice, "no route": rdmanet.ErrNoRoute,
}

func failureOf(err error) (f Failure) {
	if err == nil {
		return f
	}
	f.Text = err.Error()
	var op *net.OpError
	if errors.As(err, &op) {
		f.Op = op.Op
	}
	for name, target := range targets {
		if errors.Is(err, target) {
			f.Is = append(f.Is, name)
		}
	}
	slices.Sort(f.Is)
	return f
}

func (f Failure) is(name string) bool { return slices.Contains(f.Is, name) }

func (f Failure) String() string {
	if f.Text == "" {
		return "no error"
	}
	return f.Text
}
