package rdmanet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/require"
)

// The variables that lengthen TestModel and replay one seed of it.
const (
	modelStepsVar = "MODEL_STEPS"
	modelSeedVar  = "MODEL_SEED"
)

// modelSeed chooses at random from a seed.
type modelSeed struct{ rand.PCG }

func newModelSeed(seed uint64) *modelSeed {
	s := new(modelSeed)
	s.Seed(seed, 0x6d6f64656c)
	return s
}

func (s *modelSeed) intn(n int) int { return int(s.Uint64() >> 32 * uint64(n) >> 32) }

// A modelScript makes choices that are written down; beyond their end, always 0.
type modelScript struct {
	choices []uint32
	at      int
}

func (s *modelScript) intn(n int) int {
	if s.at >= len(s.choices) {
		return 0
	}
	s.at++
	return int(s.choices[s.at-1]) % n
}

// A modelRecorder writes down the choices that another makes.
type modelRecorder struct {
	chooser
	choices []uint32
}

func (r *modelRecorder) intn(n int) int {
	k := r.chooser.intn(n)
	r.choices = append(r.choices, uint32(k))
	return k
}

// A modelTrace tells what happened, if it is on.
type modelTrace struct {
	on    bool
	lines []string
	e     *modelEnd // of the last step
	act   int
}

func (t *modelTrace) begin(step int, e *modelEnd, act int) {
	if !t.on {
		return
	}
	from := ""
	if act < numThreads {
		from = " from " + placeNames[e.threads[act].at]
	}
	if e == t.e && act == t.act {
		if last := &t.lines[len(t.lines)-1]; len(*last) < 200 {
			*last += fmt.Sprintf("; %d%s", step, from)
		}
		return
	}
	t.e, t.act = e, act
	t.lines = append(t.lines, fmt.Sprintf("%d: %v %s%s", step, e, actNames[act], from))
}

func (m *model) tell(format string, args ...any) {
	if t := &m.trace; t.on && len(t.lines) > 0 {
		if last := &t.lines[len(t.lines)-1]; len(*last) < 200 {
			*last += ", " + fmt.Sprintf(format, args...)
		}
	}
}

// A modelLab runs models one after the other.
type modelLab struct {
	memory   memoryPool
	salt     uint64 // no two runs send the same bytes, as memory is used again
	steps    int    // of all
	trace    bool
	explores bool
	lines    []string // of the last run, if trace
	set      modelSettings
	seen     modelCoverage
}

// chooseModel draws what a model is made of.
func chooseModel(c chooser) modelSettings {
	s := modelSettings{depth: uint32(ring.MinDepth + c.intn(2)*c.intn(200)), steps: 200 + c.intn(3000), late: c.intn(8) == 0}
	s.checksum, s.refuses, s.beats, s.commits = c.intn(4) == 0, c.intn(4) == 0, c.intn(2) == 0, c.intn(2) == 0
	if s.late {
		s.depth, s.steps = ring.MinDepth, 4000
	}
	s.caps = []verbs.DeviceCaps{
		verbs.CapWriteImm, // a NIC
		0,                 // one without WRITE_WITH_IMM
		verbs.CapWriteImm | verbs.CapSynchronous | verbs.CapSameHost | verbs.CapODP, // the software device
		verbs.CapSynchronous | verbs.CapSameHost | verbs.CapODP,
	}[c.intn(4)]
	for i := range s.plan {
		s.first[i] = ring.MinSize << (c.intn(2) * c.intn(3))
		s.most[i] = s.first[i] << (c.intn(2) * c.intn(4))
		p := &s.plan[i]
		some := func(oneIn int) int {
			if c.intn(oneIn) > 0 {
				return 0
			}
			return 1 + c.intn(s.steps)
		}
		p.close = some(4)
		if s.late {
			continue
		}
		p.fin, p.closeRead = some(8), some(16)
		p.abort = p.close > 0 && c.intn(4) == 0
		p.kill, p.cut = some(24), some(24)
	}
	return s
}

// run runs one model and returns what it found.
func (l *modelLab) run(c chooser, f fault) *modelFailure {
	return l.runWith(c, chooseModel(c), f, nil)
}

func (l *modelLab) runWith(c chooser, set modelSettings, f fault, x *explorer) (failure *modelFailure) {
	l.salt++
	var m *model
	defer func() {
		if v := recover(); v != nil {
			switch v := explain(v).(type) {
			case modelFailure:
				failure = &v
			}
		}
		if m != nil {
			l.steps += m.steps
			l.lines = m.trace.lines
			if m.over {
				l.seen.count(m)
			}
			m.discard()
		}
	}()
	m = newModel(c, set, f, l)
	m.trace.on, m.explored = l.trace, x
	if l.trace {
		l.set = set
	}
	if x != nil {
		x.run(m)
	} else {
		m.run()
	}
	return nil
}

