package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailures(t *testing.T) {
	groups := []group{{name: "dials", runs: []program{{name: "ours"}, {name: "theirs"}, {name: "broken"}, {name: "silent"}}}}
	lost := failures{}
	lost.add("dials", "ours", "BenchmarkDialCrowd/procs=two 1 5000 ns/op 0 failed/op", nil)
	lost.add("dials", "theirs", "seconds 1.5 failed 3\n", nil)
	lost.add("dials", "theirs", "seconds 1.5 failed 4\n", nil)
	lost.add("dials", "theirs", "", errors.New("stalled"))
	lost.add("dials", "broken", "", errors.New("stalled"))
	lost.add("dials", "silent", "BenchmarkDial/procs=two 50 5000 ns/op", nil)
	var b strings.Builder
	printFailures(&b, groups, lost)
	require.Equal(t, `
dials, ours: 0 failed in 1 rounds
dials, theirs: 7 failed in 2 rounds, no result in 1 more
dials, broken: no result in 1 rounds
`, b.String())
}

func TestDialRate(t *testing.T) {
	require.InEpsilon(t, 100, dialRate(200, 50, 1.5), 1e-9)
	seconds, failed, err := parseDials("seconds 0.250000 failed 2\n")
	require.NoError(t, err)
	require.InEpsilon(t, 0.25, seconds, 1e-9)
	require.Equal(t, 2, failed)
	_, _, err = parseDials("rsdial: Connection refused\n")
	require.Error(t, err)
}
