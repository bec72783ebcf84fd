//go:build linux

package hosts

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// detections are how long failures stayed unnoticed, each kind beside its limit, for
// docs/RELIABILITY.md.
type detections struct {
	mu    sync.Mutex
	kinds []*detection
}

// A detection is what became of one kind of call in one case.
type detection struct {
	where, call      string
	limit            limit
	times            int
	earliest, latest time.Duration
}

var detected detections

// add notes a call that failed so long after its cause. Time for which the hosts stood
// still is no part of it.
func (d *detections) add(t testing.TB, call string, l limit, took time.Duration) {
	_, where, _ := strings.Cut(t.Name(), "/")
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.kinds, func(k *detection) bool { return k.where == where && k.call == call && k.limit == l })
	if i < 0 {
		i = len(d.kinds)
		d.kinds = append(d.kinds, &detection{where: where, call: call, limit: l, earliest: took})
	}
	k := d.kinds[i]
	k.times++
	k.earliest, k.latest = min(k.earliest, took), max(k.latest, took)
}

// String is a table of all.
func (d *detections) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, k := range d.kinds {
		fmt.Fprintf(&b, "%-24s %-36s %4d times, after %5.2f to %5.2f s; the timeouts add up to %.2f s, and %v more are allowed\n",
			k.where, k.call, k.times, k.earliest.Seconds(), k.latest.Seconds(), k.limit.sum.Seconds(), k.limit.slack)
	}
	return b.String()
}
