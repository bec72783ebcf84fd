package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// chart is a drawing with logarithmic axes: a panel for each number of processes, side
// by side, with the same scale.
type chart struct {
	title, desc string
	yTitle      string
	yUnits      []axisUnit
	panels      []panel
	better      string // which way is good
}

type panel struct {
	title  string
	series []series
}

// series is one line of a panel. A level is a horizontal line over all sizes.
type series struct {
	transport string
	points    []point
	level     bool
}

type point struct{ x, y float64 }

// axisUnit names values from 1 of it on.
type axisUnit struct {
	factor float64
	name   string
}

var (
	byteRates = []axisUnit{{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}, {1, "B/s"}}
	durations = []axisUnit{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}}
)

var chartSizes = []struct {
	name  string
	bytes float64
}{{"64B", 64}, {"256B", 256}, {"1KiB", 1 << 10}, {"4KiB", 4 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}}

// legend is the order of the lines and their names; the last drawn is on top.
var legend = []struct{ transport, name string }{
	{ours, "rdmanet"}, {"tcp", "loopback TCP"}, {"unix", "Unix socket"},
	{"ring", "limit: raw ring in one process"}, {"pingpong", "limit: ping-pong of a cache line"},
}

// drawAll draws every chart that the results allow, by file name.
func drawAll(res *results) map[string][]byte {
	throughput := chart{
		title: "Throughput of streams by message size", yTitle: "throughput", yUnits: byteRates, better: "higher is better",
		desc: "Bytes per second of messages written one after the other, from 64 B to 1 MiB, over rdmanet, loopback TCP and a Unix socket, within one process and between two, beside a bare ring in memory.",
	}
	roundTrip := chart{
		title: "Round trips by message size", yTitle: "median round trip", yUnits: durations, better: "lower is better",
		desc: "Median time for a message to go there and back, from 64 B to 1 MiB, over rdmanet, loopback TCP and a Unix socket, within one process and between two, beside the time in which two processors hand a cache line to and fro.",
	}
	for _, procs := range []struct{ name, title string }{{"one", "one process"}, {"two", "two processes"}} {
		t, r := panel{title: procs.title}, panel{title: procs.title}
		for _, l := range legend {
			var rates, trips []point
			for _, size := range chartSizes {
				at := procs.name
				if l.transport == "ring" || l.transport == "pingpong" { // there is but one
					at = "one"
				}
				rates = drawable(rates, size.bytes, 1e6, res.sample(caseOf("Stream/size="+size.name, at, l.transport), "MB/s"))
				trips = drawable(trips, size.bytes, 1, res.sample(caseOf("Echo/size="+size.name, at, l.transport), "p50-ns"))
			}
			if len(rates) > 0 {
				t.series = append(t.series, series{l.transport, rates, false})
			}
			if len(trips) > 0 {
				r.series = append(r.series, series{l.transport, trips, l.transport == "pingpong"})
			}
		}
		throughput.panels = append(throughput.panels, t)
		roundTrip.panels = append(roundTrip.panels, r)
	}
	all := map[string][]byte{}
	for name, c := range map[string]chart{"throughput.svg": throughput, "roundtrip.svg": roundTrip} {
		if c.lines() > 0 {
			all[name] = c.svg()
		}
	}
	return all
}

// drawable appends the median of what was measured, in units of unit, if it has a place
// on a logarithmic axis.
func drawable(points []point, x, unit float64, s sample) []point {
	if s == nil {
		return points
	}
	if y := unit * spreadOf(s.values()).median; y >= 1e-3 && y <= 1e18 {
		points = append(points, point{x, y})
	}
	return points
}

func (c chart) lines() (n int) {
	for _, p := range c.panels {
		n += len(p.series)
	}
	return n
}

// Where things are, in pixels.
const (
	chartWidth, chartHeight = 960.0, 430.0
	plotLeft, plotTop       = 94.0, 92.0
	plotWidth, plotHeight   = 400.0, 276.0
	plotGap                 = 40.0
)

// The colours are told apart by the colour-blind, too, and have a marker each.
const chartStyle = `text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.title{font-size:17px;font-weight:600}.panel{font-weight:600}.tick{font-size:12px;fill:#59636e}
.back{fill:#ffffff}.grid{stroke:#d1d9e0;stroke-width:1}.frame{fill:none;stroke:#818b98;stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.rdma .line{stroke-width:3.2}
.ring .line,.pingpong .line{stroke-dasharray:6 5}.ring .dot,.pingpong .dot{display:none}
.rdma{stroke:#0969da;fill:#0969da}.tcp{stroke:#bc4c00;fill:#bc4c00}.unix{stroke:#1a7f37;fill:#1a7f37}
.ring,.pingpong{stroke:#6e7781;fill:#6e7781}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.tick{fill:#9198a1}.back{fill:#0d1117}.grid{stroke:#2a313c}
.frame{stroke:#656c76}.rdma{stroke:#4493f8;fill:#4493f8}.tcp{stroke:#f0883e;fill:#f0883e}
.unix{stroke:#3fb950;fill:#3fb950}.ring,.pingpong{stroke:#9198a1;fill:#9198a1}}`

