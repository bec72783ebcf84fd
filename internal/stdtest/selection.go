package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed tests.txt
var testsTxt string

// A selection says which tests of a package run, and how. It comes from tests.txt.
type selection struct {
	pkg   string
	least int // connections of rdmanet that its tests dial, at least

	adapt  []entry  // tests that want a type of package net
	chance []string // of those the ones that may pass as they are
	except []entry  // tests that cannot pass
	out    []entry  // tests, and files of tests, that do not run
}

// An entry is one that does not run as it is, and why.
type entry struct{ name, reason string }

// listed are the tests that do not pass as they are.
func (s *selection) listed() []string {
	return append(names(s.adapt), names(s.except)...)
}

func names(entries []entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.name)
	}
	return out
}

// parseSelections reads the format that tests.txt explains in its first lines.
func parseSelections(text string) ([]*selection, error) {
	var all []*selection
	lines := bufio.NewScanner(strings.NewReader(text))
	seen := map[string]bool{}
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fail := func(format string, args ...any) error {
			return fmt.Errorf("tests.txt:%d: %s", n, fmt.Sprintf(format, args...))
		}
		verb, rest, _ := strings.Cut(line, " ")
		if verb == "package" {
			path, count, _ := strings.Cut(rest, " ")
			least, err := strconv.Atoi(count)
			if err != nil || least < 1 {
				return nil, fail("want: package PATH NUMBER, and a number above 0")
			}
			all = append(all, &selection{pkg: path, least: least})
			clear(seen)
			continue
		}
		if len(all) == 0 {
			return nil, fail("%s before the first package", verb)
		}
		name, reason, _ := strings.Cut(rest, ": ")
		if name == "" || strings.TrimSpace(reason) == "" {
			return nil, fail("want: %s NAME: REASON", verb)
		}
		if seen[name] {
			return nil, fail("%s is listed twice", name)
		}
		seen[name] = true
		s, e := all[len(all)-1], entry{name, strings.TrimSpace(reason)}
		switch verb {
		case "adapt":
			s.adapt = append(s.adapt, e)
		case "chance":
			s.adapt, s.chance = append(s.adapt, e), append(s.chance, e.name)
		case "except":
			s.except = append(s.except, e)
		case "out":
			s.out = append(s.out, e)
		default:
			return nil, fail("unknown word %q", verb)
		}
	}
	return all, nil
}
