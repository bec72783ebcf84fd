package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// How long the tests of a package may take, and one that is expected to fail: some
// of those wait for ever.
const (
	timeLimit      = 5 * time.Minute
	aloneTimeLimit = 10 * time.Second
)

// settings are what the command line says.
type settings struct {
	network     string
	short, race bool
	dir         string // for what is generated
}

// result is what the runs of a package's tests came to.
type result struct {
	plain   *report            // the tests as they are, without those that are listed
	alone   map[string]*report // each listed test, as it is
	adapted *report            // those for which types were exchanged; nil if there are none
}

// check builds and runs the tests of p.
func (s *settings) check(sel *selection, net, p *goPackage) (*result, error) {
	skip, err := sel.skipped(p)
	if err != nil {
		return nil, err
	}
	plain, err := hookOverlay(net, p, s.network != "")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, strings.ReplaceAll(p.ImportPath, "/", "_"))
	bin, err := s.build(plain, filepath.Join(dir, "plain"), p)
	if err != nil {
		return nil, err
	}
	res := &result{}
	if res.plain, err = bin.run(filepath.Join(dir, "events"), timeLimit, "-test.skip="+pattern(skip)); err != nil {
		return nil, err
	}
	if s.network != "" {
		if res.alone, err = bin.each(dir, sel.listed()); err != nil {
			return nil, err
		}
	}
	if len(sel.adapt) == 0 {
		return res, nil
	}
	if err := plain.adapt(p, sel); err != nil {
		return nil, err
	}
	if bin, err = s.build(plain, filepath.Join(dir, "adapted"), p); err != nil {
		return nil, err
	}
	res.adapted, err = bin.run(filepath.Join(dir, "events.adapted"), timeLimit, "-test.run="+pattern(names(sel.adapt)))
	return res, err
}

func (s *settings) build(o overlay, dir string, p *goPackage) (*binary, error) {
	path, err := o.build(dir, p, s.race)
	return &binary{path: path, dir: p.Dir, network: s.network, short: s.short}, err
}

// each runs tests in processes of their own: what fails may take its process along.
func (b *binary) each(dir string, tests []string) (map[string]*report, error) {
	var mu sync.Mutex
	var failed error
	reports := map[string]*report{}
	var wg sync.WaitGroup
	atOnce := make(chan struct{}, 4)
	for i, t := range tests {
		wg.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			rep, err := b.run(filepath.Join(dir, fmt.Sprintf("events.%d", i)), aloneTimeLimit, "-test.run="+pattern([]string{t}))
			mu.Lock()
			defer mu.Unlock()
			reports[t] = rep
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	return reports, failed
}

// skipped are the tests that do not run as they are. It fails if the selection names
// a test or a file that this release of Go does not have.
func (sel *selection) skipped(p *goPackage) ([]string, error) {
	files, err := p.read(p.testFiles())
	if err != nil {
		return nil, err
	}
	byFile := map[string][]string{}
	have := map[string]bool{}
	for name, src := range files {
		if byFile[name], err = testsIn(name, src); err != nil {
			return nil, err
		}
		for _, t := range byFile[name] {
			have[t] = true
		}
	}
	skip := sel.listed()
	for _, e := range sel.out {
		if strings.HasSuffix(e.name, ".go") {
			if len(byFile[e.name]) == 0 {
				return nil, fmt.Errorf("tests.txt: %s has no file %s with tests for this system in this release of Go", sel.pkg, e.name)
			}
			skip = append(skip, byFile[e.name]...)
			continue
		}
		skip = append(skip, e.name)
	}
	for _, e := range slices.Concat(sel.adapt, sel.except, sel.out) {
		if top, _, _ := strings.Cut(e.name, "/"); !have[top] && !strings.HasSuffix(top, ".go") {
			return nil, fmt.Errorf("tests.txt: %s has no test %s for this system in this release of Go", sel.pkg, top)
		}
	}
	return skip, nil
}

// judge returns what is wrong with the result; nothing if all is as the selection says.
func (sel *selection) judge(res *result) []string {
	complaints := res.plain.complaints()
	for _, e := range slices.Concat(sel.adapt, sel.except) {
		rep := res.alone[e.name]
		if rep == nil {
			continue
		}
		verdict, events := rep.verdict[e.name], rep.events.Dialled+rep.events.Listened
		adapts := slices.Contains(sel.adapt, e)
		mayPass := slices.Contains(sel.chance, e.name) || adapts && events == 0 // through DialTCP it passes over TCP
		switch {
		case verdict == "":
			complaints = append(complaints, fmt.Sprintf("%s is listed, but there is no such test", e.name))
		case verdict == "pass" && !mayPass:
			complaints = append(complaints, fmt.Sprintf("%s passes, although tests.txt says: %s", e.name, e.reason))
		}
	}
	dialled := res.plain.events.Dialled
	if res.adapted != nil {
		complaints = append(complaints, res.adapted.complaints()...)
		for _, e := range sel.adapt {
			v := res.adapted.verdict[e.name]
			if alone := res.alone[e.name]; v == "skip" && (alone == nil || alone.verdict[e.name] == "skip") {
				continue // it is not for this system, or for -short
			}
			if v != "pass" && v != "fail" {
				complaints = append(complaints, fmt.Sprintf("%s should run with its types exchanged, but: %q", e.name, v))
			}
		}
		dialled += res.adapted.events.Dialled
	}
	if res.alone != nil && dialled < sel.least {
		complaints = append(complaints, fmt.Sprintf("%d connections of rdmanet were dialled, fewer than the %d that show what was tested", dialled, sel.least))
	}
	return complaints
}

// complaints are the tests that failed or did not end, with the end of what they said.
func (r *report) complaints() []string {
	var out []string
	for _, t := range slices.Sorted(maps.Keys(r.verdict)) {
		v := r.verdict[t]
		if strings.Contains(t, "/") || v != "fail" && v != "run" {
			continue
		}
		word := "fails"
		if v == "run" {
			word = "does not end"
		}
		out = append(out, fmt.Sprintf("%s %s:\n%s", t, word, r.tail(t)))
	}
	if r.failed && len(out) == 0 {
		out = append(out, "the tests fail as a whole:\n"+r.tail(""))
	}
	return out
}

// tail is the end of what a test wrote, indented.
func (r *report) tail(test string) string {
	const most = 60
	if r.output[test] == nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(r.output[test].String()), "\n")
	if len(lines) > most {
		lines = append([]string{"..."}, lines[len(lines)-most:]...)
	}
	return "\t" + strings.Join(lines, "\n\t")
}
