package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
)

const (
	// budget is how long one kind of measurement lasts, on all networks together, when
	// -count is not given.
	budget = 500 * time.Millisecond
	// rounds is how many turns each network has at a measurement when several are compared.
	// What else the machine does meanwhile then slows down all of them.
	rounds = 3
)

var defaultSizes = []int{64, 4 << 10, 64 << 10, 1 << 20}

// measure measures every message size on every link and prints what that came to: a row
// for each size on the first link, and if there are others how they compare with it.
func measure(ctx context.Context, links []*link, opt options) error {
	sizes := defaultSizes
	if opt.size > 0 {
		sizes = []int{opt.size}
	}
	largest := sizes[len(sizes)-1]
	pattern := newPattern(largest)
	progress := console.NewProgress(os.Stderr)
	defer progress.Clear()
	var sides []*echoer
	for _, l := range links {
		sides = append(sides, &echoer{
			ctx: ctx, network: l.network, conn: l.conn, progress: progress,
			pattern: pattern, buf: make([]byte, largest), results: make([]result, len(sizes)),
		})
	}
	for i, size := range sizes {
		label := console.Size(int64(size))
		progress.Start(label+" round trips", time.Now())
		err := inTurns(sides, opt.count, func(e *echoer, t turn) error { return e.roundTrips(size, t, &e.results[i].trips) })
		if err != nil {
			return fmt.Errorf("round trips of %s, %w", label, err)
		}
		progress.Start(label+" stream", time.Now())
		err = inTurns(sides, opt.count, func(e *echoer, t turn) error { return e.stream(size, t, &e.results[i].streamed) })
		if err != nil {
			return fmt.Errorf("stream of %s, %w", label, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	progress.Clear()
	printResults(opt.out, sizes, sides[0].results)
	if len(sides) > 1 {
		printComparison(opt.out, sizes, sides)
	}
	var echoed int64
	for _, e := range sides {
		echoed += e.pos
	}
	fmt.Fprintf(opt.out, "\n%s echoed, every byte compared\n", console.Size(echoed))
	return nil
}

// inTurns gives the sides their turns at one measurement: all of count messages for each,
// or an equal share of the budget if count is 0.
func inTurns(sides []*echoer, count int, measure func(*echoer, turn) error) error {
	each := rounds
	if len(sides) == 1 {
		each = 1
	}
	all := each * len(sides)
	for round := range each {
		limit := math.MaxInt
		if count > 0 {
			limit = count*(round+1)/each - count*round/each
		}
		if limit == 0 {
			continue
		}
		for i, e := range sides {
			t := turn{limit: limit, time: budget / time.Duration(all), part: round*len(sides) + i, all: all}
			if err := measure(e, t); err != nil {
				return fmt.Errorf("%s: %w", e.network, err)
			}
		}
	}
	return nil
}

// printResults prints a row for each size.
func printResults(w io.Writer, sizes []int, results []result) {
	var table console.Table
	table.Header("size", "round trips", "p50", "p90", "p99", "max", "streamed", "throughput", "messages/s")
	for i := range results {
		r := &results[i]
		h := &r.trips
		table.Row(console.Size(int64(sizes[i])), fmt.Sprint(h.Count()),
			console.Latency(h.Quantile(0.5)), console.Latency(h.Quantile(0.9)), console.Latency(h.Quantile(0.99)), console.Latency(h.Max()),
			console.Size(r.bytes), console.Rate(r.throughput()), console.Count(float64(r.messages)/r.took.Seconds()))
	}
	table.Print(w)
}

// printComparison prints a row for each size: the median round trip and the throughput of
// each side, those of all but the first with how many times the first's they are.
func printComparison(w io.Writer, sizes []int, sides []*echoer) {
	header := []string{"size"}
	for _, of := range []string{" p50", " stream"} {
		for _, e := range sides {
			header = append(header, e.network+of)
		}
	}
	var table console.Table
	table.Header(header...)
	for i, size := range sizes {
		first := &sides[0].results[i]
		row := []string{console.Size(int64(size))}
		for n, e := range sides {
			p50 := e.results[i].trips.Quantile(0.5)
			row = append(row, cell(console.Latency(p50), n, float64(p50)/float64(first.trips.Quantile(0.5))))
		}
		for n, e := range sides {
			rate := e.results[i].throughput()
			row = append(row, cell(console.Rate(rate), n, rate/first.throughput()))
		}
		table.Row(row...)
	}
	fmt.Fprintf(w, "\n%s and the kernel's sockets, measured in turns; × is the ratio to %[1]s:\n\n", sides[0].network)
	table.Print(w)
}

// cell is a figure of the n-th side and its ratio to the first's.
func cell(figure string, n int, ratio float64) string {
	if n == 0 {
		return figure
	}
	return fmt.Sprintf("%s %6s", figure, console.Ratio(ratio))
}
