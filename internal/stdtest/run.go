package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/stdtest/over"
)

// A report is what a run of a test binary came to.
type report struct {
	verdict map[string]string // by test: "pass", "fail", "skip", or "run" if it did not end
	output  map[string]*bytes.Buffer
	failed  bool // the binary says so; also without a test that failed
	events  over.Events
	took    time.Duration
}

// tests counts the tests, subtests among them, with a verdict.
func (r *report) tests(verdict string) int {
	n := 0
	for _, v := range r.verdict {
		if v == verdict {
			n++
		}
	}
	return n
}

// A binary is a test binary and how to run it.
type binary struct {
	path    string
	dir     string // the directory of the package
	network string // see over.EnvNetwork
	short   bool
}

// run runs the tests that args name, for at most timeout. Its events go to a new file.
func (b *binary) run(events string, timeout time.Duration, args ...string) (*report, error) {
	cmd := exec.Command("go", append([]string{
		"tool", "test2json", "-t", b.path, "-test.v=test2json", "-test.paniconexit0",
		"-test.timeout=" + timeout.String(), fmt.Sprintf("-test.short=%t", b.short),
	}, args...)...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "PWD="+b.dir, over.EnvNetwork+"="+b.network, over.EnvEvents+"="+events)
	if err := os.RemoveAll(events); err != nil {
		return nil, err
	}
	start := time.Now()
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	rep, failed := parseEvents(out)
	if failed != nil {
		return nil, failed
	}
	rep.failed, rep.took = err != nil, time.Since(start)
	rep.events, err = over.ReadEvents(events)
	return rep, err
}

// pattern is the regular expression for exactly these tests, as TestX or TestX/sub.
func pattern(tests []string) string {
	if len(tests) == 0 {
		return "^$"
	}
	var out []string
	for _, t := range tests {
		parts := strings.Split(t, "/")
		for i, p := range parts {
			parts[i] = "^" + regexp.QuoteMeta(p) + "$"
		}
		out = append(out, strings.Join(parts, "/"))
	}
	return strings.Join(out, "|")
}

// parseEvents reads what test2json writes.
func parseEvents(out []byte) (*report, error) {
	rep := &report{verdict: map[string]string{}, output: map[string]*bytes.Buffer{}}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var ev struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			return nil, fmt.Errorf("%w: %s", err, lines.Bytes())
		}
		switch ev.Action {
		case "output":
			top, _, _ := strings.Cut(ev.Test, "/")
			if rep.output[top] == nil {
				rep.output[top] = new(bytes.Buffer)
			}
			rep.output[top].WriteString(ev.Output)
		case "run", "pass", "fail", "skip":
			if ev.Test != "" {
				rep.verdict[ev.Test] = ev.Action
			}
		}
	}
	return rep, lines.Err()
}
