package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChartsGolden(t *testing.T) {
	all := drawAll(fixture(t))
	require.Len(t, all, 2)
	for name, svg := range all {
		requireWellFormed(t, name, svg)
		requireGolden(t, name, svg)
	}
}

// requireWellFormed reads the whole drawing: XML, with a title, and no number that no
// program can draw.
func requireWellFormed(t *testing.T, name string, svg []byte) {
	t.Helper()
	require.Contains(t, string(svg), "<title id=", name)
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err, name)
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				require.False(t, strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf"), "%s: %s=%q", name, a.Name.Local, a.Value)
			}
		}
	}
}

// TestReadableOnAPhone looks at the letters of a chart that is shown 344 pixels wide, as a page
// with margins on a screen of 360 does.
func TestReadableOnAPhone(t *testing.T) {
	sizes := regexp.MustCompile(`([0-9]+)px`).FindAllStringSubmatch(chartStyle, -1)
	require.NotEmpty(t, sizes)
	for _, size := range sizes {
		pixels, err := strconv.Atoi(size[1])
		require.NoError(t, err)
		assert.GreaterOrEqual(t, float64(pixels)*344/chartWidth, 11.0, size[0])
	}
}

func TestRanges(t *testing.T) {
	of := func(ys ...float64) chart {
		var pts []point
		for _, y := range ys {
			pts = append(pts, point{64, y})
		}
		return chart{panels: []panel{{series: []series{{"tcp", pts, false}}}}}
	}
	for _, c := range []struct {
		ys        []float64
		low, high float64
		ticks     []float64
	}{
		{[]float64{3, 70}, 2, 100, []float64{2, 5, 10, 20, 50, 100}},
		{[]float64{1, 1}, 1, 10, []float64{1, 2, 5, 10}},
		{[]float64{6, 9000}, 5, 10000, []float64{5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000}},
		{[]float64{1, 1e4}, 1, 1e4, []float64{1, 10, 100, 1000, 10000}},
	} {
		low, high := of(c.ys...).yRange()
		assert.InEpsilon(t, c.low, low, 1e-9, "%v", c.ys)
		assert.InEpsilon(t, c.high, high, 1e-9, "%v", c.ys)
		assert.InDeltaSlice(t, c.ticks, yTicks(low, high), 1e-6, "%v", c.ys)
	}
}

func TestLabels(t *testing.T) {
	assert.Equal(t, "500 ns", label(500, durations))
	assert.Equal(t, "1 µs", label(1000, durations))
	assert.Equal(t, "20 ms", label(2e7, durations))
	assert.Equal(t, "0.5 ns", label(0.5, durations))
	assert.Equal(t, "10 GB/s", label(1e10, byteRates))
}
