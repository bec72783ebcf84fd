package faulty

import (
	"math/rand/v2"
	"time"
)

// A Plan says what a device does of what it may do at any time. The zero value is a
// device like the one under it.
type Plan struct {
	Seed uint64
	// Late is by how much completions, events and wake-ups for nothing may be late.
	Late time.Duration
	// Asynchronous has the device not report verbs.CapSynchronous, as if it looked at sources
	// after the post like hardware: it finds who changes them before the completion, see OnReuse.
	Asynchronous bool
	// Remote has the device not report verbs.CapSameHost, as if its peers were on other hosts.
	Remote bool
}

// DefaultPlan is one by which every wait and every queue meets what it can meet, and
// tests still end.
func DefaultPlan(seed uint64) Plan { return Plan{Seed: seed, Late: time.Millisecond} }

// A dice decides for one object; nil never does anything. It is guarded by the object's lock.
type dice struct {
	*rand.Rand
	late time.Duration
}

func (p Plan) dice(object uint64) *dice {
	if p.Late <= 0 {
		return nil
	}
	return &dice{rand.New(rand.NewPCG(p.Seed, object)), p.Late}
}

// delay is how late something is. Mostly it is not, sometimes by less than a sleep takes,
// and now and then by much more.
func (d *dice) delay() time.Duration {
	if d == nil {
		return 0
	}
	switch n := d.IntN(64); {
	case n == 0:
		return time.Duration(d.Int64N(int64(d.late)) + 1)
	case n < 12:
		return time.Duration(d.Int64N(int64(d.late)/32+1) + 1)
	}
	return 0
}

// chance is true once in n times.
func (d *dice) chance(n int) bool { return d != nil && d.IntN(n) == 0 }