// TestModel runs seeded models. MODEL_STEPS makes it longer, as make model does;
// MODEL_SEED replays one seed, or with MODEL_STEPS begins there.
func TestModel(t *testing.T) {
	steps, workers := 1_000_000, 1
	if raceEnabled || testing.Short() {
		steps /= 10 // fewer would not come upon all that is counted below
	}
	first, last := uint64(1), ^uint64(0)
	if v := os.Getenv(modelStepsVar); v != "" {
		n, err := strconv.Atoi(strings.ReplaceAll(v, "_", ""))
		require.NoError(t, err, modelStepsVar)
		steps, workers = n, runtime.GOMAXPROCS(0)
		first = uint64(time.Now().UnixNano()) >> 10 << 24 // each night others
	}
	if v := os.Getenv(modelSeedVar); v != "" {
		seed, err := strconv.ParseUint(v, 0, 64)
		require.NoError(t, err, modelSeedVar)
		if first = seed; os.Getenv(modelStepsVar) == "" {
			last, workers = seed, 1
		}
	}
	var next, done atomic.Uint64
	var stop atomic.Bool
	var mu sync.Mutex
	seen := modelCoverage{fewestSlots: ring.MaxDepth}
	next.Store(first)
	began := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			lab := modelLab{seen: modelCoverage{fewestSlots: ring.MaxDepth}}
			defer func() {
				mu.Lock()
				seen.add(&lab.seen)
				mu.Unlock()
			}()
			for !stop.Load() && done.Load() < uint64(steps) {
				seed := next.Add(1) - 1
				if seed > last {
					return
				}
				before := lab.steps
				failure := lab.run(newModelSeed(seed), faultNone)
				n := uint64(lab.steps - before)
				if total := done.Add(n); total/10_000_000 != (total-n)/10_000_000 {
					fmt.Printf("model: %d steps, seed %d, %v\n", total, seed, time.Since(began).Round(time.Second))
				}
				if failure != nil && !stop.Swap(true) {
					mu.Lock()
					report(t, &lab, seed, failure)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d steps from seed %d: %+v", done.Load(), first, seen)
	if first == last || t.Failed() {
		return
	}
	for what, n := range map[string]uint64{
		"sleeps": seen.Parks, "writers without room": seen.Stalls, "rings grown": seen.Grown, "resets": seen.Resets,
		"ends": seen.Ends, "kills": seen.Kills, "checksums": seen.Sums, "cuts": seen.Cuts, "wraps": seen.Wraps, "writers without slots": seen.NoSlots,
		"full send queues": seen.NoRoom, "credits that change while read": seen.TornCredits,
		"bytes placed ahead": seen.Ahead, "several completions at once": seen.Coalesced,
		"Writes that are gathered": seen.Gathered,
	} {
		require.NotZero(t, n, "no %s: a model that gets into no trouble tests nothing", what)
	}
	require.Less(t, seen.fewestSlots, ring.ControlReserve, "nothing drew on the reserve")
}

// report tells what was found, how to find it again, and what led to it: the choices of
// the seed with all taken out that can be.
func report(t *testing.T, lab *modelLab, seed uint64, failure *modelFailure) {
	rec := &modelRecorder{chooser: newModelSeed(seed)}
	if again := lab.run(rec, faultNone); again == nil || again.step != failure.step || again.kind() != failure.kind() {
		t.Errorf("seed %d is not deterministic: first %v, then %v", seed, failure, again)
		return
	}
	short := lab.shrink(rec.choices, failure)
	lab.trace = true
	last := lab.run(&modelScript{choices: short}, faultNone)
	lines := lab.lines[max(0, len(lab.lines)-60):]
	t.Errorf("seed %d, step %d: %s\nreplay with %s=%d go test -run 'TestModel$' ./rdmanet\nof %d choices %d are left, which end at step %d with: %s\nsettings: %+v\nthe last steps:\n%s",
		seed, failure.step, failure.what, modelSeedVar, seed, len(rec.choices), len(short), last.step, last.what, lab.set, strings.Join(lines, "\n"))
}

// kind is what two failures have in common if they are the same.
func (f *modelFailure) kind() string {
	words := strings.Fields(f.what)
	return strings.Join(words[:min(len(words), 2)], " ")
}

// shrink takes out choices as long as the same kind of failure comes about.
func (l *modelLab) shrink(choices []uint32, failure *modelFailure) []uint32 {
	limit := time.Now().Add(20 * time.Second)
	fails := func(c []uint32) bool {
		f := l.run(&modelScript{choices: c}, faultNone)
		return f != nil && f.kind() == failure.kind()
	}
	for again := true; again; {
		again = false
		for size := len(choices) / 2; size > 0; size /= 2 {
			for at := 0; at+size <= len(choices) && time.Now().Before(limit); {
				without := append(append([]uint32(nil), choices[:at]...), choices[at+size:]...)
				if fails(without) {
					choices, again = without, true
				} else {
					at += size
				}
			}
		}
	}
	return choices
}
