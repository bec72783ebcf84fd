package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// line is a row with its values.
type line struct {
	work, against string
	target        target
	one, two      *spread // nil where nothing was measured
	limit         *spread
}

type evaluated struct {
	title, note string
	lines       []line
}

// evaluate fills the plan in; rows and sections of which nothing was measured are left
// out.
func evaluate(plan []section, res *results) []evaluated {
	var all []evaluated
	for _, s := range plan {
		e := evaluated{title: s.title, note: s.note}
		for _, r := range s.rows {
			l := line{work: r.work, against: r.against, target: r.target}
			for procs, cell := range map[string]**spread{"one": &l.one, "two": &l.two} {
				if values := r.values(res, procs); len(values) > 0 {
					sp := spreadOf(values)
					*cell = &sp
				}
			}
			if r.limit != nil {
				if values := r.limit(res); len(values) > 0 {
					sp := spreadOf(values)
					l.limit = &sp
				}
			}
			if l.one != nil || l.two != nil {
				e.lines = append(e.lines, l)
			}
		}
		if len(e.lines) > 0 {
			all = append(all, e)
		}
	}
	return all
}

// number writes two digits that count.
func number(v float64) string {
	if v >= 10 || v == 0 {
		return grouped(strconv.FormatFloat(math.Round(v), 'f', -1, 64))
	}
	digits := 1
	for x := v; x < 0.9995 && digits < 5; x *= 10 {
		digits++
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func (t target) verdict(s *spread) string {
	switch {
	case t.kind == noTarget:
		return ""
	case t.reached(s.median):
		return "reached"
	}
	return "missed"
}

// number writes v by as many digits as show on which side of the target it is.
func (t target) number(v float64) string {
	s := number(v)
	for digits := 1; !t.reached(v) && s == number(t.bound) && digits < 9; digits++ {
		if rounded := math.Round(v*math.Pow10(digits)) / math.Pow10(digits); !t.reached(rounded) {
			s = strconv.FormatFloat(v, 'f', digits, 64)
		}
	}
	return s
}

// cell is a median and the quartiles around it.
func (t target) cell(s *spread) string {
	low, high := number(s.low), number(s.high)
	if low == high {
		return t.number(s.median)
	}
	return fmt.Sprintf("%s (%s to %s)", t.number(s.median), low, high)
}

var columns = []string{"work", "against", "target", "limit", "one process", "two processes"}

// writeText prints the table for a terminal.
func writeText(w io.Writer, sections []evaluated) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(columns, "\t"))
	missed := 0
	text := func(t target, s *spread) string {
		if s == nil {
			return ""
		}
		verdict := t.verdict(s)
		if verdict == "missed" {
			missed++
			verdict = "MISSED"
		}
		return strings.TrimSpace(t.cell(s) + " " + verdict)
	}
	for _, s := range sections {
		fmt.Fprintf(tw, "\t\t\t\t\t\n%s\t\t\t\t\t\n", strings.ToUpper(s.title))
		for _, l := range s.lines {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", l.work, l.against, l.target, text(none, l.limit), text(l.target, l.one), text(l.target, l.two))
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for row := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(row, " \n")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%d missed\n", missed)
	return err
}

// markdown writes the table for the documentation.
func markdown(res *results, sections []evaluated) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s; medians of %d rounds, with the quartiles.\n", setting(res.config), res.rounds)
	text := func(t target, s *spread) string {
		if s == nil {
			return ""
		}
		switch t.verdict(s) {
		case "reached":
			return t.cell(s) + " ✓"
		case "missed":
			return "**" + t.cell(s) + "** ✗"
		}
		return t.cell(s)
	}
	for _, s := range sections {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| %s |\n|%s\n", s.title, s.note, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
		before := ""
		for _, l := range s.lines {
			work := l.work
			if work == before {
				work = ""
			}
			before = l.work
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", work, l.against, l.target, text(none, l.limit), text(l.target, l.one), text(l.target, l.two))
		}
	}
	return b.Bytes()
}

// setting says what the results were measured on.
func setting(config map[string]string) string {
	var parts []string
	for _, p := range []struct{ format, key string }{
		{"%s processors", "processors"}, {"%s", "cpu"}, {"Linux %s", "kernel"}, {"%s", "goversion"},
	} {
		if v := config[p.key]; v != "" {
			parts = append(parts, fmt.Sprintf(p.format, v))
		}
	}
	if len(parts) == 0 {
		return "An unknown machine"
	}
	return strings.Join(parts, ", ")
}
