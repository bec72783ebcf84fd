//go:build linux

package hosts

import (
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// testBlackHole has all packets of one or both hosts vanish, under connections that do
// all that a connection may be doing.
func testBlackHole(t *testing.T, w *world) {
	a, b := w[0].start(t), w[1].start(t)
	for _, c := range []struct {
		name string
		mute []*host
	}{
		{"There", w[:1]},
		{"Back", w[1:]},
		{"Both", w[:]},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := a.in(t), b.in(t)
			asked, asItIs := play(a, b, withQuick), play(a, b, Settings{})
			oneWay := [2]stream{onlyWrites(a, b, withQuick), onlyWrites(b, a, withQuick)}
			full, fullUnasked := fill(a, b, withQuick), fill(a, b, withoutKeepAlive)
			near, far := connect(a, b, withoutKeepAlive)

			for _, h := range c.mute {
				h.netem(t, "loss 100%")
			}
			since := w.stopwatch(t)
			// What is not acknowledged tells without a keepalive, too.
			unasked := []*moving{near.begin(Flow{Send: true}), far.begin(Flow{Send: true})}
			for rank := range w {
				unasked[rank].as("not acknowledged").cut(since, byAck, "ETIMEDOUT")
				asked.cut(rank, since, byQuick, "ETIMEDOUT")
				oneWay[rank].out.cut(since, byQuick, "ETIMEDOUT")
				oneWay[1-rank].in.cut(since, byQuick, "ETIMEDOUT")
				full[rank].cut(since, byQuick, "ETIMEDOUT")
				asItIs.cut(rank, since, bySilence, "ETIMEDOUT")
				fullUnasked[rank].as("waits for credit, keepalive off").cut(since, bySilence, "ETIMEDOUT")
			}
			for rank := range w {
				asked.close(rank)
				asItIs.close(rank)
			}
			a.cannotDial(b.listen(Settings{}), 500*time.Millisecond, slack, "deadline")

			for _, h := range c.mute {
				h.clearNetem(t)
			}
			works(a, b)
		})
	}
}

// onlyWrites has one process write, and another read, as fast as they can.
func onlyWrites(from, to *process, s Settings) stream {
	from.t.Helper()
	near, far := connect(from, to, s)
	st := pour(near, far, 5, 0)
	st.in.flows(1, prompt)
	st.out.as("one way")
	st.in.as("one way")
	return st
}

// fill has both ends of a connection write and neither read, until both wait for credit
// and have nothing under way: all has arrived.
func fill(a, b *process, s Settings) (waiting [2]*moving) {
	a.t.Helper()
	near, far := connect(a, b, s)
	for rank, e := range []*end{near, far} {
		waiting[rank] = e.begin(Flow{Send: true, Seed: 6}).as("waits for credit")
	}
	for began := time.Now(); ; {
		one, other := near.info(), far.info()
		if isFull(one, other) && isFull(other, one) {
			return waiting
		}
		if time.Since(began) > prompt {
			a.t.Fatalf("the ends do not wait for credit: %+v, %+v", one, other)
		}
	}
}

// isFull says that a Write waits at one end, and that the other has all that was written.
func isFull(at, other rdmanet.ConnInfo) bool {
	return at.Parks > 0 && at.Writable == 0 && at.BytesWritten == uint64(other.Unread)
}
