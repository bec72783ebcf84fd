package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"
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
	res := &results{config: map[string]string{}, cases: map[string]map[string]sample{}}
	pass, seen, total := 0, map[string]int{}, map[string]int{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "Benchmark"):
			name, metrics, err := benchmarkLine(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			if metrics != nil {
				res.add(name, round{pass, seen[name]}, metrics)
				seen[name]++
				total[name]++
				res.rounds = max(res.rounds, total[name])
			}
		case line == "FAIL" || strings.HasPrefix(line, "--- FAIL"):
			return nil, fmt.Errorf("line %d: a benchmark failed", n)
		case line == "PASS":
			pass++
			clear(seen)
		default:
			if key, value, ok := configLine(line); ok {
				res.config[key] = value
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(res.cases) == 0 {
		return nil, errors.New("no benchmarks in it")
	}
	return res, nil
}

// benchmarkLine reads a name, a number of iterations, and pairs of a value and a unit. A
// name alone, which is printed before a log, has no metrics.
func benchmarkLine(line string) (name string, metrics map[string]float64, err error) {
	fields := strings.Fields(line)
	name = caseName(fields[0])
	switch {
	case len(fields) == 1:
		return name, nil, nil
	case len(fields)%2 != 0:
		return "", nil, errors.New("a value without a unit")
	}
	if _, err := strconv.ParseUint(fields[1], 10, 64); err != nil {
		return "", nil, fmt.Errorf("iterations: %w", err)
	}
	metrics = map[string]float64{}
	for i := 2; i < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return "", nil, err
		}
		unit := fields[i+1]
		if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
			return "", nil, fmt.Errorf("%s is %v", unit, value)
		}
		metrics[unit] = value
	}
	return name, metrics, nil
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

// caseName cuts off "Benchmark" and the number of processors.
func caseName(s string) string {
	s = strings.TrimPrefix(s, "Benchmark")
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		if _, err := strconv.ParseUint(s[i+1:], 10, 32); err == nil {
			s = s[:i]
		}
	}
	return s
}

// configLine splits "key: value"; a key begins in lower case and has no blanks.
func configLine(line string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(line, ":")
	if !ok || key == "" || !unicode.IsLower(rune(key[0])) || strings.ContainsFunc(key, unicode.IsSpace) {
		return "", "", false
	}
	return key, strings.TrimSpace(value), true
}

// sample returns the metric of a case, nil if it was not measured.
func (res *results) sample(name, metric string) sample { return res.cases[name][metric] }
