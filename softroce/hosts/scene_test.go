//go:build linux

package hosts

// A scene is what goes on when something fails: a connection on which both hosts
// write and read as fast as they can, and one on which both only wait to read.
type scene struct {
	streams [2]stream  // by the host that writes
	waits   [2]*moving // by host
	at      string     // where the second host listened, or listens still
	ends    [2][]*end  // by host
}

func play(a, b *process, s Settings) *scene {
	a.t.Helper()
	sc := &scene{at: b.listen(s)}
	near, far := connectTo(a, b, sc.at, s)
	sc.streams = [2]stream{pour(near, far, 1, 0), pour(far, near, 2, 0)}
	nearIdle, farIdle := connectTo(a, b, sc.at, s)
	sc.waits = [2]*moving{nearIdle.begin(Flow{}).as("waits"), farIdle.begin(Flow{}).as("waits")}
	sc.ends = [2][]*end{{near, nearIdle}, {far, farIdle}}
	for _, st := range sc.streams {
		st.in.flows(1, prompt)
	}
	return sc
}

// on are the flows of one host: it writes, reads and waits.
func (sc *scene) on(rank int) []*moving {
	return []*moving{sc.streams[rank].out, sc.streams[1-rank].in, sc.waits[rank]}
}

// cut waits until all calls of a host have failed.
func (sc *scene) cut(rank int, since *stopwatch, l limit, errs ...string) {
	sc.waits[rank].e.p.t.Helper()
	for _, m := range sc.on(rank) {
		m.cut(since, l, errs...)
	}
}

// close closes the ends of a host.
func (sc *scene) close(rank int) {
	sc.waits[rank].e.p.t.Helper()
	for _, e := range sc.ends[rank] {
		e.close()
	}
}
