//go:build linux

package hosts

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// megabytesVar changes how much goes each way while one packet in a hundred is lost.
const megabytesVar = "RDMANET_TEST_MEGABYTES"

// testLoss has packets lost in each direction, those of the connection manager included.
func testLoss(t *testing.T, w *world) {
	megabytes := int64(100)
	if s := os.Getenv(megabytesVar); s != "" {
		var err error
		megabytes, err = strconv.ParseInt(s, 10, 64)
		require.NoError(t, err, megabytesVar)
	}
	a, b := w[0].start(t), w[1].start(t)
	for _, c := range []struct {
		share string
		size  int64
	}{
		{"0.1%", megabytes << 20 / 5},
		{"1%", megabytes << 20},
		{"5%", megabytes << 20 / 50},
	} {
		t.Run(c.share, func(t *testing.T) {
			before := [2]int{w[0].lost(t), w[1].lost(t)}
			for _, h := range w {
				h.netem(t, "loss "+c.share)
			}
			// A ring of the default size has less in flight, and stalls more often.
			pourBoth := func() {
				for _, r := range []struct {
					ring int
					size int64
				}{{1 << 20, c.size}, {0, c.size / 25}} {
					near, far := connect(a.in(t), b.in(t), Settings{ReadBuffer: r.ring})
					began := time.Now()
					out, in := pour(near, far, 1, r.size), pour(far, near, 2, r.size)
					out.whole(5 * time.Minute)
					in.whole(5 * time.Minute)
					took := time.Since(began).Seconds()
					t.Logf("%d bytes each way at once in %.1f s: %.1f MB/s each way", r.size, took, float64(r.size)/1e6/took)
					near.close()
					far.close()
				}
			}
			bothLost := func() bool { return w[0].lost(t) > before[0] && w[1].lost(t) > before[1] }
			pourBoth()
			for again := 0; again < 10 && !bothLost(); again++ { // of some thousand packets none may be lost by chance
				pourBoth()
			}
			require.True(t, bothLost(), "a host has lost nothing")
		})
	}
}
