package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every line of the table has both its programs, and every program a line.
func TestComparisons(t *testing.T) {
	for _, g := range comparisons("bench.test", "crowds.test", "rsdial") {
		programs := map[string]bool{}
		for _, p := range g.runs {
			require.False(t, programs[p.name], "%s: %s twice", g.name, p.name)
			programs[p.name] = true
		}
		require.True(t, programs[ours], g.name)
		require.Len(t, g.rows, len(g.runs)-1, g.name)
		for _, r := range g.rows {
			require.True(t, programs[r.against], "%s: %s", g.name, r.against)
		}
	}
	require.Len(t, choose(comparisons("", "", ""), regexp.MustCompile("^echo")), 3)
}

func TestTable(t *testing.T) {
	groups := []group{
		{name: "stream", rows: []row{{against: "fast", limit: 0.9}, {against: "slow", limit: 1.1}, {against: "broken", limit: 1}, {against: "fast"}}},
		{name: "echo", rows: []row{{against: "fast", limit: 1.15, time: true}, {against: "slow", limit: 1, time: true}}},
	}
	var taken samples
	// The second round is ten times as slow, which changes no ratio of its own.
	for round, unit := range []float64{1, 0.1, 1} {
		taken.add("stream", ours, round, 80*unit, nil)
		taken.add("stream", "fast", round, 100*unit, nil)
		taken.add("stream", "slow", round, 40*unit, nil)
		taken.add("stream", "broken", round, 0, errors.New("stalled"))
		taken.add("echo", ours, round, []float64{10, 11, 18}[round]/unit, nil)
		taken.add("echo", "fast", round, 10/unit, nil)
		taken.add("echo", "slow", round, 20/unit, nil)
	}
	taken.add("echo", ours, 2, 0, errors.New("stalled"))

	results := judge(groups, taken)
	var missed []bool
	for _, r := range results {
		missed = append(missed, r.missed())
	}
	require.Equal(t, []bool{true, false, true, false, false, false}, missed)
	require.InEpsilon(t, 0.8, results[0].median(), 1e-9)
	require.InEpsilon(t, 1.05, results[4].median(), 1e-9, "of an even number")
	require.Len(t, results[4].ratios, 2, "a round that failed does not count")

	var b strings.Builder
	printTable(&b, results)
	require.Contains(t, b.String(), "MISSED")
	require.Contains(t, b.String(), "no result")
	require.Contains(t, b.String(), "at most 1.15")
}
