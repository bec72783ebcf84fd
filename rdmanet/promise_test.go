package rdmanet

import (
	"testing"
	"time"
)

// recordPromise is told how long took what is promised to take no more than bound. Only the
// timing suite sets it (make test-timing), which runs alone and holds the promises: what is
// prompt on a machine with other things to do, nobody can say. There go test sees that it
// happens at all.
var recordPromise func(test, what string, took, bound time.Duration)

// promise records how long took what is promised to take no more than bound.
func promise(t testing.TB, what string, took, bound time.Duration) {
	if recordPromise != nil {
		recordPromise(t.Name(), what, took, bound)
	}
}

// inTime sees that f returns, and records how soon.
func inTime(t testing.TB, bound time.Duration, what string, f func()) {
	t.Helper()
	began := time.Now()
	within(t, patience, what, f)
	promise(t, what, time.Since(began), bound)
}

// fastest records the shortest of up to n times that f takes, for what any other work of
// the machine may delay once. Where nothing is recorded it runs f once.
func fastest(t testing.TB, n int, what string, bound time.Duration, f func() time.Duration) {
	t.Helper()
	best := f()
	for ; n > 1 && best > bound && recordPromise != nil; n-- {
		best = min(best, f())
	}
	promise(t, what, best, bound)
}
