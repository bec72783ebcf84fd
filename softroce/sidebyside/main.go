// Sidebyside measures this library, perftest, rsockets, SMC-R and kernel TCP over one link, in
// turns, and prints how they compare. softroce/bench runs it in a machine with soft-RoCE.
//
//	sidebyside -bench bench.test -crowds crowds.test [-rounds 5] [-only REGEXP] [-raw FILE] [-profiles DIR]
//
// What one program does in a second says little here: the processors are emulated, and go
// through slow spells. So only ratios are printed, each the median over rounds in which the
// two programs ran one directly after the other, in both orders.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sidebyside:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("sidebyside", flag.ContinueOnError)
	bench := fs.String("bench", "", "`path` of the compiled benchmarks at the root of this module")
	crowds := fs.String("crowds", "", "`path` of those of internal/bench")
	rsdial := fs.String("rsdial", "rsdial", "`path` of the program that dials by rsockets")
	rounds := fs.Int("rounds", 5, "`number` of times that everything is measured")
	only := fs.String("only", ".", "`regexp` of the comparisons to make")
	rawFile := fs.String("raw", os.DevNull, "`file` for what the programs printed")
	profiles := fs.String("profiles", "", "`directory` for profiles of what misses its target")
	if err := fs.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	raw, err := os.Create(*rawFile)
	if err != nil {
		return err
	}
	defer raw.Close()
	groups := choose(comparisons(*bench, *crowds, *rsdial), chosen)
	if len(groups) == 0 {
		return fmt.Errorf("no comparison is named like %q", *only)
	}
	if err := enableSMC(); err != nil {
		return err
	}
	var taken samples
	lost := failures{}
	for _, lossy := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.lossy != lossy })
		if err := measure(ctx, some, lossy, *rounds, raw, &taken, lost); err != nil {
			return err
		}
	}
	results := judge(groups, taken)
	out := io.MultiWriter(os.Stdout, raw)
	fmt.Fprintf(out, "\n")
	printTable(out, results)
	printFailures(out, groups, lost)
	return errors.Join(profile(ctx, *profiles, groups, results), raw.Close())
}

// choose keeps the groups whose name matches.
func choose(groups []group, name *regexp.Regexp) []group {
	return slices.DeleteFunc(groups, func(g group) bool { return !name.MatchString(g.name) })
}

// measure takes the samples of all rounds.
func measure(ctx context.Context, groups []group, lossy bool, rounds int, raw io.Writer, taken *samples, lost failures) error {
	if len(groups) == 0 {
		return nil
	}
	if lossy {
		repair, err := loseOnePercent(ctx)
		if err != nil {
			return err
		}
		defer repair()
	}
	for round := range rounds {
		for _, g := range groups {
			runs := slices.Clone(g.runs)
			if round%2 == 1 {
				slices.Reverse(runs)
			}
			for _, r := range runs {
				began, before := time.Now(), readCarriers()
				value, output, err := r.measure(ctx)
				if err == nil {
					err = r.proveCarrier(output, before)
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				fmt.Fprintf(raw, "# round %d, %s, %s, %.1f s\n%s\n", round+1, g.name, r.name, time.Since(began).Seconds(), output)
				if err != nil {
					fmt.Fprintf(raw, "# %v\n", err)
					fmt.Printf("round %d, %s: %s: %v\n", round+1, g.name, r.name, err)
				}
				taken.add(g.name, r.name, round, value, err)
				lost.add(g.name, r.name, output, err)
			}
		}
		fmt.Printf("round %d of %d is done\n", round+1, rounds)
	}
	return nil
}
