package console

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 64: "64 B", 1024: "1 KiB", 1536: "1.50 KiB", 1 << 20: "1 MiB", 100_000: "97.7 KiB", 5 << 30: "5 GiB"} {
		assert.Equal(t, want, Size(n))
	}
	for v, want := range map[float64]string{0: "0 B/s", 999: "999 B/s", 1500: "1.50 kB/s", 2.5e6: "2.50 MB/s", 12.34e9: "12.3 GB/s"} {
		assert.Equal(t, want, Rate(v))
	}
	for v, want := range map[float64]string{0: "0", 9999: "9999", 12_345: "12.3 k", 4.5e6: "4.50 M"} {
		assert.Equal(t, want, Count(v))
	}
	for v, want := range map[float64]string{0.123: "0.12×", 1: "1×", 12.34: "12.3×", 345.6: "346×"} {
		assert.Equal(t, want, Ratio(v))
	}
	for d, want := range map[time.Duration]string{0: "0 ns", 431: "431 ns", 1500: "1.50 µs", 12_345: "12.3 µs", 2 * time.Millisecond: "2 ms", 90 * time.Second: "90 s"} {
		assert.Equal(t, want, Latency(d))
	}
}

func TestTableAlignsToTheRight(t *testing.T) {
	var table Table
	table.Header("size", "p50")
	table.Row("64 B", "12.3 µs")
	table.Row("64 KiB", "1 ms")
	var out bytes.Buffer
	table.Print(&out)
	assert.Equal(t, "  size      p50\n  64 B  12.3 µs\n64 KiB     1 ms\n", out.String())
}

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	var out bytes.Buffer
	p := &Progress{w: &out, terminal: true}
	t0 := time.Unix(0, 0)
	p.Start("work", t0)
	assert.Empty(t, out.String())
	assert.False(t, p.Due(t0.Add(interval-1)))
	assert.True(t, p.Due(t0.Add(interval)))
	p.Show(t0.Add(interval), 0.5, "fast")
	assert.Equal(t, "\r\x1b[Kwork   50%  fast", out.String())
	assert.False(t, p.Due(t0.Add(interval)))
	p.Show(t0, 7, "")
	assert.Contains(t, out.String(), "100%", "never more than all")
	out.Reset()
	p.Clear()
	p.Clear()
	assert.Equal(t, "\r\x1b[K", out.String(), "cleared once")
}

func TestProgressInAFileIsPlainLines(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/log")
	require.NoError(t, err)
	defer f.Close()
	p := NewProgress(f)
	p.Start("work", time.Now())
	p.Show(time.Now(), 0.5, "fast")
	p.Clear()
	got, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	assert.Equal(t, "work ...\n", string(got))
}
