package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// requireGolden compares with a file in testdata; go test -update writes it.
func requireGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestTableGolden(t *testing.T) {
	res := fixture(t)
	sections := evaluate(plan(), res)
	var text bytes.Buffer
	require.NoError(t, writeText(&text, sections))
	requireGolden(t, "table.txt", text.Bytes())
	requireGolden(t, "table.md", markdown(res, sections))
}

// TestRatiosPairRounds has a machine of which one round ran at half the speed.
func TestRatiosPairRounds(t *testing.T) {
	res, err := parse(strings.NewReader(`
BenchmarkStream/size=64B/procs=one/transport=rdma-2 1 10 ns/op
BenchmarkStream/size=64B/procs=one/transport=tcp-2 1 500 ns/op
PASS
BenchmarkStream/size=64B/procs=one/transport=rdma-2 1 20 ns/op
BenchmarkStream/size=64B/procs=one/transport=tcp-2 1 1000 ns/op
PASS
BenchmarkStream/size=64B/procs=one/transport=rdma-2 1 10 ns/op
PASS
`))
	require.NoError(t, err)
	sections := evaluate(plan(), res)
	require.Len(t, sections, 1, "what was not measured is left out")
	require.Len(t, sections[0].lines, 1)
	l := sections[0].lines[0]
	assert.Equal(t, "TCP", l.against)
	assert.Equal(t, spread{50, 50, 50}, *l.one, "each pair gives the same ratio, and a round without a pair none")
	assert.Nil(t, l.two)
	assert.Equal(t, "reached", l.target.verdict(l.one))
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target  target
		value   float64
		reached bool
		text    string
	}{
		{atLeast(40), 40, true, "at least 40"},
		{atLeast(40), 39.9, false, "at least 40"},
		{atMost(3), 3, true, "at most 3"},
		{atMost(3), 3.1, false, "at most 3"},
		{atMost(0), 0, true, "0"},
		{atMost(0), 0.01, false, "0"},
		{none, 7, true, ""},
	} {
		assert.Equal(t, c.reached, c.target.reached(c.value), "%v %v", c.target, c.value)
		assert.Equal(t, c.text, c.target.String())
	}
	assert.Empty(t, none.verdict(&spread{}))
}

// TestTargetJustMissed: a number that is rounded does not hide on which side it is.
func TestTargetJustMissed(t *testing.T) {
	assert.Equal(t, "16.04", atMost(16).cell(&spread{16.03, 16.04, 16.05}))
	assert.Equal(t, "16", atMost(16).cell(&spread{15.9, 15.96, 16}))
	assert.Equal(t, "0.7998 (0.7 to 0.9)", atLeast(0.8).cell(&spread{0.7, 0.7998, 0.9}))
	assert.Equal(t, "39.7 (38 to 41)", atLeast(40).cell(&spread{38, 39.7, 41}))
	assert.Equal(t, "17", atMost(16).cell(&spread{17, 17, 17}))
	assert.Equal(t, "0.01", atMost(0).cell(&spread{0.01, 0.01, 0.01}))
	assert.Equal(t, "16", none.cell(&spread{16.03, 16.04, 16.05}))
}

func TestSpread(t *testing.T) {
	assert.Equal(t, spread{2, 3, 4}, spreadOf([]float64{5, 1, 4, 2, 3}))
	assert.Equal(t, spread{1.25, 1.5, 1.75}, spreadOf([]float64{2, 1}))
	assert.Equal(t, spread{7, 7, 7}, spreadOf([]float64{7}))
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 3.25: "3.2", 9.97: "10", 12.5: "13", 149.6: "150", 12345: "12,345",
		0.357: "0.36", 0.7: "0.7", 0.999: "1", 0.9996: "1", 0.075: "0.075", 0.001: "0.001", 0.0000001: "0",
	} {
		assert.Equal(t, want, number(v), "%v", v)
	}
}

// TestPlanHasNoRowTwice also has every section say what its numbers are.
func TestPlanHasNoRowTwice(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range plan() {
		require.NotEmpty(t, s.note, s.title)
		for _, r := range s.rows {
			key := s.title + r.work + r.against
			require.False(t, seen[key], "%s twice", key)
			seen[key] = true
		}
	}
}

func TestInsert(t *testing.T) {
	page := "before\n" + beginMarker + "old\n" + endMarker + "after\n"
	got, err := insert([]byte(page), []byte("new\n"))
	require.NoError(t, err)
	require.Equal(t, "before\n"+beginMarker+"\nnew\n\n"+endMarker+"after\n", string(got))
	again, err := insert(got, []byte("new\n"))
	require.NoError(t, err)
	require.Equal(t, string(got), string(again))
	for _, bad := range []string{"", beginMarker, endMarker + beginMarker, "x" + endMarker} {
		_, err := insert([]byte(bad), nil)
		require.ErrorContains(t, err, "it has no line", bad)
	}
}

func TestHeader(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, run([]string{"-header"}, &b))
	lines := strings.Count(b.String(), "\n")
	b.WriteString("BenchmarkA-2 1 1 ns/op\n")
	res, err := parse(strings.NewReader(b.String()))
	require.NoError(t, err)
	assert.Len(t, res.config, lines, "each line is one of configuration")
	assert.Regexp(t, regexp.MustCompile(`(?m)^goversion: go`), b.String())
	assert.Equal(t, "6.18", kernelVersion("6.18.44-some-host\n"))
	assert.Equal(t, "unknown", kernelVersion("x"))
}

func TestRunRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, args := range [][]string{{}, {"a", "b"}, {"-header", "a", "b"}, {missing}, {"-docs", missing, "testdata/raw.txt"}, {"-charts", missing, "testdata/raw.txt"}} {
		require.Error(t, run(args, new(bytes.Buffer)), "%v", args)
	}
}

// requireWritten checks that the table of a page is that of the raw output, written with these arguments.
func requireWritten(t *testing.T, page, raw string, args ...string) {
	t.Helper()
	want, err := os.ReadFile(page)
	require.NoError(t, err)
	again := filepath.Join(t.TempDir(), "again.md")
	require.NoError(t, os.WriteFile(again, want, 0o644))
	require.NoError(t, run(append([]string{"-docs", again}, append(args, raw)...), new(bytes.Buffer)))
	got, err := os.ReadFile(again)
	require.NoError(t, err)
	require.Equal(t, string(got), string(want))
}

// TestSecondMachine has the table of the second machine be that of its raw output. After a change of this
// program go run . -docs ../../docs/bench/xeon.md ../../docs/bench/xeon.txt writes it anew.
func TestSecondMachine(t *testing.T) {
	requireWritten(t, "../../docs/bench/xeon.md", "../../docs/bench/xeon.txt")
}

// TestDocumentation has the table and the charts in docs be those of the raw output that
// lies beside them. make bench writes them all; after a change of this program
// go run . -docs ../../docs/BENCHMARKS.md -charts ../../docs/bench ../../docs/bench/software.txt
// does, in this directory.
func TestDocumentation(t *testing.T) {
	const docs = "../../docs"
	charts := t.TempDir()
	requireWritten(t, docs+"/BENCHMARKS.md", docs+"/bench/software.txt", "-charts", charts)
	drawn, err := os.ReadDir(charts)
	require.NoError(t, err)
	require.NotEmpty(t, drawn)
	for _, chart := range drawn {
		want, err := os.ReadFile(filepath.Join(charts, chart.Name()))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(docs, "bench", chart.Name()))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), chart.Name())
	}
}
