package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// A result is one line of the table.
type result struct {
	group  string
	row    row
	ratios []float64 // in ascending order
}

// judge makes the lines of the table.
func judge(groups []group, taken samples) (results []result) {
	for _, g := range groups {
		for _, r := range g.rows {
			ratios := taken.ratios(g.name, ours, r.against)
			slices.Sort(ratios)
			results = append(results, result{g.name, r, ratios})
		}
	}
	return results
}

// median is the middle ratio; there must be one.
func (r result) median() float64 {
	n := len(r.ratios)
	return (r.ratios[(n-1)/2] + r.ratios[n/2]) / 2
}

// missed reports whether there is a limit that is not kept.
func (r result) missed() bool {
	return r.row.limit > 0 && (len(r.ratios) == 0 || !r.row.met(r.median()))
}

func (r result) verdict() string {
	switch {
	case r.row.limit == 0:
		return ""
	case r.missed():
		return "MISSED"
	}
	return "met"
}

func (r result) target() string {
	switch {
	case r.row.limit == 0:
		return "none"
	case r.row.time:
		return fmt.Sprintf("at most %g", r.row.limit)
	}
	return fmt.Sprintf("at least %g", r.row.limit)
}

// printTable prints a line for each result.
func printTable(w io.Writer, results []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "work\tagainst\ttarget\tratio\tfrom\tto\trounds\t")
	for _, r := range results {
		name := r.group
		if len(r.ratios) == 0 {
			fmt.Fprintf(t, "%s\t%s\t%s\tno result\t\t\t0\t%s\n", name, r.row.against, r.target(), r.verdict())
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%.2f\t%.2f\t%d\t%s\n", name, r.row.against, r.target(),
			r.median(), r.ratios[0], r.ratios[len(r.ratios)-1], len(r.ratios), r.verdict())
	}
	_ = t.Flush()
	fmt.Fprintln(w, "\nThroughput of rdmanet over the other's, or where the target is \"at most\" its time over the")
	fmt.Fprintln(w, "other's: the median of the rounds, and the smallest and the largest of them.")
}
