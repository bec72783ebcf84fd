//go:build linux

package hosts

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testMany has connections made at once, and bytes on all of them at once.
func testMany(t *testing.T, w *world) {
	const (
		conns = 64
		size  = 64 << 10
	)
	a, b := w[0].start(t), w[1].start(t)
	at := b.listen(Settings{})
	began := time.Now()
	dialled, accepted := make([]Made, conns), make([]Made, conns)
	var errs [2 * conns]error
	var all sync.WaitGroup
	for i := range conns {
		all.Go(func() {
			dialled[i], errs[i] = tryCall[Made](a.client, "Worker.Dial", Dial{Addr: at, Timeout: time.Minute}, 2*time.Minute)
		})
		all.Go(func() {
			accepted[i], errs[conns+i] = tryCall[Made](b.client, "Worker.Accept", time.Minute, 2*time.Minute)
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	t.Logf("%d connections in %.1f s", conns, time.Since(began).Seconds())

	byAddr := map[string]int{}
	for _, m := range accepted {
		require.Zero(t, m.Failure, "accept")
		byAddr[m.Remote] = m.Conn
	}
	require.Len(t, byAddr, conns)
	began = time.Now()
	var streams []stream
	for i, m := range dialled {
		require.Zero(t, m.Failure, "dial")
		require.Contains(t, byAddr, m.Local)
		near, far := &end{a, m.Conn}, &end{b, byAddr[m.Local]}
		streams = append(streams, pour(near, far, uint64(2*i), size), pour(far, near, uint64(2*i+1), size))
	}
	for _, s := range streams {
		s.whole(time.Minute)
	}
	t.Logf("%d bytes each way on each in %.1f s", size, time.Since(began).Seconds())
}
