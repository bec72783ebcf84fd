package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// print writes the report for people.
func (r *report) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, c := range r.Checks {
		verdict := string(c.Status)
		if failed(c) {
			verdict = "FAIL"
		}
		what := c.Detail
		if c.Subject != "" {
			what = c.Subject + ": " + what
		}
		fmt.Fprintf(out, "%-5s %-14s %s\n", verdict, c.Name, what)
		if c.Fix != "" {
			fmt.Fprintf(out, "%20s fix: %s\n", "", c.Fix)
		}
	}
	for _, d := range r.Devices {
		d.print(out)
	}
	fmt.Fprintln(out, "\n"+r.verdict())
	return out.Flush()
}

func (d *device) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s  %s, GUID %s", d.Name, d.Transport, d.NodeGUID)
	if d.MaxQP > 0 {
		fmt.Fprintf(w, ", up to %d queue pairs", d.MaxQP)
	}
	fmt.Fprintln(w)
	for _, p := range d.Ports {
		fmt.Fprintf(w, "  port %d  %s, %s, MTU %d of %d", p.Number, p.State, p.LinkLayer, p.ActiveMTU, p.MaxMTU)
		if p.LID != 0 {
			fmt.Fprintf(w, ", LID %d", p.LID)
		}
		fmt.Fprintln(w)
		for _, g := range p.GIDs {
			line := fmt.Sprintf("    GID %-3d %-40s %-8s %-10s %s", g.Index, g.GID, g.Type, g.NetDev, g.Address)
			fmt.Fprintln(w, strings.TrimRight(line, " "))
		}
	}
}

// verdict is the last line.
func (r *report) verdict() string {
	failures, passed, none := 0, map[string]bool{}, false
	for _, c := range r.Checks {
		switch {
		case failed(c):
			failures++
		case c.Name == "self-test":
			passed[c.Subject] = true
		case c.Name == "kernel" && c.Status == statusNote:
			none = true
		}
	}
	software := false
	var working []string // RDMA devices
	for _, d := range r.Devices {
		switch {
		case d.Transport == verbs.TransportSoftware.String():
			software = passed[d.Name]
		case passed[d.Name]:
			working = append(working, d.Name)
		}
	}
	text := "RDMA does not work here."
	switch {
	case len(working) > 0:
		text = "RDMA works here, on " + strings.Join(working, " and ") + "."
	case software && none:
		text = "The software device works here, between the processes of this host; there is no RDMA device."
	case software:
		text = "The software device works here, between the processes of this host."
	}
	switch failures {
	case 0:
		return text
	case 1:
		return text + " One check failed: see above what fixes it."
	}
	return fmt.Sprintf("%s %d checks failed: see above what fixes them.", text, failures)
}
