package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// results is what was measured: by the name of the case, without "Benchmark" and the
// number of processors, and by metric.
type results struct {
	config map[string]string // goversion, cpu and so on
	rounds int               // how often the case was measured that was measured most often
	cases  map[string]map[string]sample
}

// sample is a metric of a case, by the round in which it was measured.
type sample map[round]float64

// round tells the runs of a case apart: each start of the binary is a pass, and with
// -count a pass has several.
type round struct{ pass, nth int }

// parse reads what a benchmark binary printed, run once for each round. A case that
// fails in any of them makes the whole useless.
func parse(r io.Reader) (*results, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	passOf, err := passes(text)
	if err != nil {
		return nil, err
	}
	res := &results{config: map[string]string{}, cases: map[string]map[string]sample{}}
	type inPass struct {
		pass int
		name string
	}
	seen, total := map[inPass]int{}, map[string]int{}
	reader := benchfmt.NewReader(bytes.NewReader(text), "")
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("line %d: %s", record.Line, record.Msg)
		case *benchfmt.Result:
			_, line := record.Pos()
			name, pass := caseName(record.Name), passOf[line-1]
			metrics, err := metricsOf(record)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
			res.add(name, round{pass, seen[inPass{pass, name}]}, metrics)
			seen[inPass{pass, name}]++
			total[name]++
			res.rounds = max(res.rounds, total[name])
			for _, c := range record.Config {
				res.config[c.Key] = string(c.Value)
			}
		}
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	if len(res.cases) == 0 {
		return nil, errors.New("no benchmarks in it")
	}
	return res, nil
}

// passes returns, for each line, how many times the binary had ended before it. That and
// failures are what benchfmt passes over.
func passes(text []byte) (passOf []int, err error) {
	pass := 0
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		passOf = append(passOf, pass)
		switch line := lines.Text(); {
		case line == "FAIL" || strings.HasPrefix(line, "--- FAIL"):
			return nil, fmt.Errorf("line %d: a benchmark failed", len(passOf))
		case line == "PASS":
			pass++
		}
	}
	return passOf, lines.Err()
}

// metricsOf returns the values in the units in which they were printed.
func metricsOf(record *benchfmt.Result) (map[string]float64, error) {
	metrics := map[string]float64{}
	for _, v := range record.Values {
		value, unit := v.Value, v.Unit
		if v.OrigUnit != "" {
			value, unit = v.OrigValue, v.OrigUnit
		}
		if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
			return nil, fmt.Errorf("%s is %v", unit, value)
		}
		metrics[unit] = value
	}
	return metrics, nil
}

func (res *results) add(name string, r round, metrics map[string]float64) {
	if res.cases[name] == nil {
		res.cases[name] = map[string]sample{}
	}
	for unit, value := range metrics {
		if res.cases[name][unit] == nil {
			res.cases[name][unit] = sample{}
		}
		res.cases[name][unit][r] = value
	}
}

// caseName leaves the number of processors out.
func caseName(name benchfmt.Name) string {
	base, parts := name.Parts()
	s := string(base)
	for _, part := range parts {
		if part[0] != '-' {
			s += string(part)
		}
	}
	return s
}

// sample returns the metric of a case, nil if it was not measured.
func (res *results) sample(name, metric string) sample { return res.cases[name][metric] }
