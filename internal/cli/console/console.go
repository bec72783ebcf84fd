// Package console prints what programs have to say: a progress line, tables, and
// figures with their units.
package console

import (
	"fmt"
	"io"
	"os"
	"time"
)

// interval is how often a progress line is redrawn.
const interval = 100 * time.Millisecond

// Progress is one line that shows how far the work is. On a terminal it is
// redrawn in place; elsewhere each piece of work gets one plain line.
type Progress struct {
	w        io.Writer
	terminal bool
	label    string
	last     time.Time
	drawn    bool
}

// NewProgress returns a progress line on f.
func NewProgress(f *os.File) *Progress {
	info, err := f.Stat()
	return &Progress{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// Start begins a piece of work.
func (p *Progress) Start(label string, now time.Time) {
	p.label, p.last = label, now
	if !p.terminal {
		fmt.Fprintln(p.w, label+" ...")
	}
}

// Due reports whether the line is old enough to be redrawn.
func (p *Progress) Due(now time.Time) bool { return now.Sub(p.last) >= interval }

// Show redraws the line: share, from 0 to 1, of the work is done.
func (p *Progress) Show(now time.Time, share float64, detail string) {
	p.last = now
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K%s  %3.0f%%  %s", p.label, 100*min(share, 1), detail)
		p.drawn = true
	}
}

// Clear removes the line, so that something else can be printed.
func (p *Progress) Clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

// Size prints a number of bytes: "64 B", "1 KiB", "1.5 MiB".
func Size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%s %ciB", number(v), units[i])
}

// Rate prints bytes per second in decimal units, as networks are sold.
func Rate(bytesPerSecond float64) string {
	for _, u := range []struct {
		scale float64
		name  string
	}{{1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}} {
		if bytesPerSecond >= u.scale {
			return number(bytesPerSecond/u.scale) + " " + u.name
		}
	}
	return number(bytesPerSecond) + " B/s"
}

// Count prints a large number shortly: "950", "12.3 k", "4.56 M".
func Count(v float64) string {
	switch {
	case v >= 1e6:
		return number(v/1e6) + " M"
	case v >= 1e4:
		return number(v/1e3) + " k"
	}
	return fmt.Sprintf("%.0f", v)
}

// Latency prints a duration in the unit that fits it, to three digits.
func Latency(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return number(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return number(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return number(d.Seconds()) + " s"
}

// Ratio prints how many times as much something is: "0.12×", "1×", "12.3×".
func Ratio(v float64) string { return number(v) + "×" }

// number prints three significant digits and no useless zeros before the point.
func number(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