// svg draws the chart. It shows nothing but what the chart holds, so equal charts are
// equal files.
func (c chart) svg() []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-labelledby="title desc">`, chartWidth, chartHeight)
	p(`<title id="title">%s</title>`, c.title)
	p(`<desc id="desc">%s</desc>`, c.desc)
	p(`<style>%s</style>`, chartStyle)
	p(`<rect class="back" width="%g" height="%g" rx="6"/>`, chartWidth, chartHeight)
	p(`<text class="title" x="24" y="32">%s</text>`, c.title)
	c.legend(p)
	low, high := c.yRange()
	y := func(v float64) float64 {
		return plotTop + plotHeight*(1-math.Log(v/low)/math.Log(high/low))
	}
	p(`<text class="tick" transform="translate(20 %.1f) rotate(-90)" text-anchor="middle">%s (%s)</text>`, plotTop+plotHeight/2, c.yTitle, c.better)
	for i, panel := range c.panels {
		left := plotLeft + float64(i)*(plotWidth+plotGap)
		c.panel(p, panel, left, low, high, y, i == 0)
	}
	p(`</svg>`)
	return b.Bytes()
}

type printer func(format string, args ...any)

func (c chart) legend(p printer) {
	x := 24.0
	for _, l := range legend {
		if !c.has(l.transport) {
			continue
		}
		p(`<g class="%s"><path class="line" d="M%.1f 56h28"/>%s</g>`, l.transport, x, dot(l.transport, x+14, 56))
		p(`<text x="%.1f" y="60.5">%s</text>`, x+36, l.name)
		x += 36 + 7.2*float64(len(l.name)) + 22
	}
}

func (c chart) has(transport string) bool {
	for _, p := range c.panels {
		for _, s := range p.series {
			if s.transport == transport {
				return true
			}
		}
	}
	return false
}

func (c chart) panel(p printer, panel panel, left, low, high float64, y func(float64) float64, first bool) {
	smallest, largest := chartSizes[0].bytes, chartSizes[len(chartSizes)-1].bytes
	x := func(v float64) float64 {
		const inset = 14
		return left + inset + (plotWidth-2*inset)*math.Log(v/smallest)/math.Log(largest/smallest)
	}
	p(`<text class="panel" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, left+plotWidth/2, plotTop-9, panel.title)
	for _, tick := range yTicks(low, high) {
		p(`<path class="grid" d="M%.1f %.1fh%.1f"/>`, left, y(tick), plotWidth)
		if first {
			p(`<text class="tick" x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left-8, y(tick)+4, label(tick, c.yUnits))
		}
	}
	for _, size := range chartSizes {
		p(`<path class="grid" d="M%.1f %.1fv%.1f"/>`, x(size.bytes), plotTop, plotHeight)
		p(`<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x(size.bytes), plotTop+plotHeight+19, spaced(size.name))
	}
	p(`<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">message size</text>`, left+plotWidth/2, plotTop+plotHeight+42)
	p(`<rect class="frame" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, left, plotTop, plotWidth, plotHeight)
	for i := len(panel.series) - 1; i >= 0; i-- {
		s := panel.series[i]
		var path, dots strings.Builder
		for j, pt := range s.points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x(pt.x), y(pt.y))
			dots.WriteString(dot(s.transport, x(pt.x), y(pt.y)))
		}
		if s.level {
			path.Reset()
			fmt.Fprintf(&path, "M%.1f %.1fh%.1f", left, y(s.points[0].y), plotWidth)
		}
		p(`<g class="%s"><path class="line" d="%s"/>%s</g>`, s.transport, path.String(), dots.String())
	}
}

// dot marks a point: a circle, a square or a triangle.
func dot(transport string, x, y float64) string {
	switch transport {
	case "tcp":
		return fmt.Sprintf(`<rect class="dot" x="%.1f" y="%.1f" width="7" height="7"/>`, x-3.5, y-3.5)
	case "unix":
		return fmt.Sprintf(`<path class="dot" d="M%.1f %.1fl4.5 8h-9z"/>`, x, y-5)
	}
	return fmt.Sprintf(`<circle class="dot" cx="%.1f" cy="%.1f" r="4"/>`, x, y)
}

// yRange is what all panels hold, rounded outwards to ticks.
func (c chart) yRange() (low, high float64) {
	low, high = math.Inf(1), 0
	for _, p := range c.panels {
		for _, s := range p.series {
			for _, pt := range s.points {
				low, high = min(low, pt.y), max(high, pt.y)
			}
		}
	}
	decade := math.Pow(10, math.Floor(math.Log10(low)))
	for _, step := range []float64{5, 2, 1} {
		if decade*step <= low {
			low = decade * step
			break
		}
	}
	decade = math.Pow(10, math.Floor(math.Log10(high)))
	for _, step := range []float64{1, 2, 5, 10} {
		if decade*step >= high {
			high = decade * step
			break
		}
	}
	if low == high {
		high = 10 * low
	}
	return low, high
}

// yTicks are 1, 2 and 5 of each decade, or 1 alone where there are many.
func yTicks(low, high float64) (ticks []float64) {
	steps := []float64{1, 2, 5}
	if high/low > 2e3 {
		steps = steps[:1]
	}
	const near = 1 + 1e-9
	for decade := math.Pow(10, math.Floor(math.Log10(low*near))); decade <= high*near; decade *= 10 {
		for _, step := range steps {
			if v := decade * step; v >= low/near && v <= high*near {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

func label(v float64, units []axisUnit) string {
	for _, u := range units {
		if v >= u.factor*(1-1e-9) {
			return fmt.Sprintf("%.3g %s", v/u.factor, u.name)
		}
	}
	return fmt.Sprintf("%.3g %s", v, units[len(units)-1].name)
}
