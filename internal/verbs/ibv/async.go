//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/event"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// asyncEvents reads a context's asynchronous events on one goroutine, parked in
// the network poller: also those that nobody waits for have consequences (an
// overrun kills the CQ), and destroying an object waits for its events.
type asyncEvents struct {
	ctx   *devContext
	file  *os.File // a duplicate of async_fd
	queue event.Async
	done  chan struct{}
}

// startAsync sets the context's async.
func startAsync(ctx *devContext) error {
	file, err := pollable(int(at[cContext](ctx.handle).asyncFD), "rdma-async-events")
	if err != nil {
		return err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return err
	}
	// The device may be lost before this returns, and then the context is retired.
	ctx.async = &asyncEvents{ctx: ctx, file: file, done: make(chan struct{})}
	go ctx.async.run(raw)
	return nil
}

// pollable is a duplicate of a descriptor, in the network poller. The description
// they share is made non-blocking, so the library's reads no longer wait either.
func pollable(fd int, name string) (*os.File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, failed("fcntl(F_DUPFD_CLOEXEC)", errnoOf(err))
	}
	if err := unix.SetNonblock(own, true); err != nil {
		unix.Close(own)
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(own), name)
	if err := driver.PollerError(file.SetDeadline(time.Time{})); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return syscall.EINVAL
	}
	return errno
}

func (a *asyncEvents) run(raw syscall.RawConn) {
	fatal := a.read(raw)
	close(a.done)
	if fatal {
		// Not before the library is left alone: whoever hears of it may close the last
		// id, with which librdmacm may free the context.
		a.ctx.lost()
	}
}

// read hands the events over until the file is closed, or until the device is of no use
// any more, which it returns.
func (a *asyncEvents) read(raw syscall.RawConn) (fatal bool) {
	_ = raw.Read(func(uintptr) bool {
		for {
			var ev cAsyncEvent
			r, errno := a.ctx.lib.callErrno(a.ctx.lib.getAsyncEvent, a.ctx.handle, uintptr(unsafe.Pointer(&ev)))
			if int32(r) != 0 {
				if errno == syscall.EAGAIN {
					return false
				}
				if errno == syscall.EINTR {
					continue
				}
				fatal = true // the device was removed; there will be no more events
			} else {
				fatal = a.handle(&ev)
			}
			if fatal {
				return true
			}
		}
	})
	return fatal
}

// handle acknowledges an event once the object that it names was found, which
// until then cannot be destroyed. It reports whether the device has broken down.
func (a *asyncEvents) handle(raw *cAsyncEvent) (fatal bool) {
	ev := a.ctx.event(raw)
	call(a.ctx.lib.ackAsyncEvent, uintptr(unsafe.Pointer(raw)))
	if ev.Type == verbs.EventCQErr && ev.CQ != nil {
		ev.CQ.(*cq).overrun()
	}
	switch {
	case ev.Type == verbs.EventDeviceFatal:
		return true
	case ev.Type == verbs.EventCommEst && ev.QP != nil:
		ev.QP.(*qp).heard()
	case ev.Type == verbs.EventQPFatal && ev.QP != nil:
		ev.QP.(*qp).broken()
	case isOfObject(ev.Type) && ev.QP == nil && ev.CQ == nil && ev.SRQ == nil:
		return false // being destroyed
	}
	a.ctx.raise(raw, ev)
	return false
}

// raise tells of an event, unless the object that it names was destroyed since it was acknowledged.
func (c *devContext) raise(raw *cAsyncEvent, ev verbs.AsyncEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.named(raw) == ev {
		c.async.queue.Raise(ev)
	}
}

// isOfObject reports whether events of the type concern a QP, a CQ or an SRQ.
func isOfObject(t verbs.AsyncEventType) bool {
	switch t {
	case verbs.EventDeviceFatal, verbs.EventPortActive, verbs.EventPortErr, verbs.EventLIDChange,
		verbs.EventPKeyChange, verbs.EventSMChange, verbs.EventClientReregister, verbs.EventGIDChange:
		return false
	}
	return true
}

// event is a C event with the objects it is about.
func (c *devContext) event(raw *cAsyncEvent) verbs.AsyncEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.named(raw)
}

// named is event with mu held.
func (c *devContext) named(raw *cAsyncEvent) verbs.AsyncEvent {
	ev := verbs.AsyncEvent{Type: verbs.AsyncEventType(raw.eventType)}
	switch ev.Type {
	case verbs.EventCQErr:
		if q := c.cqs[raw.element]; q != nil {
			ev.CQ = q
		}
	case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr, verbs.EventCommEst,
		verbs.EventSQDrained, verbs.EventPathMig, verbs.EventPathMigErr, verbs.EventQPLastWQEReached:
		if q := c.qps[raw.element]; q != nil {
			ev.QP = q
		}
	case verbs.EventSRQErr, verbs.EventSRQLimitReached:
		if s := c.srqs[raw.element]; s != nil {
			ev.SRQ = s
		}
	case verbs.EventDeviceFatal:
	default:
		ev.Port = uint8(raw.element) // the low half of the union is an int
	}
	return ev
}

// halt ends the goroutine's use of the library.
func (a *asyncEvents) halt() {
	a.file.Close()
	<-a.done
}

// stop is halt, and fails those who wait.
func (a *asyncEvents) stop() {
	a.halt()
	a.queue.Close()
}
