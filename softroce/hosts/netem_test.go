//go:build linux

package hosts

import (
	"testing"
	"time"
)

// testDisorder has the network do what it may do to packets besides losing them.
func testDisorder(t *testing.T, w *world) {
	const (
		size  = 1 << 20
		limit = time.Minute
	)
	a, b := w[0].start(t), w[1].start(t)
	for _, c := range []struct {
		name, how string
		may       string // an error that is as good
	}{
		{"Delay", "delay 10ms", ""},
		{"Jitter", "delay 5ms 4ms rate 200mbit", ""}, // with a rate packets keep their order
		{"Duplicates", "duplicate 10%", ""},
		{"Reordering", "delay 5ms reorder 75% 50%", ""},
		{"Corruption", "corrupt 1%", ""},
		{"Everything", "delay 5ms 2ms loss 1% duplicate 1% corrupt 1% reorder 90%", ""},
		// A packet out of order is as good as lost to RC, which is given up where it
		// does not get on at all.
		{"Shuffling", "delay 5ms 4ms", "ETIMEDOUT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, h := range w {
				h.netem(t, c.how)
			}
			near, far := connect(a.in(t), b.in(t), Settings{ReadBuffer: 256 << 10})
			began := time.Now()
			out, in := pour(near, far, 1, size), pour(far, near, 2, size)
			whole := out.arrives(limit, c.may) && in.arrives(limit, c.may)
			t.Logf("%d bytes each way arrived in %.1f s: %v", size, time.Since(began).Seconds(), whole)
			near.close()
			far.close()
		})
	}
}
