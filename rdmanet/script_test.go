package rdmanet

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A script is a list of steps, each one call on a connection or a listener, that
// runs over any transport. Its text is lines of
//
//	[difference] verb name argument ...
//
// where the part in brackets is optional and names a row of the table of deliberate
// differences. "go LABEL verb ..." runs a step beside the script, "join LABEL"
// waits for it and has its outcome. The verbs are in scriptVerbs.
type script struct {
	name     string
	loopback bool // it wants 127.0.0.1 itself: its name begins with "loopback: "
	steps    []step
}

type step struct {
	line       int
	difference string
	words      []string
}

func (s step) String() string { return strings.Join(s.words, " ") }

// An outcome is what a step returned, in a form that two transports can share.
type outcome struct {
	value string
	err   errorFacts
}

func (o outcome) String() string {
	if o.value == "" {
		return o.err.String()
	}
	return o.value + ", " + o.err.String()
}

// loadScripts reads the scripts of all files that match. "== name" begins one.
func loadScripts(t *testing.T, pattern string) (all []script) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		f, err := os.Open(file)
		require.NoError(t, err)
		defer f.Close()
		base := strings.TrimSuffix(filepath.Base(file), ".txt")
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			line := strings.TrimSpace(lines.Text())
			switch {
			case line == "" || line[0] == '#':
			case strings.HasPrefix(line, "== "):
				name, loopback := strings.CutPrefix(line[3:], "loopback: ")
				all = append(all, script{name: base + "/" + strings.ReplaceAll(name, " ", "-"), loopback: loopback})
			default:
				st := step{line: n}
				if line[0] == '[' {
					name, rest, ok := strings.Cut(line[1:], "] ")
					require.True(t, ok, "%s:%d", file, n)
					st.difference, line = name, rest
				}
				st.words = strings.Fields(line)
				s := &all[len(all)-1]
				s.steps = append(s.steps, st)
			}
		}
		require.NoError(t, lines.Err())
	}
	return all
}

// stepLimit is longer than any step may take.
var stepLimit = 2 * patience

// listenerScript has one script with a listener run at a time: the next may ask for the same port, or for
// one that this has just let go of.
var listenerScript sync.Mutex

// run runs a script and returns the outcome of each step. A script that is about time says
// by what time it must have come where (see scriptOnTime); if it has not, it begins again, as
// where somebody else has a port that is to be free (see scriptListen).
func (s script) run(t *testing.T, tr transport) (outcomes []outcome) {
	t.Helper()
	if slices.ContainsFunc(s.steps, func(st step) bool { return st.words[0] == "listen" }) {
		listenerScript.Lock()
		defer listenerScript.Unlock()
	}
	again(t, "the script", func() bool { return outcomes != nil }, func() { outcomes = s.runOnce(t, tr) })
	return outcomes
}

// runOnce returns nil if the machine was too busy for the script, or somebody else of this host
// was in its way.
func (s script) runOnce(t *testing.T, tr transport) (outcomes []outcome) {
	t.Helper()
	w := newWorld(t, tr)
	defer w.close()
	type pending struct {
		step step
		done chan outcome
	}
	start := func(st step, do func(step) outcome) pending {
		p := pending{st, make(chan outcome, 1)}
		go func() { p.done <- do(st) }()
		return p
	}
	finish := func(p pending) outcome {
		select {
		case o := <-p.done:
			return o
		case <-time.After(stepLimit):
			t.Fatalf("%s: line %d: %q does not return", tr.name(), p.step.line, p.step)
		}
		panic("unreachable")
	}
	background := map[string]pending{}
	for _, st := range s.steps {
		o := outcome{value: "started", err: errorFacts{none: true, class: "ok"}}
		switch st.words[0] {
		case "go":
			w.mu.Lock()
			w.starting++
			w.mu.Unlock()
			background[st.words[1]] = start(step{line: st.line, words: st.words[2:]}, w.inBackground)
		case "join":
			p, ok := background[st.words[1]]
			require.True(t, ok, "line %d: nothing runs as %s", st.line, st.words[1])
			o = finish(p)
			delete(background, st.words[1])
		default:
			o = finish(start(st, w.do))
		}
		if w.void {
			return nil
		}
		outcomes = append(outcomes, o)
	}
	require.Empty(t, background, "a step was never joined")
	return outcomes
}

// do runs one step. A script that uses what it failed to make panics.
func (w *world) do(st step) (o outcome) {
	defer func() {
		if v := recover(); v != nil {
			o = outcome{value: fmt.Sprintf("panic: %v", v)}
		}
	}()
	verb := scriptVerbs[st.words[0]]
	if verb == nil {
		return outcome{value: fmt.Sprintf("line %d: no verb %q", st.line, st.words[0])}
	}
	value, err := verb(w, st.words[1:])
	return outcome{value: value, err: w.facts(err)}
}
