package rdmanet

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/require"
)

// A fault is a rule that an end or the transport of a model breaks now and then. The
// model checker has to notice each of them.
type fault uint8

const (
	faultNone         fault = iota
	faultBytes              // a credit gives bytes that were not consumed
	faultReceives           // a credit tells of receives that were not posted
	faultRepost             // a receive is not posted again
	faultNoSecondPoll       // arm, then sleep
	faultNoArm              // poll, then sleep
	faultOneArmed           // a writer without room arms the receive queue only
	faultLostEvent          // an armed queue gets a completion and wakes nobody
	faultEarly              // the doorbell rings before the data is there
	faultStale              // an older credit is placed last
	faultOvertaken          // two messages change places
	faultTwice              // a message is told twice
	faultLost               // a message is lost
	faultUnsignaled         // no request is signalled
	faultEarlyAck           // a request completes before it was executed
	faultEarlyKey           // the old rkey goes when the ring grows, not when the peer has changed over
	faultHoldCredit         // a credit that is due is not sent by who sleeps
	numFaults
)

var faultNames = [numFaults]string{
	"none", "credit for unread bytes", "credit for unposted receives", "lost repost", "no poll after arming", "no arming",
	"send queue not armed", "lost event", "doorbell before data", "stale credit", "messages out of order",
	"message twice", "message lost", "nothing signalled", "completion before execution", "old key void too early",
	"due credit kept back",
}

func (f fault) String() string { return faultNames[f] }

// now says that the fault f, if it is the model's, happens this time.
func (f fault) now(m *model) bool { return m.fault == f && m.c.intn(8) == 0 }

// post changes a request as it is posted.
func (f fault) post(d *simDevice, w *simWR) {
	switch f {
	case faultNone:
	case faultUnsignaled:
		w.signaled = false
	case faultBytes, faultReceives:
		at := 0
		if w.op == verbs.WRSend {
			at = doorbellLen
		}
		if len(w.data) < at+ring.CreditLen || d.end.ringOffset(w) >= 0 || !f.now(d.m) {
			return
		}
		if c := w.data[at:]; f == faultBytes {
			binary.LittleEndian.PutUint64(c, d.end.conn.recv.ring.ReceivedBytes())
		} else {
			binary.LittleEndian.PutUint32(c[8:], binary.LittleEndian.Uint32(c[8:])+8)
		}
	}
}

// receives is how many of n receives are really posted.
func (f fault) receives(d *simDevice, n int) int {
	if f == faultRepost && d.end.conn != nil && f.now(d.m) {
		return n - 1
	}
	return n
}

// swap changes the order of the oldest messages of e.
func (f fault) swap(e *modelEnd) {
	d := &e.dev
	if f != faultOvertaken || d.posted-d.executed < 2 || !f.now(e.m) {
		return
	}
	a, b := d.wr(d.executed), d.wr(d.executed+1)
	if !a.placed && !b.placed {
		*a, *b = *b, *a
	}
}

// stale says that an older credit of e is to be placed once more.
func (f fault) stale(e *modelEnd) (uint64, bool) {
	d := &e.dev
	if f != faultStale {
		return 0, false
	}
	for n := d.executed; n > 0 && n+64 > d.executed; n-- {
		if w := d.wr(n - 1); len(w.data) >= ring.CreditLen && e.ringOffset(w) < 0 && f.now(e.m) {
			return n - 1, true
		}
	}
	return 0, false
}

// arm is the arming of a waiter in a model with this fault.
func (f fault) arm(e *modelEnd, dir direction) func() bool {
	c := e.conn
	half := condition(&c.recv)
	if dir == dirWrite {
		half = &c.send
	}
	right := c.waiter(dir).arm
	try := func() bool { return c.poll(half) }
	switch f {
	case faultNoSecondPoll:
		return func() bool {
			if try() {
				return true
			}
			_, _ = c.ep.recvCQ.ReqNotify(false), c.ep.sendCQ.ReqNotify(false)
			return false
		}
	case faultNoArm:
		return try
	case faultOneArmed, faultHoldCredit:
		if (f == faultOneArmed) != (dir == dirWrite) {
			return right
		}
		return func() bool {
			if try() {
				return true
			}
			_ = c.ep.recvCQ.ReqNotify(false)
			return try()
		}
	}
	return right
}

// TestModelFindsFaults sees that the model checker finds each fault. Checks that find
// nothing would pass every test above.
func TestModelFindsFaults(t *testing.T) {
	const seeds = 400
	for f := faultNone + 1; f < numFaults; f++ {
		t.Run(f.String(), func(t *testing.T) {
			var lab modelLab
			for seed := uint64(1); seed <= seeds; seed++ {
				if failure := lab.run(newModelSeed(seed), f); failure != nil {
					t.Logf("seed %d, step %d: %s", seed, failure.step, failure.what)
					return
				}
			}
			require.Fail(t, "not found", fmt.Sprintf("%d seeds", seeds))
		})
	}
}
