package main

import (
	"maps"
	"slices"
)

// spread is the median of some values and the quartiles around it. It is kept by hand: benchmath
// gives an interval of confidence, which needs six rounds for 95 %, where make bench makes five.
type spread struct{ low, median, high float64 }

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 {
		pos := q * float64(len(sorted)-1)
		i := int(pos)
		if i+1 == len(sorted) {
			return sorted[i]
		}
		return sorted[i] + (pos-float64(i))*(sorted[i+1]-sorted[i])
	}
	return spread{at(0.25), at(0.5), at(0.75)}
}

// over divides what was measured in the same round.
func (s sample) over(by sample) (ratios []float64) {
	for r, v := range s {
		if d, ok := by[r]; ok && d > 0 {
			ratios = append(ratios, v/d)
		}
	}
	return ratios
}

func (s sample) values() []float64 { return slices.Collect(maps.Values(s)) }
