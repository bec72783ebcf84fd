// Benchreport turns the output of this module's benchmarks into the table of ratios and
// the charts of docs/BENCHMARKS.md:
//
//	benchreport -header > raw.txt            what the runs that follow were made with
//	bench.test -test.bench . >> raw.txt      of the root and of internal/bench, once for each round
//	benchreport [-docs FILE] [-charts DIR] raw.txt
//
// It prints the table. With -docs it also puts it between the two markers of FILE, and
// with -charts it draws the charts in DIR. All comes from raw.txt alone.
//
// It is a module of its own, so that nothing of golang.org/x/perf, which reads the lines for it
// and for benchstat, gets into the module that users import.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	switch err := run(os.Args[1:], os.Stdout); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("benchreport", flag.ContinueOnError)
	header := fs.Bool("header", false, "print what this machine's runs are made with, and nothing else")
	docs := fs.String("docs", "", "`file` of Markdown to put the table into")
	charts := fs.String("charts", "", "`directory` to draw the charts in")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *header && fs.NArg() == 0 {
		return writeHeader(out)
	}
	if fs.NArg() != 1 {
		return errors.New("name one file of benchmark output")
	}
	raw, err := os.ReadFile(fs.Arg(0))
	if err != nil {
		return err
	}
	results, err := parse(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("%s: %w", fs.Arg(0), err)
	}
	sections := evaluate(plan(), results)
	if err := writeText(out, sections); err != nil {
		return err
	}
	if *charts != "" {
		for name, svg := range drawAll(results) {
			if err := os.WriteFile(filepath.Join(*charts, name), svg, 0o644); err != nil {
				return err
			}
		}
	}
	if *docs != "" {
		page, err := os.ReadFile(*docs)
		if err != nil {
			return err
		}
		page, err = insert(page, markdown(results, sections))
		if err != nil {
			return fmt.Errorf("%s: %w", *docs, err)
		}
		return os.WriteFile(*docs, page, 0o644)
	}
	return nil
}
