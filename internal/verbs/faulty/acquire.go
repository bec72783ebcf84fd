package faulty

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Acquisitions are the calls that may find that there is no more of something: each of
// them can be made to fail. What they are called is what OnAcquire is told.
const (
	CreateID     = "CreateID"
	BindAddr     = "BindAddr"
	Listen       = "Listen"
	ResolveAddr  = "ResolveAddr"
	ResolveRoute = "ResolveRoute"
	Connect      = "Connect"
	Accept       = "Accept"
	Reject       = "Reject"
	Open         = "Open"
	QueryDevice  = "QueryDevice"
	AllocPD      = "AllocPD"
	AllocMemory  = "AllocMemory"
	Commit       = "Commit"
	RegMR        = "RegMR"
	Channel      = "CreateCompChannel"
	CreateCQ     = "CreateCQ"
	CreateQP     = "CreateQP"
	CreateSRQ    = "CreateSRQ"
	PostRecv     = "PostRecv"
	PostSend     = "PostSend"
	ReqNotify    = "ReqNotify"
)

// OnAcquire has f asked before each acquisition of the device's users, which fails with
// its error; nil takes that back. f may be called by several goroutines at once.
func (d *Driver) OnAcquire(f func(what string) error) {
	if f == nil {
		d.acquire.Store(nil)
		return
	}
	d.acquire.Store(&f)
}

// FailNext has the next acquisition that is called what fail with err, in place of what OnAcquire
// has asked.
func (d *Driver) FailNext(what string, err error) {
	var done atomic.Bool
	d.OnAcquire(func(w string) error {
		if w == what && !done.Swap(true) {
			return err
		}
		return nil
	})
}

// ask is called before an acquisition.
func (d *Driver) ask(what string) error {
	if d.removed.Load() {
		return fmt.Errorf("%w: %s was removed", verbs.ErrNoDevice, d.name)
	}
	if f := d.acquire.Load(); f != nil {
		return (*f)(what)
	}
	return nil
}

// A Countdown fails one acquisition, the n-th. Its method Ask is for OnAcquire.
type Countdown struct {
	fail int64
	n    atomic.Int64
	hit  atomic.Pointer[string]
}

// FailNth is a Countdown to the n-th acquisition, counted from 1; 0 only counts.
func FailNth(n int) *Countdown { return &Countdown{fail: int64(n)} }

// Ask counts an acquisition, and fails with verbs.ErrNoMemory if it is the one.
func (c *Countdown) Ask(what string) error {
	if c.n.Add(1) != c.fail {
		return nil
	}
	c.hit.Store(&what)
	return fmt.Errorf("%w: number %d, %s, fails by request", verbs.ErrNoMemory, c.fail, what)
}

// Count is how many acquisitions there were.
func (c *Countdown) Count() int { return int(c.n.Load()) }

// Failed names the acquisition that failed, "" if none has.
func (c *Countdown) Failed() string {
	if what := c.hit.Load(); what != nil {
		return *what
	}
	return ""
}
