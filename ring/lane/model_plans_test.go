package lane

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/racedetector"
)

// plans are the scenarios that are taken every way there is. What go test has no time for
// is for make model.
var plans = []struct {
	deep bool
	plan
}{
	{plan: plan{name: "dial, echo, close", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 64}, chunk: 64, wire: 3, pumpsLater: true}},
	{plan: plan{name: "half-closes", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 64}, chunk: 64, wire: 4, finish: [2]how{withFIN, withFIN}}},
	{plan: plan{name: "reuse", places: 1, opens: 2, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 2, impatient: true}},
	{plan: plan{name: "reuse after resets", places: 1, opens: 2, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 2, impatient: true, finish: [2]how{withReset, withClose}}},
	{plan: plan{name: "refusal", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 2, refuse: true, impatient: true}},
	{plan: plan{name: "window", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{640, 0}, chunk: 128, wire: 4, finish: [2]how{withFIN, withFIN}}},
	{plan: plan{name: "window, asleep", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{640, 0}, chunk: 320, wire: 4, finish: [2]how{withFIN, withFIN}, sleeps: true}},
	{plan: plan{name: "slots, asleep", places: 1, opens: 1, rings: [2]uint32{256, 4096}, write: [2]int{11, 0}, chunk: 1, wire: 12, finish: [2]how{withFIN, withFIN}, sleeps: true}},
	{plan: plan{name: "growth", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{512, 0}, chunk: 256, wire: 2, finish: [2]how{withFIN, withFIN}, offers: [2][]uint32{nil, {512}}}},
	{deep: true, plan: plan{name: "growth and shrinking", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{512, 0}, chunk: 256, wire: 2, finish: [2]how{withFIN, withFIN}, offers: [2][]uint32{nil, {512, 256}}}},
	{plan: plan{name: "an idle stream shrinks", places: 1, opens: 1, rings: [2]uint32{256, 1024}, write: [2]int{128, 0}, chunk: 64, wire: 2, finish: [2]how{withFIN, withFIN}, offers: [2][]uint32{{512}, {256}}, patient: true}},
	{plan: plan{name: "a move and an end", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{128, 0}, chunk: 64, wire: 2, impatient: true, offers: [2][]uint32{nil, {256}}}},
	{plan: plan{name: "GOAWAY, one", places: 2, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 3, goAway: true}},
	{plan: plan{name: "GOAWAY in a hurry, one", places: 2, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 3, goAway: true, hurry: true}},
	{deep: true, plan: plan{name: "GOAWAY", places: 2, opens: 2, rings: [2]uint32{256, 256}, wire: 2, goAway: true}},
	{deep: true, plan: plan{name: "GOAWAY in a hurry", places: 2, opens: 2, rings: [2]uint32{256, 256}, wire: 2, goAway: true, hurry: true}},
	{plan: plan{name: "recall, one", places: 1, opens: 1, rings: [2]uint32{256, 256}, wire: 2, recall: true}},
	{deep: true, plan: plan{name: "recall", places: 1, opens: 2, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 2, recall: true}},
	{plan: plan{name: "recall and GOAWAY", places: 2, opens: 1, rings: [2]uint32{256, 256}, wire: 2, recall: true, goAway: true, hurry: true}},
	{plan: plan{name: "a lie", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 64}, chunk: 64, wire: 2, sleeps: true, aborts: true}},
	{plan: plan{name: "a lie and slots", places: 1, opens: 1, rings: [2]uint32{256, 4096}, write: [2]int{9, 0}, chunk: 1, wire: 12, finish: [2]how{withFIN, withFIN}, sleeps: true, aborts: true}},
	{plan: plan{name: "resets, moves and sleep", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 64}, chunk: 64, wire: 2, impatient: true, finish: [2]how{withReset, withFIN}, offers: [2][]uint32{nil, {512}}, sleeps: true}},
	{plan: plan{name: "ahead", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{640, 64}, chunk: 320, wire: 3, finish: [2]how{withFIN, withFIN}, sleeps: true, ahead: true}},
	{plan: plan{name: "ahead, growth", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{384, 0}, chunk: 192, wire: 2, finish: [2]how{withFIN, withFIN}, offers: [2][]uint32{nil, {512}}, ahead: true}},
	{plan: plan{name: "ahead, moves and resets", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 64}, chunk: 64, wire: 2, impatient: true, finish: [2]how{withReset, withFIN}, offers: [2][]uint32{nil, {512}}, sleeps: true, ahead: true}},
	{plan: plan{name: "ahead, reuse", places: 1, opens: 2, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 2, impatient: true, finish: [2]how{withReset, withClose}, ahead: true}},
	{plan: plan{name: "ahead, refusal", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 2, refuse: true, impatient: true, ahead: true}},
	{plan: plan{name: "ahead, GOAWAY", places: 2, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 3, goAway: true, hurry: true, ahead: true}},
	{plan: plan{name: "frames", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{190, 20}, chunk: 50, bite: 64, wire: 3, finish: [2]how{withFIN, withFIN}, checksums: true}},
	{plan: plan{name: "frames, asleep", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{500, 0}, chunk: 210, bite: 100, wire: 3, finish: [2]how{withClose, withFIN}, sleeps: true, checksums: true}},
	{plan: plan{name: "frames and growth", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{400, 0}, chunk: 120, bite: 100, wire: 2, finish: [2]how{withFIN, withFIN}, offers: [2][]uint32{nil, {512}}, checksums: true}},
	{deep: true, plan: plan{name: "frames, growth and shrinking", places: 1, opens: 1, rings: [2]uint32{256, 256}, write: [2]int{600, 0}, chunk: 200, bite: 150, wire: 2, finish: [2]how{withFIN, withFIN}, offers: [2][]uint32{nil, {512, 256}}, checksums: true}},
	{plan: plan{name: "frames and resets", places: 1, opens: 2, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, bite: 30, wire: 2, impatient: true, finish: [2]how{withReset, withClose}, checksums: true}},
	{deep: true, plan: plan{name: "two streams", places: 2, opens: 2, rings: [2]uint32{256, 256}, write: [2]int{64, 0}, chunk: 64, wire: 2}},
	{deep: true, plan: plan{name: "a neighbour nobody reads", places: 2, opens: 2, rings: [2]uint32{256, 256}, write: [2]int{384, 0}, chunk: 192, wire: 2, silent: 1}},
}

