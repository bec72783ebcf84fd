package rdmanet

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// errnoNames are the errnos that are counted by name; the name of the rest is "other".
var errnoNames = [...]struct {
	errno syscall.Errno
	name  string
}{
	{syscall.EADDRINUSE, "EADDRINUSE"},
	{syscall.EADDRNOTAVAIL, "EADDRNOTAVAIL"},
	{syscall.EACCES, "EACCES"},
	{syscall.EPERM, "EPERM"},
	{syscall.ECONNREFUSED, "ECONNREFUSED"},
	{syscall.ECONNRESET, "ECONNRESET"},
	{syscall.ECONNABORTED, "ECONNABORTED"},
	{syscall.ETIMEDOUT, "ETIMEDOUT"},
	{syscall.EHOSTUNREACH, "EHOSTUNREACH"},
	{syscall.ENETUNREACH, "ENETUNREACH"},
	{syscall.ENODEV, "ENODEV"},
	{syscall.EPIPE, "EPIPE"},
	{syscall.EMFILE, "EMFILE"},
	{syscall.ENFILE, "ENFILE"},
	{syscall.ENOMEM, "ENOMEM"},
}

// otherError is the name of what has no other.
const otherError = "other"

// errnoCounts counts by errnoNames, and at the end the rest.
type errnoCounts [len(errnoNames) + 1]atomic.Uint64

func (c *errnoCounts) count(err error) {
	i := 0
	for i < len(errnoNames) && !errors.Is(err, errnoNames[i].errno) {
		i++
	}
	c[i].Add(1)
}

// read adds what was counted to m, which it makes if there is anything.
func (c *errnoCounts) read(m map[string]uint64) map[string]uint64 {
	for i := range c {
		if i < len(errnoNames) {
			m = put(m, errnoNames[i].name, &c[i])
		} else {
			m = put(m, otherError, &c[i])
		}
	}
	return m
}

func put(m map[string]uint64, name string, n *atomic.Uint64) map[string]uint64 {
	if n := n.Load(); n > 0 {
		if m == nil {
			m = map[string]uint64{}
		}
		m[name] += n
	}
	return m
}

// failures are the ends that connections of a device have met.
type failures struct {
	errnos   errnoCounts
	statuses [maxStatus + 1]atomic.Uint64
}

// maxStatus is what fits in a word of one bit each; the last stands for all beyond it.
const maxStatus = 31

func (f *failures) read() (errnos, statuses map[string]uint64) {
	for status := range f.statuses {
		name := verbs.WCStatus(status).String()
		if status == maxStatus {
			name = otherError
		}
		statuses = put(statuses, name, &f.statuses[status])
	}
	return f.errnos.read(nil), statuses
}

// dialFailures counts dials that failed.
type dialFailures struct {
	timeout, canceled atomic.Uint64
	errnos            errnoCounts
}

func (d *dialFailures) count(err error) {
	switch {
	case errors.Is(err, context.Canceled):
		d.canceled.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded): // the latter alone of a name server
		d.timeout.Add(1)
	default:
		d.errnos.count(err)
	}
}

func (d *dialFailures) read() map[string]uint64 {
	m := put(nil, "timeout", &d.timeout)
	m = put(m, "canceled", &d.canceled)
	return d.errnos.read(m)
}
