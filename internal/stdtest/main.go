// Command stdtest runs tests of the standard library, of the installed release of Go,
// over connections of rdmanet:
//
//	go run ./internal/stdtest [flags] [package ...]
//
// It builds them with an overlay: DialContext and Listen of package net hand TCP over
// to rdmanet, nothing else changes. Everything above package net is as it was, so what
// a test dials, serves, proxies and closes runs over this library.
//
// The file tests.txt says which packages, and which tests do not pass as they are, each
// with the reason. Those that only want a *net.TCPConn where any connection would do run
// a second time, with that type exchanged for an interface. stdtest fails if another
// test fails, if one of the list passes, if the list names what is not there, or if
// fewer connections of rdmanet were dialled than the list says.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	s := settings{}
	flag.StringVar(&s.network, "network", "rdma", `what takes the place of "tcp"; "" leaves package net as it is, to compare`)
	flag.BoolVar(&s.short, "short", false, "leave out what tests leave out with -short")
	flag.BoolVar(&s.race, "race", false, "build with the race detector")
	verbose := flag.Bool("v", false, "tell the reasons of what did not run as it is")
	keep := flag.String("keep", "", "a directory for what is generated, to look at; by default it is removed")
	flag.Parse()
	ok, err := s.run(*keep, *verbose, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "stdtest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run checks the packages, all if none is named, and reports whether all is well.
func (s *settings) run(keep string, verbose bool, only []string) (bool, error) {
	if strings.HasPrefix(s.network, "tcp") {
		return false, fmt.Errorf("network %q: rdmanet asks package net for that one, and would be asked itself", s.network)
	}
	selections, err := parseSelections(testsTxt)
	if err != nil {
		return false, err
	}
	if !s.race {
		// Which files a package has should not hang on whether there is a C compiler.
		if err := os.Setenv("CGO_ENABLED", "0"); err != nil {
			return false, err
		}
	}
	if s.dir = keep; s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "stdtest"); err != nil {
			return false, err
		}
		defer os.RemoveAll(s.dir)
	}
	paths := []string{"net"}
	for _, sel := range selections {
		paths = append(paths, sel.pkg)
	}
	for _, path := range only {
		if !slices.Contains(paths, path) {
			return false, fmt.Errorf("tests.txt has no package %s", path)
		}
	}
	packages, err := listPackages(paths)
	if err != nil {
		return false, err
	}
	good := true
	for _, sel := range selections {
		if len(only) > 0 && !slices.Contains(only, sel.pkg) {
			continue
		}
		res, err := s.check(sel, packages["net"], packages[sel.pkg])
		if err != nil {
			return false, err
		}
		complaints := sel.judge(res)
		good = good && len(complaints) == 0
		tell(sel, res, complaints, verbose)
	}
	return good, nil
}

// tell writes a line about a package, and what is wrong.
func tell(sel *selection, res *result, complaints []string, verbose bool) {
	word := "ok  "
	if len(complaints) > 0 {
		word = "FAIL"
	}
	dialled, took := res.plain.events.Dialled, res.plain.took
	adapted := 0
	if res.adapted != nil {
		dialled += res.adapted.events.Dialled
		took += res.adapted.took
		adapted = res.adapted.tests("pass")
	}
	fmt.Printf("%s  %-18s %4d pass, %2d skip, %2d pass with types exchanged; listed: %d adapt, %d except, %d out; %d connections; %v\n",
		word, sel.pkg, res.plain.tests("pass"), res.plain.tests("skip"), adapted,
		len(sel.adapt), len(sel.except), len(sel.out), dialled, took.Round(100*time.Millisecond))
	for _, c := range complaints {
		fmt.Println("    " + strings.ReplaceAll(c, "\n", "\n    "))
	}
	if verbose {
		for _, e := range slices.Concat(sel.adapt, sel.except, sel.out) {
			fmt.Printf("    %s: %s\n", e.name, e.reason)
		}
	}
}
