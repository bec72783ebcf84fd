package main

import (
	"fmt"
	"strconv"
	"strings"
)

// parsePerftestRate finds the throughput that ib_write_bw prints, in bytes a second. Its
// MB are 2^20 bytes. For small messages it prints their rate with more digits.
func parsePerftestRate(output string, size int) (float64, error) {
	const bytes, iterations, peak, average, rate = 0, 1, 2, 3, 4
	line, err := lineOf(output, rate+1, bytes, strconv.Itoa(size))
	if err != nil {
		return 0, err
	}
	if size <= 4<<10 {
		return scaled(line[rate], float64(size)*1e6)
	}
	return scaled(line[average], 1<<20)
}

// parsePerftestTrip finds the median round trip of ib_send_lat, in seconds. It prints
// the half of it in microseconds.
func parsePerftestTrip(output string) (float64, error) {
	const bytes, iterations, least, most, typical = 0, 1, 2, 3, 4
	line, err := lineOf(output, typical+1, bytes, "64")
	if err != nil {
		return 0, err
	}
	return scaled(line[typical], 2e-6)
}

// parseRstream finds how long rstream took for each message, in seconds.
func parseRstream(output string) (float64, error) {
	const name, bytes, messages, iterations, total, took, rate, each = 0, 1, 2, 3, 4, 5, 6, 7
	line, err := lineOf(output, each+1, name, "custom")
	if err != nil {
		return 0, err
	}
	return scaled(line[each], 1e-6)
}

// parseBenchmark finds a metric of a benchmark of Go.
func parseBenchmark(output, unit string) (float64, error) {
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		fields := strings.Fields(line)
		for i, f := range fields {
			if f == unit && i > 0 {
				return scaled(fields[i-1], 1)
			}
		}
	}
	return 0, fmt.Errorf("no %s in %q", unit, output)
}

// parseCount finds how often a benchmark of Go did its work.
func parseCount(output string) (int, error) {
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(line, "Benchmark") {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, fmt.Errorf("no benchmark in %q", output)
}

// parseDials finds what rsdial prints.
func parseDials(output string) (seconds float64, failed int, err error) {
	if _, err := fmt.Sscanf(output, "seconds %f failed %d", &seconds, &failed); err != nil {
		return 0, 0, fmt.Errorf("%w in %q", err, output)
	}
	return seconds, failed, nil
}

// parseCmtime finds how long cmtime's connect phase took for all connections, in seconds, and how
// many of them failed: cmtime's exit status does not tell. That of rdma-core since 52 measures
// other phases, after a round that warms up, and prints microseconds.
func parseCmtime(output string) (seconds float64, failed int, err error) {
	const head = "step              total ms     max ms     min us  us / conn"
	if !strings.Contains(output, head) {
		return 0, 0, fmt.Errorf("no result of the cmtime of rdma-core before 52 in %q", output)
	}
	const step, colon, total, most, least, each = 0, 1, 2, 3, 4, 5
	line, err := lineOf(output, each+1, step, "connect")
	if err != nil {
		return 0, 0, err
	}
	seconds, err = scaled(line[total], 1e-3)
	return seconds, strings.Count(output, "RDMA_CM_EVENT_") + strings.Count(output, "failure "), err
}

// parseFailures finds how many dials failed, in what any kind of program prints.
func parseFailures(output string) (failed int, counted bool) {
	for _, parse := range []func(string) (float64, int, error){parseDials, parseCmtime} {
		if _, failed, err := parse(output); err == nil {
			return failed, true
		}
	}
	fields := strings.Fields(output)
	for i, f := range fields {
		if f == failedUnit && i > 0 {
			failed, err := strconv.Atoi(fields[i-1])
			return failed, err == nil
		}
	}
	return 0, false
}

// lineOf returns the words of the last line that has at least n, the one at index being
// word.
func lineOf(output string, n, index int, word string) (found []string, err error) {
	for line := range strings.Lines(output) {
		if words := strings.Fields(line); len(words) >= n && words[index] == word {
			found = words
		}
	}
	if found == nil {
		err = fmt.Errorf("no result in %q", output)
	}
	return found, err
}

// scaled is a positive number times scale.
func scaled(number string, scale float64) (float64, error) {
	v, err := strconv.ParseFloat(number, 64)
	if err == nil && !(v > 0) {
		err = fmt.Errorf("the result is %s", number)
	}
	return v * scale, err
}
