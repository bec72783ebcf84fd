package ring

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The variables that replay one seed of TestModel, and that lengthen it: of the steps
// asked for, which are those of the model in package rdmanet, it takes a tenth.
const (
	seedVar  = "RING_MODEL_SEED"
	stepsVar = "MODEL_STEPS"
)

// modelSteps is how many steps one seed takes.
const modelSteps = 1500

// seeded chooses at random from a seed.
type seeded struct{ *rand.Rand }

func newSeeded(seed uint64) seeded {
	return seeded{rand.New(rand.NewPCG(seed, 0x72696e67))}
}

func (s seeded) intn(n int) int { return s.IntN(n) }

// The operations of a script.
const (
	opWrite = iota
	opConsume
	opArrive
	opReap
	opPlace
	opKeepAlive
	opEarlyCredit
	opGrow
	numOps
)

// amount chooses how many of something: few, some, or all there is.
func amount(c chooser, limit int) int {
	switch c.intn(4) {
	case 0:
		return 1 + c.intn(16)
	case 1:
		return 1 + c.intn(max(limit/8, 1))
	case 2:
		return 1 + c.intn(limit)
	}
	return math.MaxInt
}

// step does one operation at one end.
func (m *model) step(e *end, op int) {
	c := m.c
	switch op {
	case opWrite:
		n := amount(c, int(e.tx.Size()))
		if m.small {
			n = 1 + n%32
		}
		e.write(n)
	case opConsume:
		e.consume(amount(c, int(e.rx.Size())))
	case opArrive:
		e.arrive(amount(c, 32))
	case opReap:
		e.reap(amount(c, 32))
	case opPlace:
		e.place(amount(c, 32))
	case opKeepAlive:
		if e.tx.Slots() > 0 {
			e.control(message{imm: Doorbell{Kind: KindKeepAlive}.Imm()})
		}
	case opEarlyCredit:
		if e.rx.CreditPending() && e.tx.Slots() > 0 {
			e.sendCredit()
		}
	case opGrow:
		if size := e.rx.Size() << (1 + c.intn(3)); size <= e.rx.maxSize {
			e.grow(size)
		}
	}
}

// run takes n steps in phases: in each, some operations are frequent and some do
// not happen, so that every kind of backlog builds up.
func (m *model) run(n int) {
	for n > 0 {
		var weights [2][numOps]int
		for i := range weights {
			for op := opWrite; op <= opPlace; op++ {
				weights[i][op] = []int{0, 1, 4, 16}[m.c.intn(4)]
			}
			for op := opPlace + 1; op < numOps; op++ {
				weights[i][op] = m.c.intn(2)
			}
		}
		m.lazy, m.small = m.c.intn(2) == 0, m.c.intn(2) == 0
		for k := 1 + m.c.intn(200); k > 0 && n > 0; k, n = k-1, n-1 {
			i := m.c.intn(2)
			total := 0
			for _, w := range weights[i] {
				total += w
			}
			pick := m.c.intn(total + 1)
			for op, w := range weights[i] {
				if pick -= w; pick < 0 {
					m.step(m.ends[i], op)
					break
				}
			}
		}
		switch m.c.intn(8) {
		case 0:
			m.settle(true)
		case 1:
			m.settle(false)
		case 2:
			if n < 200 {
				m.ends[m.c.intn(2)].finish()
			}
		}
	}
	m.settle(true)
	for _, e := range m.ends {
		e.finish()
	}
	m.settle(true)
}

// chooseEnd draws a geometry, small rings and queues more often than large ones.
func chooseEnd(c chooser) endConfig {
	pow := func() int { return min(c.intn(9), c.intn(9)) }
	size := pow()
	o := origins[c.intn(len(origins))]
	return endConfig{
		size:    MinSize << size,
		maxSize: MinSize << max(size, pow(), pow()),
		depth:   uint32(MinDepth + min(c.intn(4), c.intn(4))*c.intn(200)),
		bytes:   o.bytes, messages: o.messages,
	}
}

func TestModel(t *testing.T) {
	first, count := uint64(1), uint64(150)
	if testing.Short() {
		count = 50
	}
	if v := os.Getenv(stepsVar); v != "" {
		steps, err := strconv.ParseUint(v, 10, 64)
		require.NoError(t, err, stepsVar)
		first, count = uint64(time.Now().UnixNano())>>10<<24, steps/10/modelSteps+1
	}
	replay := os.Getenv(seedVar)
	if replay != "" {
		seed, err := strconv.ParseUint(replay, 0, 64)
		require.NoError(t, err, seedVar)
		first, count = seed, 1
	}
	total := coverage{lowWater: MaxDepth}
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("replay with %s=%d go test -run TestModel$ ./ring", seedVar, seed)
				}
			}()
			c := newSeeded(seed)
			m := newModel(t, c, [2]endConfig{chooseEnd(c), chooseEnd(c)})
			m.checksums = seed%3 == 0
			m.run(modelSteps)
			total.add(m.seen)
		})
	}
	t.Logf("%+v", total)
	if replay != "" || t.Failed() {
		return
	}
	// A model that no longer gets into trouble tests nothing.
	assert.NotZero(t, total.byteBlocks)
	assert.NotZero(t, total.slotBlocks)
	assert.NotZero(t, total.wraps)
	assert.NotZero(t, total.growths)
	assert.NotZero(t, total.newerBlocks)
	assert.NotZero(t, total.earlyPlacements)
	assert.Less(t, total.lowWater, ControlReserve)
}

func (c *coverage) add(o coverage) {
	c.byteBlocks += o.byteBlocks
	c.slotBlocks += o.slotBlocks
	c.wraps += o.wraps
	c.growths += o.growths
	c.newerBlocks += o.newerBlocks
	c.earlyPlacements += o.earlyPlacements
	c.lowWater = min(c.lowWater, o.lowWater)
}

// TestModelGrowthSteps grows from every size to every larger one up to 1 MiB, at
// once and step by step, under traffic in both directions.
func TestModelGrowthSteps(t *testing.T) {
	const top = 1 << 20
	for from := uint32(MinSize); from < top; from *= 2 {
		for factor := uint32(2); from*factor <= top; factor *= 2 {
			c := newSeeded(uint64(from) + uint64(factor))
			cfg := endConfig{size: from, maxSize: top, depth: MinDepth, bytes: math.MaxUint64 - uint64(from), messages: math.MaxUint32}
			m := newModel(t, c, [2]endConfig{cfg, cfg})
			m.checksums = factor == 4
			e := m.ends[0]
			size := from
			for rounds := 0; size < top; rounds++ {
				require.Less(t, rounds, 10000, "growth from %d by %d is stuck at %d", from, factor, size)
				if !e.rx.Growing() {
					if size = e.rx.Size(); size >= from*factor || size == top {
						break
					}
					e.grow(size * factor)
				}
				m.ends[1].write(amount(c, int(size)))
				e.peer.consume(amount(c, int(size)))
				m.ends[0].write(amount(c, int(size)))
				if rounds%4 == 3 {
					m.settle(true)
				}
			}
			require.Equal(t, from*factor, e.rx.Size())
			require.False(t, e.rx.Growing())
			require.Equal(t, from*factor, m.ends[1].ringEnd)
			m.run(50)
		}
	}
}
