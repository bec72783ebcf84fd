//go:build linux

package hosts

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// A stream is one direction of a connection: its two flows.
type stream struct{ out, in *moving }

// A moving is a flow of a worker.
type moving struct {
	e    *end
	what string
	id   int

	role  string // what it does while all is well; "" if that says what
	quiet bool   // its failure is one among many
}

// as says what the flow does while all is well.
func (m *moving) as(role string) *moving {
	m.role = role
	return m
}

func (e *end) begin(f Flow) *moving {
	e.p.t.Helper()
	f.Conn = e.id
	what := "Read"
	if f.Send {
		what = "Write"
	}
	return &moving{e: e, what: what, id: call[int](e.p.t, e.p.client, "Worker.Begin", f, prompt)}
}

// pour moves size bytes from one end to the other; 0 is without end.
func pour(from, to *end, seed uint64, size int64) stream {
	from.p.t.Helper()
	return stream{in: to.begin(Flow{Seed: seed}), out: from.begin(Flow{Send: true, Seed: seed, Size: size})}
}

// moved is how many bytes have moved.
func (m *moving) moved() int64 {
	m.e.p.t.Helper()
	return call[int64](m.e.p.t, m.e.p.client, "Worker.Moved", m.id, prompt)
}

// flows waits until n more bytes have moved.
func (m *moving) flows(n int64, limit time.Duration) {
	m.e.p.t.Helper()
	began, before := time.Now(), m.moved()
	for {
		now := m.moved()
		if now >= before+n {
			return
		}
		if time.Since(began) > limit {
			m.e.p.t.Fatalf("host %d: %s: %d bytes in %v, %d were expected", m.e.p.h.rank, m.what, now-before, limit, n)
		}
	}
}

// whole waits until the stream has arrived, unchanged.
func (s stream) whole(limit time.Duration) {
	s.out.e.p.t.Helper()
	s.arrives(limit, "")
}

// arrives waits until the stream has arrived, unchanged; or has been cut, with a
// certain error, what arrived being unchanged.
func (s stream) arrives(limit time.Duration, orElse string) bool {
	t := s.in.e.p.t
	t.Helper()
	out, in := s.out.await(limit), s.in.await(limit)
	if orElse != "" && in.Failure.is(orElse) && (out.Failure.Text == "" || out.Failure.is(orElse)) {
		return false
	}
	require.Zero(t, out.Failure, "%v", s.out)
	require.Equal(t, []string{"EOF"}, in.Failure.Is, "%v: %v", s.in, in.Failure)
	require.Equal(t, out.N, in.N, "%v", s.in)
	return true
}

// await waits for the end of the flow and sees that no byte was changed.
func (m *moving) await(limit time.Duration) FlowEnd {
	m.e.p.t.Helper()
	end := call[FlowEnd](m.e.p.t, m.e.p.client, "Worker.Await", m.id, limit)
	require.Empty(m.e.p.t, end.Wrong, "%v", m)
	return end
}

// finish ends a stream that has no end of its own, in order.
func (s stream) finish() {
	s.out.e.p.t.Helper()
	call[int](s.out.e.p.t, s.out.e.p.client, "Worker.Enough", s.out.id, prompt)
	s.whole(prompt)
}

// lasts sees that the flow has not ended by then.
func (m *moving) lasts(until time.Time) {
	m.e.p.t.Helper()
	end, err := tryCall[FlowEnd](m.e.p.client, "Worker.Await", m.id, max(time.Until(until), time.Millisecond))
	if err == nil {
		m.e.p.t.Fatalf("%v ended although nothing had failed: %v", m, end.Failure)
	}
}

// cut waits until the flow has failed because of what was done when the stopwatch
// began, in time, with an error that programs can tell.
func (m *moving) cut(since *stopwatch, l limit, errs ...string) (end FlowEnd) {
	t := m.e.p.t
	t.Helper()
	who := m.String()
	// Beyond the limit only to say how much too late it came.
	patience := max(time.Until(since.began.Add(l.total()+prompt)), prompt/10)
	end, err := tryCall[FlowEnd](m.e.p.client, "Worker.Await", m.id, patience)
	if err != nil {
		waited := time.Since(since.began)
		t.Errorf("%s still waits after %.2f s: missed its limit of %v by more than %.2f s", who, waited.Seconds(), l.total(), (waited - l.total()).Seconds())
		return end
	}
	took := max(time.Since(since.began)-end.Ago, 0)
	if !m.quiet {
		t.Logf("%s failed after %s: %v", who, l.against(took), end.Failure)
	}
	late := since.late(took, l)
	if late > 0 {
		t.Errorf("%s missed its limit by %.2f s", who, late.Seconds())
	}
	detected.add(t, m.call(), l, min(took, l.total()+late))
	if end.Wrong != "" {
		t.Errorf("%s: %s", who, end.Wrong)
	}
	if end.Failure.Op != strings.ToLower(m.what) {
		t.Errorf("%s: not a *net.OpError of a %s: %+v", who, strings.ToLower(m.what), end.Failure)
	}
	for _, name := range errs {
		if end.Failure.is(name) {
			return end
		}
	}
	t.Errorf("%s: none of %v: %+v", who, errs, end.Failure)
	return end
}

// call is what the flow does.
func (m *moving) call() string {
	if m.role == "" {
		return m.what
	}
	return m.what + ", " + m.role
}

func (m *moving) String() string { return fmt.Sprintf("host %d: %s", m.e.p.h.rank, m.call()) }
