package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// chart is a drawing with logarithmic axes: a panel for each number of processes, one below
// the other, with the same scale. It is drawn for a phone: shown 360 pixels wide, its letters
// are as large as those of the text around it are, nearly.
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
	{"ring", "raw ring, in one process (reference)"}, {"pingpong", "ping-pong of a cache line (limit)"},
}

// drawAll draws every chart that the results allow, by file name.
func drawAll(res *results) map[string][]byte {
	throughput := chart{
		title: "Throughput by message size", yTitle: "throughput", yUnits: byteRates, better: "higher is better",
		desc: "Bytes per second of messages written one after the other, from 64 B to 1 MiB, over rdmanet, loopback TCP and a Unix socket, within one process and between two, beside a raw ring in memory, which copies in and out and does nothing else.",
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
	chartWidth            = 480.0
	chartMargin           = 16.0
	plotLeft              = 92.0
	plotWidth, plotHeight = 374.0, 190.0
	legendLine            = 27.0
	panelHead, panelFoot  = 42.0, 30.0 // above the plot and below it
)

// The colours are told apart by the colour-blind, too, and have a marker each.
const chartStyle = `text{font:17px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.title{font-size:21px;font-weight:600}.panel{font-weight:600}.tick{font-size:16px;fill:#59636e}
.back{fill:#ffffff}.grid{stroke:#d1d9e0;stroke-width:1}.frame{fill:none;stroke:#818b98;stroke-width:1}
.line{fill:none;stroke-width:2.5;stroke-linejoin:round;stroke-linecap:round}.rdma .line{stroke-width:4}
.ring .line,.pingpong .line{stroke-dasharray:6 5}.ring .dot,.pingpong .dot{display:none}
.rdma{stroke:#0969da;fill:#0969da}.tcp{stroke:#bc4c00;fill:#bc4c00}.unix{stroke:#1a7f37;fill:#1a7f37}
.ring,.pingpong{stroke:#6e7781;fill:#6e7781}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.tick{fill:#9198a1}.back{fill:#0d1117}.grid{stroke:#2a313c}
.frame{stroke:#656c76}.rdma{stroke:#4493f8;fill:#4493f8}.tcp{stroke:#f0883e;fill:#f0883e}
.unix{stroke:#3fb950;fill:#3fb950}.ring,.pingpong{stroke:#9198a1;fill:#9198a1}}`

// svg draws the chart. It shows nothing but what the chart holds, so equal charts are
// equal files.
func (c chart) svg() []byte {
	var body bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&body, format+"\n", args...) }
	p(`<text class="title" x="%g" y="32">%s</text>`, chartMargin, c.title)
	bottom := c.legend(p, 63)
	low, high := c.yRange()
	for i, panel := range c.panels {
		c.panel(p, panel, bottom, low, high, i == len(c.panels)-1)
		bottom += panelHead + plotHeight + panelFoot
	}
	height := bottom + 26 // the title of the last axis

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g" role="img" aria-labelledby="title desc">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n<style>%s</style>\n", c.title, c.desc, chartStyle)
	fmt.Fprintf(&b, `<rect class="back" width="%g" height="%g" rx="6"/>`+"\n", chartWidth, height)
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

type printer func(format string, args ...any)

// legend draws the lines' names from y on, and returns where the last line of it ends.
func (c chart) legend(p printer, y float64) (bottom float64) {
	x := chartMargin
	for _, l := range legend {
		if !c.has(l.transport) {
			continue
		}
		width := 38 + 9.8*float64(len(l.name)) // what a wide font takes, about
		if x > chartMargin && x+width > chartWidth {
			x, y = chartMargin, y+legendLine
		}
		p(`<g class="%s"><path class="line" d="M%.1f %.1fh30"/>%s</g>`, l.transport, x, y-6, dot(l.transport, x+15, y-6))
		p(`<text x="%.1f" y="%.1f">%s</text>`, x+38, y, l.name)
		x += width + 8
	}
	return y
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

// panel draws a panel below y.
func (c chart) panel(p printer, panel panel, above, low, high float64, last bool) {
	top := above + panelHead
	y := func(v float64) float64 { return top + plotHeight*(1-math.Log(v/low)/math.Log(high/low)) }
	smallest, largest := chartSizes[0].bytes, chartSizes[len(chartSizes)-1].bytes
	x := func(v float64) float64 {
		const inset = 22
		return plotLeft + inset + (plotWidth-2*inset)*math.Log(v/smallest)/math.Log(largest/smallest)
	}
	p(`<text x="%g" y="%.1f"><tspan class="panel">%s</tspan>, %s (%s)</text>`, chartMargin, top-12, panel.title, c.yTitle, c.better)
	for _, tick := range yTicks(low, high) {
		p(`<path class="grid" d="M%.1f %.1fh%.1f"/>`, plotLeft, y(tick), plotWidth)
		p(`<text class="tick" x="%.1f" y="%.1f" text-anchor="end">%s</text>`, plotLeft-8, y(tick)+5.5, label(tick, c.yUnits))
	}
	for _, size := range chartSizes {
		p(`<path class="grid" d="M%.1f %.1fv%.1f"/>`, x(size.bytes), top, plotHeight)
		p(`<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x(size.bytes), top+plotHeight+21, spaced(size.name))
	}
	if last {
		p(`<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">message size</text>`, plotLeft+plotWidth/2, top+plotHeight+44)
	}
	p(`<rect class="frame" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, plotLeft, top, plotWidth, plotHeight)
	for i := len(panel.series) - 1; i >= 0; i-- {
		s := panel.series[i]
		var path, dots strings.Builder
		for j, pt := range s.points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x(pt.x), y(pt.y))
			dots.WriteString(dot(s.transport, x(pt.x), y(pt.y)))
		}
		if s.level {
			path.Reset()
			fmt.Fprintf(&path, "M%.1f %.1fh%.1f", plotLeft, y(s.points[0].y), plotWidth)
		}
		p(`<g class="%s"><path class="line" d="%s"/>%s</g>`, s.transport, path.String(), dots.String())
	}
}

// dot marks a point: a circle, a square or a triangle.
func dot(transport string, x, y float64) string {
	switch transport {
	case "tcp":
		return fmt.Sprintf(`<rect class="dot" x="%.1f" y="%.1f" width="9" height="9"/>`, x-4.5, y-4.5)
	case "unix":
		return fmt.Sprintf(`<path class="dot" d="M%.1f %.1fl5.5 10h-11z"/>`, x, y-6)
	}
	return fmt.Sprintf(`<circle class="dot" cx="%.1f" cy="%.1f" r="5"/>`, x, y)
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
