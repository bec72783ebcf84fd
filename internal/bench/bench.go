// Package bench has what the benchmarks of this module are made of: the other end, which is in this
// process or in one of its own, the work that is done with it, and what the machine itself
// allows. Those that compare the transports are in bench_test.go at the root of the module. All
// others, and the guards, which count where nothing can be timed, are tests of this package.
package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Meter is what a benchmark does to its clock; *testing.B is one.
type Meter interface {
	testing.TB
	ResetTimer()
	StopTimer()
	ReportMetric(n float64, unit string)
}

// Smoke is a Meter that measures nothing.
type Smoke struct{ *testing.T }

func (Smoke) ResetTimer() {}
func (Smoke) StopTimer()  {}
func (s Smoke) ReportMetric(n float64, unit string) {
	if strings.HasSuffix(unit, "-ns") {
		require.Positive(s, n, unit)
	}
}

// A Case is one line of the result: Run does it n times, and each time moves
// Bytes. Where that means nothing Bytes is 0 and no rate is printed.
type Case struct {
	Name  string
	Bytes int
	Run   func(m Meter, n int)
}

// Run measures the cases.
func Run(b *testing.B, cases []Case) {
	for _, c := range cases {
		b.Run(c.Name, func(b *testing.B) {
			b.SetBytes(int64(c.Bytes))
			b.ReportAllocs()
			c.Run(b, b.N)
		})
	}
}

// Try runs the cases of each benchmark for a few messages, so that one that no longer works is
// found without measuring anything.
func Try(t *testing.T, benchmarks map[string][]Case) {
	for name, cases := range benchmarks {
		for _, c := range cases {
			t.Run(name+"/"+c.Name, func(t *testing.T) { c.Run(Smoke{t}, 3) })
		}
	}
}

// Everywhere makes a case of f for both numbers of processes and every transport.
func Everywhere(prefix string, bytes int, f func(m Meter, n int, at Site, transport string)) []Case {
	return over(transports, prefix, bytes, f)
}

// over is Everywhere for these transports.
func over(transports []string, prefix string, bytes int, f func(m Meter, n int, at Site, transport string)) (cases []Case) {
	for _, procs := range []string{"one", "two"} {
		for _, transport := range transports {
			cases = append(cases, Case{
				Name:  fmt.Sprintf("%sprocs=%s/transport=%s", prefix, procs, transport),
				Bytes: bytes,
				Run: func(m Meter, n int) {
					if (transport == "rdma" || transport == "checked") && !haveRDMA {
						m.Skip("the software device needs Linux on amd64 or arm64")
					}
					f(m, n, siteFor(m, procs), transport)
				},
			})
		}
	}
	return cases
}

// SizeName is how the names of cases spell a size.
func SizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}
