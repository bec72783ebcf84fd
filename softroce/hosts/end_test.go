//go:build linux

package hosts

import (
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// An end of a connection.
type end struct {
	p  *process
	id int
}

// connect connects two processes. The first one dials.
func connect(a, b *process, s Settings) (near, far *end) {
	a.t.Helper()
	return connectTo(a, b, b.listen(s), s)
}

// connectTo is connect to where the second one listens already.
func connectTo(a, b *process, at string, s Settings) (near, far *end) {
	a.t.Helper()
	made := a.dial(at, s, prompt)
	require.Zero(a.t, made.Failure, "host %d: Dial", a.h.rank)
	near = &end{a, made.Conn}
	made = b.accept(prompt)
	require.Zero(a.t, made.Failure, "host %d: Accept", b.h.rank)
	return near, &end{b, made.Conn}
}

// info describes the connection as its process sees it.
func (e *end) info() rdmanet.ConnInfo {
	e.p.t.Helper()
	return call[rdmanet.ConnInfo](e.p.t, e.p.client, "Worker.Info", e.id, prompt)
}

// close closes one end, which never waits for the other.
func (e *end) close() {
	t := e.p.t
	t.Helper()
	since := e.p.h.w.stopwatch(t)
	made, err := tryCall[Made](e.p.client, "Worker.Close", e.id, prompt)
	if err != nil {
		e.p.describe()
		t.Fatalf("host %d: Close: %v", e.p.h.rank, err)
	}
	require.Zero(t, made.Failure, "host %d: Close", e.p.h.rank)
	if late := since.late(made.Took, atOnce); late > 0 {
		t.Errorf("host %d: Close took %s: missed by %.2f s", e.p.h.rank, atOnce.against(made.Took), late.Seconds())
	}
}

// works connects two processes, sees bytes arrive both ways and closes.
func works(a, b *process) {
	a.t.Helper()
	pass(connect(a, b, Settings{}))
}

// pass sees bytes arrive both ways and closes.
func pass(near, far *end) {
	near.p.t.Helper()
	const size = 64 << 10
	out, in := pour(near, far, 3, size), pour(far, near, 4, size)
	out.whole(prompt)
	in.whole(prompt)
	near.close()
	far.close()
}
