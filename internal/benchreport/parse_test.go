package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fixture is the parsed testdata/raw.txt: three rounds.
func fixture(t testing.TB) *results {
	t.Helper()
	raw, err := os.ReadFile("testdata/raw.txt")
	require.NoError(t, err)
	res, err := parse(bytes.NewReader(raw))
	require.NoError(t, err)
	return res
}

func TestParse(t *testing.T) {
	res, err := parse(strings.NewReader(`goversion: go1.25
cpu: Some Processor: the second
BenchmarkEcho/size=64B/procs=one/transport=rdma-16   100  420.5 ns/op  400 p50-ns  0 B/op
BenchmarkDial/transport=h2c
BenchmarkDial/transport=h2c   1   2e+06 ns/op
PASS
BenchmarkEcho/size=64B/procs=one/transport=rdma-16   100  440 ns/op  410 p50-ns  0 B/op
BenchmarkEcho/size=64B/procs=one/transport=rdma-16   100  450 ns/op  411 p50-ns  0 B/op
Not a line: of configuration
PASS
`))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"goversion": "go1.25", "cpu": "Some Processor: the second"}, res.config)
	assert.Equal(t, 3, res.rounds)
	assert.Equal(t, sample{{0, 0}: 420.5, {1, 0}: 440, {1, 1}: 450}, res.sample("Echo/size=64B/procs=one/transport=rdma", "ns/op"))
	assert.Equal(t, sample{{0, 0}: 2e6}, res.sample("Dial/transport=h2c", "ns/op"))
	assert.Nil(t, res.sample("Dial/transport=h2c", "p50-ns"))
	assert.Nil(t, res.sample("Dial/transport=tcp", "ns/op"))
}

func TestParseRefuses(t *testing.T) {
	const good = "BenchmarkA-2 1 1 ns/op\n"
	for text, want := range map[string]string{
		"":                                "no benchmarks",
		"PASS\n":                          "no benchmarks",
		good + "FAIL\n":                   "line 2: a benchmark failed",
		good + "--- FAIL: BenchmarkB\n":   "line 2: a benchmark failed",
		good + "BenchmarkA-2 1 1\n":       "line 2: missing units",
		good + "BenchmarkA-2 x 1 ns/op\n": "line 2: parsing iteration count",
		good + "BenchmarkA-2 1 x ns/op\n": "line 2",
		"BenchmarkA-2 1 NaN ns/op\n":      "ns/op is NaN",
		"BenchmarkA-2 1 -1 ns/op\n":       "ns/op is -1",
		"BenchmarkA-2 1 +Inf MB/s\n":      "MB/s is +Inf",
	} {
		_, err := parse(strings.NewReader(text))
		assert.ErrorContains(t, err, want, text)
	}
}

// FuzzParse has the whole report made of anything that can be parsed.
func FuzzParse(f *testing.F) {
	raw, err := os.ReadFile("testdata/raw.txt")
	require.NoError(f, err)
	f.Add(string(raw))
	f.Add("BenchmarkEcho/size=64B/procs=one/transport=rdma-2 1 0 p50-ns\nBenchmarkEcho/size=64B/procs=one/transport=tcp-2 1 1e300 p50-ns\n")
	f.Add("BenchmarkStream/size=64B/procs=two/transport=rdma 1 0 ns/op 1e-300 MB/s\nPASS\nkey: value\n")
	f.Fuzz(func(t *testing.T, text string) {
		res, err := parse(strings.NewReader(text))
		if err != nil {
			return
		}
		require.Positive(t, res.rounds)
		sections := evaluate(plan(), res)
		require.NoError(t, writeText(new(bytes.Buffer), sections))
		markdown(res, sections)
		for name, svg := range drawAll(res) {
			requireWellFormed(t, name, svg)
		}
	})
}