// planCalled returns a plan by its name.
func planCalled(t *testing.T, name string) *plan {
	for i := range plans {
		if plans[i].name == name {
			return &plans[i].plan
		}
	}
	require.Fail(t, "no such plan", name)
	return nil
}

// TestModelExplore takes small lanes every way there is.
func TestModelExplore(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("it is one goroutine: the race detector finds nothing and takes ten times as long")
	}
	for _, p := range plans {
		if p.deep && !deep() {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			n, trace, err := search(&p.plan, nil, 20_000_000)
			t.Logf("%d states", n)
			require.NoError(t, err, "after\n%s", last(trace))
		})
	}
}

// TestModelWalks goes through every plan at random, the large ones too.
func TestModelWalks(t *testing.T) {
	first, count := uint64(1), uint64(8)
	if deep() {
		first, count = uint64(time.Now().UnixNano())>>10<<16, 50_000
	}
	if v := os.Getenv(seedVar); v != "" {
		seed, err := strconv.ParseUint(v, 0, 64)
		require.NoError(t, err, seedVar)
		first, count = seed, 1
	}
	for i := range plans {
		p := plans[i].plan
		for seed := first; seed < first+count; seed++ {
			trace, err := walk(&p, nil, seed)
			require.NoError(t, err, "%s: replay with %s=%d, after\n%s", p.name, seedVar, seed, last(trace))
			// The same with more of everything.
			big := p
			big.opens, big.wire, big.pumpsLater = p.opens+3, p.wire+3, seed%2 == 0
			big.write = [2]int{p.write[0] * 3, p.write[1]*3 + 300}
			trace, err = walk(&big, nil, seed)
			require.NoError(t, err, "%s, large: replay with %s=%d, after\n%s", p.name, seedVar, seed, last(trace))
		}
	}
}
