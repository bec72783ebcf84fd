package main

import (
	"fmt"
	"io"
)

// failures are how many dials of each program have failed, by group and program.
type failures map[[2]string]*failureCount

type failureCount struct {
	failed, rounds, broken int // broken are rounds of which there is no result
}

// add counts what a program printed; what counts no failures is left out.
func (f failures) add(group, program, output string, err error) {
	n, counted := parseFailures(output)
	if !counted && err == nil {
		return
	}
	key := [2]string{group, program}
	if f[key] == nil {
		f[key] = new(failureCount)
	}
	if err != nil {
		f[key].broken++
		return
	}
	f[key].rounds++
	f[key].failed += n
}

// printFailures prints a line for each program that has counted.
func printFailures(w io.Writer, groups []group, lost failures) {
	fmt.Fprintln(w)
	for _, g := range groups {
		for _, p := range g.runs {
			c := lost[[2]string{g.name, p.name}]
			switch {
			case c == nil:
			case c.rounds == 0:
				fmt.Fprintf(w, "%s, %s: no result in %d rounds\n", g.name, p.name, c.broken)
			default:
				fmt.Fprintf(w, "%s, %s: %d failed in %d rounds", g.name, p.name, c.failed, c.rounds)
				if c.broken > 0 {
					fmt.Fprintf(w, ", no result in %d more", c.broken)
				}
				fmt.Fprintln(w)
			}
		}
	}
}
