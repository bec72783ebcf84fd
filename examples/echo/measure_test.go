package main

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTurnsAlternate(t *testing.T) {
	a, b := &echoer{network: "a"}, &echoer{network: "b"}
	take := func(sides []*echoer, count int) (order string, turns []turn) {
		require.NoError(t, inTurns(sides, count, func(e *echoer, t turn) error {
			order, turns = order+e.network, append(turns, t)
			return nil
		}))
		return order, turns
	}
	order, turns := take([]*echoer{a, b}, 0)
	assert.Equal(t, "ababab", order)
	sum := time.Duration(0)
	for i, turn := range turns {
		assert.Equal(t, math.MaxInt, turn.limit)
		assert.Equal(t, i, turn.part)
		assert.Equal(t, len(turns), turn.all)
		sum += turn.time
	}
	assert.InDelta(t, budget, sum, 100, "however many they are, they have one budget")

	order, turns = take([]*echoer{a}, 0)
	assert.Equal(t, "a", order, "alone it needs no turns")
	assert.Equal(t, budget, turns[0].time)

	for _, count := range []int{1, 2, 3, 7, 1000} {
		_, turns = take([]*echoer{a, b}, count)
		messages := 0
		for _, turn := range turns {
			messages += turn.limit
		}
		assert.Equal(t, 2*count, messages)
	}

	failure := errors.New("broken")
	err := inTurns([]*echoer{a, b}, 0, func(*echoer, turn) error { return failure })
	assert.ErrorIs(t, err, failure)
	assert.EqualError(t, err, "a: broken")
}

func TestTurnIsOver(t *testing.T) {
	start := time.Unix(0, 0)
	counted := turn{limit: 3, time: time.Second, part: 1, all: 2}
	assert.False(t, counted.over(2, start, start.Add(time.Hour)), "messages count, not time")
	assert.True(t, counted.over(3, start, start))
	assert.InDelta(t, 0.5+1.0/6, counted.share(1, time.Hour), 1e-9)

	timed := turn{limit: math.MaxInt, time: time.Second, part: 1, all: 2}
	assert.False(t, timed.over(1<<30, start, start.Add(time.Second-1)))
	assert.True(t, timed.over(1, start, start.Add(time.Second)))
	assert.InDelta(t, 0.75, timed.share(1, time.Second/2), 1e-9)
	assert.InDelta(t, 1, timed.share(1, time.Hour), 1e-9)
}

func TestComparisonTable(t *testing.T) {
	side := func(network string, p50, took time.Duration) *echoer {
		e := &echoer{network: network, results: make([]result, 1)}
		e.results[0].trips.Record(p50)
		e.results[0].streamed = streamed{bytes: 1e6, messages: 1000, took: took}
		return e
	}
	var out bytes.Buffer
	printComparison(&out, []int{64}, []*echoer{side("rdma", time.Microsecond, time.Second), side("unix", 4*time.Microsecond, 10*time.Second)})
	assert.Equal(t, `
rdma and the kernel's sockets, measured in turns; × is the ratio to rdma:

size  rdma p50     unix p50  rdma stream      unix stream
64 B      1 µs  4 µs     4×       1 MB/s  100 kB/s  0.10×
`, out.String())
}
